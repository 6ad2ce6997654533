// Package store knows the stores that stress can test: how their servers are started, how a lock is dialed, and what can be seen from
// outside. Each [Store] is one of them; the rest of stress does not depend on which one.
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

// Store is a service in which locks can be kept.
type Store struct {
	Name  string // in a task, and for -store
	Title string // for people
	// Locks are the kinds of locks, by the names that -lock accepts.
	Locks map[string]Kind
	// Baselines are the mutexes with which tier's is compared. The first one is the default. Baselines ignore most options.
	Baselines []string
	// Start starts private servers. Start returns [ErrNoServer] if no server can be started.
	Start func(ctx context.Context, shape Shape) (*Cluster, error)
	// Observe opens a session for the coordinator. Observe returns [ErrNoServer] if the servers do not answer.
	Observe func(ctx context.Context, place Place) (Observer, error)
	// HastyTimeout draws a session timeout that hasty servers accept.
	HastyTimeout func(random *rand.Rand) time.Duration
	// GracePeriod says that a server may grant nothing for a session timeout after a restart or a fail-over.
	GracePeriod bool
	// Brittle says that the loss of a connection ends its locks at the server at once, of which a holder may learn a moment too late. In
	// this case exclusion is not promised.
	Brittle bool
	// Model says how the store differs from the model against which traces are checked.
	Model trace.Rules
}

var all = []*Store{ZooKeeper, Etcd, Postgres, PostgresAdvisory, Redis, MySQL}

// ErrNoServer says that no server is available; the text names the store.
var ErrNoServer = errors.New("no server to be had")

// none is ErrNoServer for the store with this title.
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

// BaselinesOf returns the locks with which one can be compared. For a reader/writer lock that is the mutex of package tier.
func (s *Store) BaselinesOf(lock string) []string {
	switch s.Locks[lock].Sort {
	case ReadersWriter:
		return []string{"mutex"}
	case Semaphore:
		return nil
	}
	return s.Baselines
}

// Lease returns how long a holder may believe in its hold without an answer from the store: the session timeout less the default margin
// of a third.
func Lease(timeout time.Duration) time.Duration { return timeout - timeout/3 }

// hastyTimeout draws a timeout for stores that accept any.
func hastyTimeout(random *rand.Rand) time.Duration {
	return 2*time.Second + time.Duration(random.IntN(2000))*time.Millisecond
}

// MarshalText returns the name of the store, for tasks of workers.
func (s *Store) MarshalText() ([]byte, error) { return []byte(s.Name), nil }

// UnmarshalText makes s the store with that name.
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
	// Isolate cuts a server off from the others, until Heal. Both are nil if the store cannot do that.
	Isolate func(*child.Server)
	Heal    func()
	// Replace kills the leader, promotes another member, and starts the old one again as its follower. Replace is nil if the servers elect a
	// leader themselves.
	Replace func(context.Context) error
	// Revokes says that a leader that was stopped for long revokes leases which its successor has renewed. Their locks are given away
	// unnoticed; the store's package documents it.
	Revokes bool
}

// Shape says what private servers have to be like.
type Shape struct {
	Members int
	// Hasty servers let sessions end within a few seconds, and do not sync their log, since a kill -9 does not lose what the kernel has.
	Hasty bool
}
