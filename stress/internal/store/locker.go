package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/trace"
	"github.com/tierlock/tierlock/tier"
)

// Kind is a kind of lock.
type Kind struct {
	Dial Dial
	Sort Sort
	Tier bool // it is a lock of package tier, with a hand-off budget and lingering
}

// Sort is a sort of lock: mutex, reader/writer lock, or semaphore.
type Sort int

// The sorts of locks.
const (
	Mutex Sort = iota
	ReadersWriter
	Semaphore
)

func (s Sort) String() string { return [...]string{"mutex", "rw", "semaphore"}[s] }

// locksOf returns the kinds of locks of a store: tier's locks of the given sorts, and the mutexes of other libraries.
func locksOf(open open, sorts []Sort, others map[string]Dial) map[string]Kind {
	locks := map[string]Kind{}
	for _, s := range sorts {
		locks[s.String()] = Kind{Sort: s, Tier: true, Dial: func(ctx context.Context, o Options) (Locker, error) {
			registry, disconnect, err := open(ctx, o)
			if err != nil {
				return nil, err
			}
			return tiered{registry, s, o.Permits, disconnect}, nil
		}}
	}
	for name, dial := range others {
		locks[name] = Kind{Dial: dial}
	}
	return locks
}

// An open function connects a process to a store and returns its registry. disconnect is called after the registry is closed. It ends
// everything that the registry does not end.
type open func(ctx context.Context, o Options) (locks *tier.Registry, disconnect func() error, err error)

// The function opened returns the results of an open function that has made a connection. If err is not nil, opened disconnects.
func opened(locks *tier.Registry, err error, disconnect func() error) (*tier.Registry, func() error, error) {
	if err != nil {
		return nil, nil, errors.Join(err, disconnect())
	}
	return locks, disconnect, nil
}

// Dial connects a worker process to the store for the lock under test.
type Dial func(ctx context.Context, options Options) (Locker, error)

// Options are the options of a lock. The lock of another library uses only the first two.
type Options struct {
	Servers        []string
	Goroutines     int            // how many may hold a lock or wait for one at the same time
	Permits        int            // for a semaphore: the number of its permits
	SessionTimeout time.Duration  // zero: the lock's default
	HandOff        *time.Duration // nil: the lock's default; zero: strict order
	Linger         *time.Duration // nil: the lock's default
	Trace          *trace.Writer  // records the traffic, for stores where it is recorded on the connection; nil: no record
}

// Locker is one worker process's connection to the lock under test.
type Locker interface {
	// Contender returns a function with which one goroutine acquires path again and again.
	Contender(path string) (Contender, error)
	Close() error
}

// Contender acquires a lock for a section with a weight, as defined in package rule.
type Contender func(ctx context.Context, weight int64) (Hold, error)

// Hold is one acquisition.
type Hold interface {
	Token() int64          // zero if this kind of lock has no tokens
	Lost() <-chan struct{} // nil if this kind of lock never reports a loss
	Err() error
	Release() error
}

// If the lock was lost, Err and Release return an error that is ErrLost or wraps it.
var ErrLost = tier.ErrLost

// contend returns a Contender for the Acquire of a mutex. It converts the result, whose type H is the mutex's own, into a Hold.
func contend[H Hold](acquire func(context.Context) (H, error)) Contender {
	return func(ctx context.Context, _ int64) (Hold, error) {
		h, err := acquire(ctx)
		if err != nil {
			return nil, err // not h: a nil pointer in h would make a Hold that is not nil
		}
		return h, nil
	}
}

// tiered is the Locker for locks of package tier, all of one sort, on any store.
type tiered struct {
	*tier.Registry
	sort       Sort
	permits    int
	disconnect func() error
}

func (l tiered) Close() error { return errors.Join(l.Registry.Close(), l.disconnect()) }

func (l tiered) Contender(path string) (Contender, error) {
	switch l.sort {
	case ReadersWriter:
		return contendEither(l.RWMutex(path)), nil
	case Semaphore:
		return contendSome(l.Semaphore(path, l.permits)), nil
	}
	return contend(l.Mutex(path).Acquire), nil
}

// contendEither acquires for reading. If the section has to be alone, it acquires for writing.
func contendEither(m *tier.RWMutex) Contender {
	write, read := contend(m.Writer().Acquire), contend(m.Reader().Acquire)
	return func(ctx context.Context, weight int64) (Hold, error) {
		if weight == oracle.Everybody {
			return write(ctx, weight)
		}
		return read(ctx, weight)
	}
}

// contendSome acquires as many permits as the weight of the section says.
func contendSome(s *tier.Semaphore) Contender {
	return func(ctx context.Context, weight int64) (Hold, error) {
		p, err := s.Acquire(ctx, int(weight))
		if err != nil {
			return nil, err
		}
		return permits{p}, nil
	}
}

// permits are a hold of several permits. Such a hold is not reentrant, and its tokens cannot be used for fencing.
type permits struct{ all *tier.Permits }

func (permits) Token() int64            { return 0 }
func (p permits) Lost() <-chan struct{} { return p.all.Lost() }
func (p permits) Err() error            { return p.all.Err() }
func (p permits) Release() error        { return p.all.Release() }

func (o Options) policy() []tier.Option {
	var options []tier.Option
	switch {
	case o.HandOff == nil:
	case *o.HandOff == 0:
		options = append(options, tier.WithStrictOrder())
	default:
		options = append(options, tier.WithHandOff(*o.HandOff))
	}
	if o.Linger != nil {
		options = append(options, tier.WithLinger(*o.Linger))
	}
	return options
}

// registry returns the options of a registry.
func (o Options) registry() (options []tier.RegistryOption) {
	if o.SessionTimeout != 0 {
		options = append(options, tier.WithLeaseTTL(o.SessionTimeout))
	}
	for _, policy := range o.policy() {
		options = append(options, policy)
	}
	return options
}

// peer is a process's connection to a store, for the lock of another library.
type peer struct {
	contender func(path string) Contender
	close     func() error
}

func (p peer) Contender(path string) (Contender, error) { return p.contender(path), nil }
func (p peer) Close() error                             { return p.close() }

// The function local puts a mutex in front of a lock, as a team does to have one contender for each process. The lock is dialed for one
// goroutine. Therefore it has one connection or session, and only one path is in use at a time.
func local(dial Dial) Dial {
	return func(ctx context.Context, o Options) (Locker, error) {
		o.Goroutines = 1
		behind, err := dial(ctx, o)
		if err != nil {
			return nil, err
		}
		return localLocker{behind, new(sync.Mutex)}, nil
	}
}

type localLocker struct {
	Locker
	mutex *sync.Mutex
}

func (l localLocker) Contender(path string) (Contender, error) {
	acquire, err := l.Locker.Contender(path)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, weight int64) (Hold, error) {
		l.mutex.Lock()
		err := ctx.Err() // ctx may have ended during the wait for the mutex, which does not look at ctx
		if err == nil {
			var h Hold
			if h, err = acquire(ctx, weight); err == nil {
				return localHold{h, l.mutex}, nil
			}
		}
		l.mutex.Unlock()
		return nil, err
	}, nil
}

type localHold struct {
	Hold
	mutex *sync.Mutex
}

func (h localHold) Release() error {
	defer h.mutex.Unlock()
	return h.Hold.Release()
}

// A plain makes a hold of a function that releases a lock. Such a hold has no token and reports no loss.
type plain func() error

func (plain) Token() int64          { return 0 }
func (plain) Lost() <-chan struct{} { return nil }
func (plain) Err() error            { return nil }
func (p plain) Release() error      { return p() }
