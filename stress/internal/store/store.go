// Package store lists the stores that stress can test. A [Store] says how to start its servers, how to dial a lock, and what an observer
// can see of the locks. The rest of stress is the same for all stores.
package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/trace"
	"github.com/tierlock/tierlock/tier"
)

// Store is a service in which locks can be kept.
type Store struct {
	Name  string // the name in a task and for the flag -store
	Title string // the name in texts for people
	// Locks has the kinds of locks of this store, by the names that the flag -lock accepts.
	Locks map[string]Kind
	// Baselines are the mutexes of other libraries, with which tier's mutex is compared. The first one is the default. Most options have no
	// effect on them.
	Baselines []string
	// Start starts private servers. Start returns [ErrNoServer] if no server can be started.
	Start func(ctx context.Context, shape Shape) (*Cluster, error)
	// URL returns the URL of the servers for the command tierlock. URL is nil if the command does not know the store.
	URL func(servers []string) string
	// Observe opens a session for the coordinator. Observe returns [ErrNoServer] if the servers do not answer.
	Observe func(ctx context.Context, place Place) (Observer, error)
	// HastyTimeout draws a session timeout that hasty servers accept.
	HastyTimeout func(random *rand.Rand) time.Duration
	// GracePeriod says that after a restart or a fail-over, a server may grant nothing for as long as a session timeout.
	GracePeriod bool
	// Brittle says that the locks of a connection end at the server as soon as the connection is lost. A holder may learn of that a moment
	// too late, and then two processes may believe that they have the lock.
	Brittle bool
	// Guarded makes a guarded write under the lock at path, and calls work within its transaction. late is how many writes of earlier holders
	// were committed between the begin and the end of work. Guarded is nil if there are no guarded writes here.
	Guarded func(ctx context.Context, hold tier.Guard, path string, token int64, work func()) (late int64, err error)
	// Model says how the store differs from the model against which traces are checked.
	Model trace.Rules
}

var all = []*Store{ZooKeeper, Etcd, Postgres, PostgresAdvisory, Redis, MySQL}

// ErrNoServer is the error if no server is available. Its text names the store.
var ErrNoServer = errors.New("no server to be had")

// none is an ErrNoServer that names a store by its title.
type none string

func (n none) Error() string      { return fmt.Sprintf("no %s to be had", string(n)) }
func (none) Is(target error) bool { return target == ErrNoServer }

// Names returns the names of all stores.
func Names() (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// Named returns the store with this name.
func Named(name string) (*Store, error) {
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%q: no such store", name)
}

// BaselinesOf returns the locks with which a lock of this store can be compared. A reader/writer lock is compared with tier's mutex.
func (s *Store) BaselinesOf(lock string) []string {
	switch s.Locks[lock].Sort {
	case ReadersWriter:
		return []string{"mutex"}
	case Semaphore:
		return nil
	}
	return s.Baselines
}

// Lease returns how long a holder may believe in its hold if the store does not answer. That is the session timeout without the default
// margin, which is a third.
func Lease(timeout time.Duration) time.Duration { return timeout - timeout/3 }

// hastyTimeout draws a timeout for stores that accept any timeout.
func hastyTimeout(random *rand.Rand) time.Duration {
	return 2*time.Second + time.Duration(random.IntN(2000))*time.Millisecond
}

// MarshalText returns the name of the store, for tasks of workers.
func (s *Store) MarshalText() ([]byte, error) { return []byte(s.Name), nil }

// UnmarshalText sets s to the store with this name.
func (s *Store) UnmarshalText(name []byte) error {
	known, err := Agent, error(nil)
	if string(name) != Agent.Name {
		known, err = Named(string(name))
	}
	if err == nil {
		*s = *known
	}
	return err
}

// A Cluster is the private servers of a run.
type Cluster struct {
	*child.Ensemble
	// Isolate cuts a server off from the other servers until Heal is called. Both are nil if the store has no means for that.
	Isolate func(*child.Server)
	Heal    func()
	// Replace kills the leader, promotes another member, and starts the old leader again as a follower of the new one. Replace is nil if
	// the servers elect a leader themselves.
	Replace func(context.Context) error
	// Revokes says that a leader that was paused for long may revoke leases that its successor has renewed. Other processes then get these
	// locks, and the holders do not notice. The documentation of the store's package says so.
	Revokes bool
}

// Shape says what the private servers of a run have to be like.
type Shape struct {
	Members int
	// Hasty servers let sessions end within a few seconds. They also do not sync their log, because a kill -9 does not lose data that the
	// kernel has.
	Hasty bool
}
