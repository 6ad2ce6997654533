// Package inspect looks at locks on ZooKeeper from outside, without queueing: which there are,
// who holds them and who waits, for whom, and what may be wrong. It only reads; a look at a
// queue is not one of a single instant.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/zklock"
)

// A Queue is what one look at a lock path tells. Its names in JSON are for programs to rely on.
type Queue struct {
	Path       string      `json:"path"`
	Exists     bool        `json:"exists"`
	At         time.Time   `json:"at"`            // of the look, by this machine's clock
	Next       int64       `json:"next_sequence"` // number of the next node
	Contenders []Contender `json:"contenders"`
	Others     []Other     `json:"others"`
	Semaphore  *Semaphore  `json:"semaphore,omitempty"` // null if there is none at the path

	born  int64 // transaction that made the path
	stale bool  // its nodes have to be read again
}

// An Other is a child of a lock path that is no contender.
type Other struct {
	Name      string    `json:"name"`
	Readable  bool      `json:"readable"`
	Ephemeral bool      `json:"ephemeral"`
	Since     time.Time `json:"since,omitzero"`
	Children  int       `json:"children"`
}

// parallel is how many reads are under way at a time.
const parallel = 16

// Look reads a lock path and all that is below it. A path that does not exist is an empty queue.
func Look(ctx context.Context, client *zklock.Client, path string) (*Queue, error) {
	q, others, err := glance(ctx, client, path, nil)
	if err != nil {
		return nil, err
	}
	if q.Semaphore, err = lookAtSemaphore(ctx, client, path, others); err != nil {
		return nil, err
	}
	if q.Semaphore != nil {
		others = slices.DeleteFunc(others, ofSemaphore)
	}
	q.Others = make([]Other, len(others))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, name := range others {
		group.Go(func() (err error) {
			q.Others[i], err = readOther(ctx, client, path, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	q.Others = slices.DeleteFunc(q.Others, func(o Other) bool { return o.Name == "" })
	return q, nil
}

// glance reads a queue, but of other children the names only. Names of nodes do not recur while the
// path lives, and nodes do not change unless somebody asks for the lock, so those that were known
// before are not read again if nothing says so.
func glance(ctx context.Context, client *zklock.Client, path string, before *Queue) (q *Queue, others []string, err error) {
	q = &Queue{Path: path, At: time.Now(), Contenders: []Contender{}, Others: []Other{}}
	names, stat, err := client.Children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return q, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	q.Exists, q.born, q.Next = true, stat.Czxid, nextSequence(stat)
	queue, others := zklock.ParseQueue(names)
	known := make(map[string]zklock.Contender)
	if before != nil && before.born == q.born {
		for _, c := range before.Contenders {
			known[c.Node+c.Pair] = c.read
		}
	}
	if err := fill(ctx, client, path, queue, known, before != nil && before.stale); err != nil {
		return nil, nil, err
	}
	queue = slices.DeleteFunc(queue, func(c zklock.Contender) bool { return c.Node == "" })
	q.Contenders = append(q.Contenders, Describe(queue, q.At)...)
	return q, slices.Sorted(slices.Values(others)), nil
}

// fill reads the nodes of a queue, those that are known only if they are stale. Those that have gone
// since lose their names.
func fill(ctx context.Context, client *zklock.Client, path string, queue []zklock.Contender, known map[string]zklock.Contender, stale bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, c := range queue {
		k, ok := known[c.Node+c.Pair]
		if ok && !stale {
			queue[i] = k
			continue
		}
		group.Go(func() error {
			read, err := client.Inspect(ctx, path, c)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if ok && read.Asked { // in place of what it said of itself
				k.Asked = true
				read = k
			}
			queue[i] = read
			return nil
		})
	}
	return group.Wait()
}

// readOther returns nothing of a child that has gone since.
func readOther(ctx context.Context, client *zklock.Client, path, name string) (Other, error) {
	_, stat, err := client.Get(ctx, join(path, name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Other{}, nil
	case errors.Is(err, zk.ErrNoAuth):
		return Other{Name: name}, nil
	case err != nil:
		return Other{}, err
	}
	return Other{
		Name: name, Readable: true, Ephemeral: stat.EphemeralOwner != 0,
		Since: time.UnixMilli(stat.Ctime), Children: int(stat.NumChildren),
	}, nil
}

// nextSequence is the number that the next sequential node below a path gets. A server counts
// creations, and tells twice that count less the children there are, in 32 bits.
func nextSequence(path *zk.Stat) int64 {
	return int64(uint32(path.Cversion)+uint32(path.NumChildren)) / 2
}

// Holders returns all that have the lock: several if they read, or do not exclude each other.
func (q *Queue) Holders() (holders []*Contender) {
	if q == nil {
		return nil
	}
	for i := range q.Contenders {
		if c := &q.Contenders[i]; c.State == Holds {
			holders = append(holders, c)
		}
	}
	return holders
}

// Waiting returns how many contenders do not have the lock, as far as names tell.
func (q *Queue) Waiting() int { return len(q.Contenders) - len(q.Holders()) }

// Holder returns who has had the lock for longest, nil if nobody has it, or if q is nil.
func (q *Queue) Holder() *Contender {
	if q == nil || len(q.Contenders) == 0 {
		return nil
	}
	return &q.Contenders[0]
}

// Kinds returns what sorts of locks share the path.
func (q *Queue) kinds() []sort {
	sorts := make(map[sort]bool)
	for _, c := range q.Contenders {
		sorts[sortOf(c.read)] = true
	}
	return slices.SortedFunc(maps.Keys(sorts), sort.compare)
}

func join(path, name string) string {
	if path == "/" {
		return path + name
	}
	return fmt.Sprintf("%s/%s", path, name)
}
