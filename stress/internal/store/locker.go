package store

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Dial connects a worker process with the lock under test.
type Dial func(ctx context.Context, options Options) (Locker, error)

// Options are those of a lock. A baseline knows none but the first two.
type Options struct {
	Servers        []string
	Goroutines     int            // that may have, or wait for, a lock at a time
	SessionTimeout time.Duration  // zero: the lock's default
	HandOff        *time.Duration // nil: the lock's default
	Linger         *time.Duration // likewise
}

// Locker is one worker process's connection to the lock under test.
type Locker interface {
	// Contender returns what one goroutine uses to acquire path, again and again.
	Contender(path string) (Contender, error)
	Close() error
}

// Contender acquires a lock.
type Contender func(ctx context.Context) (Hold, error)

// Hold is one acquisition.
type Hold interface {
	Token() int64          // zero if this kind of lock has none
	Lost() <-chan struct{} // nil if this kind of lock never tells
	Err() error
	Release() error
}

// ErrLost is what Err and Release return, perhaps wrapped, if the lock was lost.
var ErrLost = tier.ErrLost

// contend makes a Contender of an Acquire that returns a type of its own.
func contend[H Hold](acquire func(context.Context) (H, error)) Contender {
	return func(ctx context.Context) (Hold, error) {
		h, err := acquire(ctx)
		if err != nil {
			return nil, err // not h: a nil *tier.Hold is not a nil Hold
		}
		return h, nil
	}
}

// tiered is package tier's lock, over whatever store.
type tiered struct{ *tier.Registry }

func (l tiered) Contender(path string) (Contender, error) {
	return contend(l.Mutex(path).Acquire), nil
}

func (o Options) policy() []tier.Option {
	var options []tier.Option
	if o.HandOff != nil {
		options = append(options, tier.WithHandOff(*o.HandOff))
	}
	if o.Linger != nil {
		options = append(options, tier.WithLinger(*o.Linger))
	}
	return options
}
