// Package gooselock has processes that start at the same time migrate a database one at a time, under a lock of package tier.
//
//	locker := gooselock.New(locks.Mutex("/migrations/shop"))
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(locker))
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/tierlock/tierlock/tier"
)

// A Locker is a goose [lock.Locker], for any number of providers of the same database.
//
// [lock.Locker]: https://pkg.go.dev/github.com/pressly/goose/v3/lock#Locker
type Locker struct {
	mutex *tier.Mutex

	mu   sync.Mutex // guards the field below
	hold *tier.Hold // of the provider that migrates; nil if none does
}

// New returns a locker for the database that the lock stands for. A lock that lingers ([tier.WithLinger]) would make other processes wait
// for nothing.
func New(mutex *tier.Mutex) *Locker { return &Locker{mutex: mutex} }

// Lock waits until no other process migrates. If it fails, goose migrates nothing, and says why: ctx, the limit of the lock
// ([tier.WithMaxWait]), or what the store says. The lock of a process that was killed is free when its lease is over.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	hold, err := l.mutex.Acquire(tier.WithoutHold(ctx)) // two providers of one process exclude each other as well
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = hold
	return nil
}

// Unlock gives the lock up. Its error wraps [tier.ErrLost] if the lock was lost meanwhile: goose cannot be told before, and goes on
// with the migration under way and with those that follow, while another process may have begun.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	l.mu.Lock()
	hold := l.hold
	l.hold = nil
	l.mu.Unlock()
	if hold == nil {
		return errors.New("gooselock: unlocked without a lock")
	}
	return hold.Release()
}
