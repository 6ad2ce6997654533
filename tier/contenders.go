package tier

import (
	"context"
	"time"
)

// A Contender is one process in the queue for a lock. What the store does not tell, or only to
// those with more permissions, is zero.
type Contender struct {
	ID    string    // its name in the queue, such as that of the node in ZooKeeper
	Token int64     // fencing token it has as holder
	Since time.Time // when it queued, by ZooKeeper's clock; on etcd, by that of its process

	// What the process says of itself; zero for those of other libraries.
	Host  string
	PID   int
	Label string

	// Linger is for how long the process may keep the lock while nobody holds it. Lingering
	// reports that it does so now, which only that process knows: others see false.
	Linger    time.Duration
	Lingering bool
}

// Contenders returns the queue of processes for the lock, the holder first. A lock that was
// never used has none. It waits for a store that cannot be reached until ctx is done; the
// error then wraps its cause.
func (m *Mutex) Contenders(ctx context.Context) ([]Contender, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	queue, err := m.claim.Contenders(ctx)
	kept := m.registry.lingering(m.path)
	var contenders []Contender
	for _, q := range queue {
		c := Contender(q)
		c.Lingering = kept != nil && kept.Token() == c.Token
		contenders = append(contenders, c)
	}
	return contenders, err
}
