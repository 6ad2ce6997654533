// Package gooselock lets only one process at a time migrate a database with goose, under a lock of package tier.
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

// A Locker is a [lock.Locker] of goose. Any number of providers of one database can share it.
//
// [lock.Locker]: https://pkg.go.dev/github.com/pressly/goose/v3/lock#Locker
type Locker struct {
	mutex *tier.Mutex

	mu   sync.Mutex // guards the field below
	hold *tier.Hold // the hold of the provider that migrates; nil if none does
}

// New returns a locker for one database. Use the same mutex path for this database in all processes. Do not use [tier.WithLinger], because
// other processes would wait for an idle lock.
func New(mutex *tier.Mutex) *Locker { return &Locker{mutex: mutex} }

// Lock blocks until no other process migrates the database. If Lock fails, goose migrates nothing and returns the error. The error is the
// cause of ctx, [tier.ErrWaitLimit], or an error of the store. After a process is killed, its lock is free when its lease ends.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	hold, err := l.mutex.Acquire(tier.WithoutHold(ctx)) // a separate owner, so that two providers of one process exclude each other as well
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = hold
	return nil
}

// Unlock releases the lock. The error wraps [tier.ErrLost] if the lock was lost during the migration. Caution: goose cannot be
// interrupted. After the loss it continues with the remaining migrations, although another process may already migrate the database.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	l.mu.Lock()
	hold := l.hold
	l.hold = nil
	l.mu.Unlock()
	if hold == nil {
		return errors.New("gooselock: Unlock was called without a lock")
	}
	return hold.Release()
}
