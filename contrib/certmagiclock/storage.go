// Package certmagiclock replaces the locks of any CertMagic storage with locks of package tier.
//
//	certmagic.Default.Storage = certmagiclock.New(certmagic.Default.Storage, locks, "/certmagic")
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/tier"
)

// A Storage is a [certmagic.Storage] with locks of package tier. It also implements [certmagic.TryLocker] and
// [certmagic.LockLeaseRenewer].
type Storage struct {
	certmagic.Storage
	locks *tier.Registry
	dir   string
	log   *slog.Logger

	mu   sync.Mutex              // guards held
	held map[string][]*tier.Hold // the key is the name; there is a second hold only if the first one has ended without an Unlock
}

// An Option changes a [Storage].
type Option interface{ apply(*Storage) }

type option func(*Storage)

func (o option) apply(to *Storage) { o(to) }

// WithLogger sets the logger for warnings about locks that are lost before Unlock. The default is [slog.Default]. Caution: CertMagic cannot
// be interrupted. Therefore it continues after the loss of a lock, and another process may do the same work.
func WithLogger(log *slog.Logger) Option { return option(func(s *Storage) { s.log = log }) }

// New returns a storage that keeps its data in storage, and has a lock below dir for each name. New does not use the locks of storage.
// Therefore all processes that share the storage must use the same dir.
func New(storage certmagic.Storage, locks *tier.Registry, dir string, opts ...Option) *Storage {
	s := &Storage{Storage: storage, locks: locks, dir: dir, log: slog.Default(), held: make(map[string][]*tier.Hold)}
	for _, opt := range opts {
		opt.apply(s)
	}
	return s
}

// Lock blocks until it holds the lock of name or ctx ends. Each call acquires the lock separately, so two calls in one process exclude
// each other. The errors are those of [tier.Mutex.Acquire].
func (s *Storage) Lock(ctx context.Context, name string) error {
	hold, err := s.mutex(name).Acquire(tier.WithoutHold(ctx))
	if err != nil {
		return err
	}
	s.own(name, hold)
	return nil
}

// TryLock returns false if the lock of name is held or has waiters. It does not wait for other holders. Its other errors are those of
// [tier.Mutex.TryAcquire].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	hold, err := s.mutex(name).TryAcquire(tier.WithoutHold(ctx))
	if errors.Is(err, tier.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.own(name, hold)
	return true, nil
}

// Unlock releases the lock of name, even if ctx has ended. It returns an error if this Storage does not hold the lock, and nil if the
// lock was lost.
func (s *Storage) Unlock(_ context.Context, name string) error {
	hold := s.take(name)
	if hold == nil {
		return fmt.Errorf("certmagiclock: unlock %s: this storage does not hold the lock", name)
	}
	err := hold.Release()
	if errors.Is(err, tier.ErrLost) || errors.Is(err, tier.ErrReleased) {
		return nil
	}
	return err
}

// RenewLockLease returns at once while the lock of name is held, because the lock renews itself. If the lock was lost, RenewLockLease
// blocks until the lock is acquired again or ctx ends. CertMagic then checks whether the work is already done.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	hold := s.take(name)
	if hold == nil {
		return fmt.Errorf("certmagiclock: renew %s: this storage does not hold the lock", name)
	}
	if hold.Err() == nil {
		s.keep(name, hold)
		return nil
	}
	hold.Release()
	err := s.Lock(ctx, name)
	if err != nil {
		s.keep(name, hold) // the Unlock that follows needs the hold
	}
	return err
}

// The method mutex returns the lock of name. The lock does not linger, because TryLock in another process would find a lingering lock held.
func (s *Storage) mutex(name string) *tier.Mutex {
	return s.locks.Mutex(tier.Name(s.dir, name), tier.WithLinger(0))
}

// The method own records a new hold.
func (s *Storage) own(name string, hold *tier.Hold) {
	s.keep(name, hold)
	slot.OnLoss(hold, func(err error) {
		s.log.Warn("CertMagic lock lost: another process may do the same work", "name", name, "path", hold.Path(), "error", err)
	})
}

// keep stores hold for the calls that follow.
func (s *Storage) keep(name string, hold *tier.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], hold)
}

// take removes a hold of name and returns it. If there is none, take returns nil. Unlock does not say which of two holds it means.
// Therefore take prefers a hold that has ended, because the other hold may still be in use.
func (s *Storage) take(name string) *tier.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	holds := s.held[name]
	if len(holds) == 0 {
		return nil
	}
	over := max(0, slices.IndexFunc(holds, func(h *tier.Hold) bool { return h.Err() != nil }))
	hold := holds[over]
	if s.held[name] = slices.Delete(holds, over, over+1); len(s.held[name]) == 0 {
		delete(s.held, name)
	}
	return hold
}
