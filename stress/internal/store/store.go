// Package store is what stress knows of the services that keep the locks' queues: how
// servers are started, how a lock is dialled, and what can be seen from outside. Each
// [Store] is one of them; the rest of stress does not know which.
package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// Store is a service that locks can be kept in.
type Store struct {
	Name  string // in a task, and for -store
	Title string // for people
	// Locks are the kinds of lock by the name that -lock gives them.
	Locks map[string]Kind
	// Baselines are the mutexes that tier's is compared with, the first one unless another
	// is asked for. They know no option.
	Baselines []string
	// Start starts private servers. Its error is [ErrNoServer] if that is not possible.
	Start func(ctx context.Context, shape Shape) (*Cluster, error)
	// Observe opens a session. Its error is [ErrNoServer] if the servers do not answer.
	Observe func(ctx context.Context, place Place) (Observer, error)
	// HastyTimeout is a session timeout that hasty servers take.
	HastyTimeout func(random *rand.Rand) time.Duration
	// Grace period says that a server that begins anew, or in another's place, may give nobody
	// a lock for a session timeout.
	GracePeriod bool
	// Brittle says that a connection that breaks ends its locks at the server at once, which
	// a holder may hear of a moment too late. Nothing is promised then.
	Brittle bool
	// Model is how the store differs from the one that traces are held against.
	Model trace.Rules
}

var all = []*Store{ZooKeeper, Etcd, Postgres, PostgresAdvisory, Redis}

// ErrNoServer says that there is no server to be had; the text says of which store.
var ErrNoServer = errors.New("no server to be had")

// none is ErrNoServer of the store with this title.
type none string

func (n none) Error() string      { return fmt.Sprintf("no %s to be had", string(n)) }
func (none) Is(target error) bool { return target == ErrNoServer }

// Names lists all stores.
func Names() (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// Named returns the store of that name.
func Named(name string) (*Store, error) {
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%q: no such store", name)
}

// BaselinesOf are the locks that one can be compared with: for a reader/writer lock the
// mutex of package tier.
func (s *Store) BaselinesOf(lock string) []string {
	switch s.Locks[lock].Sort {
	case ReadersWriter:
		return []string{"mutex"}
	case Semaphore:
		return nil
	}
	return s.Baselines
}

// Lease is the part of a session timeout for which a holder may believe in its hold without
// hearing from the store: by default a third is no part of it.
func Lease(timeout time.Duration) time.Duration { return timeout - timeout/3 }

// hastyTimeout is for stores that take any.
func hastyTimeout(random *rand.Rand) time.Duration {
	return 2*time.Second + time.Duration(random.IntN(2000))*time.Millisecond
}

// MarshalText and UnmarshalText let a task name its store.
func (s *Store) MarshalText() ([]byte, error) { return []byte(s.Name), nil }

// UnmarshalText makes s the store of that name.
func (s *Store) UnmarshalText(name []byte) error {
	known, err := Named(string(name))
	if err == nil {
		*s = *known
	}
	return err
}

// Cluster is private servers.
type Cluster struct {
	*child.Ensemble
	// Isolate cuts a server off from the others, until Heal; both are nil where that cannot
	// be done.
	Isolate func(*child.Server)
	Heal    func()
	// Replace kills the leader, has another member lead, and starts it again to follow that
	// one; nil where the servers elect a leader themselves.
	Replace func(context.Context) error
	// Revokes says that a leader that was stopped for long revokes leases that its successor
	// has renewed: such locks are given away unnoticed, as the store's package says.
	Revokes bool
}

// Shape is what private servers are to be like.
type Shape struct {
	Members int
	// Hasty ones let sessions end within a few seconds, and do not sync their log: what
	// kill -9 leaves to the kernel is not lost.
	Hasty bool
}
