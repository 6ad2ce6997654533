package tier

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Contender is one process in the queue for a lock, or one that has permits of a semaphore. What
// the store does not tell, or only to those with more permissions, is zero.
type Contender struct {
	ID    string    // its name in the queue, such as that of the node in ZooKeeper
	Token int64     // fencing token it has as holder
	Since time.Time // when it queued, by ZooKeeper's clock; on etcd, by that of its process

	// HeldSince is when the present hold began, if it is one of this process; else zero, as only
	// its process knows. Since says nothing of it: a process keeps its place in the queue while it
	// hands the lock on among its goroutines, so a contender that is old may well be in use for
	// many short holds, and healthy.
	HeldSince time.Time

	// What the process says of itself; zero for those of other libraries. Of a text, the ID included, the first 256 bytes
	// count, "…" stands for more, and what is not plainly printed is spelled out, such as \n and \u202e.
	Host  string
	PID   int
	Label string

	// Linger is for how long the process may keep the lock while nobody holds it. Lingering
	// reports that it does so now, which only that process knows: others see false.
	Linger    time.Duration
	Lingering bool
	// Shared says that it reads, of an [RWMutex]: those that do and have only such before them have
	// the lock together. However many goroutines of a process read, it is one contender.
	Shared bool
	// Asked says that it was asked for the lock, with [Mutex.Revoke], or with Curator's Revoker: nothing
	// is known then of what its process says of itself.
	Asked bool

	// Quarantined says that it is first, and does not have the lock yet: see [QuarantineError].
	Quarantined bool

	// Permits is how many it has of a semaphore: 0 for one in the queue.
	Permits int
	// Of is how many permits there are, 0 if the path does not say.
	Of int
}

// Contenders returns the queue of processes for the lock, the holder first. A lock that was
// never used has none. It waits for a store that cannot be reached until ctx is done; the
// error then wraps its cause.
func (m *Mutex) Contenders(ctx context.Context) ([]Contender, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	queue, err := m.claim.Contenders(ctx)
	ours := m.registry.heldLock(m.lockKey())
	var contenders []Contender
	for _, q := range queue {
		c := contender(q)
		if ours.Token != 0 && ours.Token == c.Token {
			if c.Lingering = ours.Lingering; !c.Lingering {
				c.HeldSince = ours.Since
			}
		}
		contenders = append(contenders, c)
	}
	return contenders, err
}

// Contenders returns the processes that have permits, in the order in which they took the first one that
// they still have, and then the queue of those that wait for some. One that has permits and waits for
// more is in both places. On ZooKeeper a process that has permits is there once, and its token is not known;
// elsewhere it is there for each time that it took some in the store. It is otherwise like
// [Mutex.Contenders].
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	all, err := s.store.Contenders(ctx)
	var contenders []Contender
	for _, q := range all {
		contenders = append(contenders, contender(q))
	}
	return contenders, err
}

func contender(q second.Contender) Contender {
	return Contender{
		ID: q.ID, Token: q.Token, Since: q.Since, Host: q.Host, PID: q.PID, Label: q.Label, Linger: q.Linger,
		Shared: q.Shared, Asked: q.Asked, Quarantined: q.Quarantined, Permits: q.Permits, Of: q.Of,
	}
}
