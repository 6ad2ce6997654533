// Package zkinspect reads locks in ZooKeeper: the locks of tierlock, and locks of other libraries on the same paths. It only reads. The
// result of reading a queue is not a snapshot of one instant.
package zkinspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// A Reader reads locks through a client. Each glance costs the ensemble one read for each lock, and three more reads for a semaphore. It
// also costs one read for each new node in a queue or among the permits.
type Reader struct{ Client *zknode.Client }

// ask calls question until it gets a final answer; see [zknode.Ask].
func ask[T any](ctx context.Context, client *zknode.Client, what, path string, question func(zkqueue.Path) (T, error)) (T, error) {
	answer, err := zknode.Ask(ctx, client, what, path, question)
	if errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrInvalidPath) {
		err = &inspect.Refusal{Err: err} // a retry would get the same answer
	}
	return answer, err
}

// parallel is the number of reads that are in progress at the same time.
const parallel = 16

// Glance reads the queue of a lock.
func (r Reader) Glance(ctx context.Context, path string, before *inspect.Queue) (*inspect.Queue, error) {
	q, _, err := r.glanceAtAll(ctx, path, before)
	return q, err
}

// glanceAtAll reads a queue and a semaphore. Of other children it reads only the names.
func (r Reader) glanceAtAll(ctx context.Context, path string, before *inspect.Queue) (*inspect.Queue, []string, error) {
	q, others, err := r.glance(ctx, path, before)
	if err != nil {
		return nil, nil, err
	}
	semaphore, m, err := r.glanceAtSemaphore(ctx, path, others, memoryOf(before))
	if err != nil {
		return nil, nil, err
	}
	if semaphore != nil {
		others = slices.DeleteFunc(others, ofSemaphore)
	}
	m.queue = memoryOf(q).queue
	q.Semaphore, q.Memory = semaphore, m
	return q, others, nil
}

// A memory has the results of one glance that the next glance uses again.
type memory struct {
	queue  []zkqueue.Contender
	turn   *inspect.Queue      // the result of the glance at the queue for permits
	leases []zkqueue.Contender // the permits in use; their names are never used again
}

func memoryOf(q *inspect.Queue) (m memory) {
	if q != nil {
		m, _ = q.Memory.(memory)
	}
	return m
}

// Look reads a lock path and everything below it. If the path does not exist, the queue is empty. Look sends a sync first, because this
// server may lag behind the server of an earlier read.
func (r Reader) Look(ctx context.Context, path string) (*inspect.Queue, error) {
	_, err := ask(ctx, r.Client, "sync", path, func(p zkqueue.Path) (string, error) { return p.Conn.Sync(p.Name) })
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	q, others, err := r.glanceAtAll(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	q.Others = make([]inspect.Other, len(others))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, name := range others {
		group.Go(func() (err error) {
			q.Others[i], err = r.readOther(ctx, path, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	q.Others = slices.DeleteFunc(q.Others, func(o inspect.Other) bool { return o.Name == "" })
	return q, nil
}

// glance reads a queue. Of other children it reads only the names. While the path exists, names are not used again, and a node changes only
// when another process asks for the lock. Therefore known nodes are read again only if there is a sign of a change.
func (r Reader) glance(ctx context.Context, path string, before *inspect.Queue) (q *inspect.Queue, others []string, err error) {
	q = &inspect.Queue{Path: path, At: time.Now(), Contenders: []inspect.Contender{}, Others: []inspect.Other{}}
	names, stat, err := r.childrenOf(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return q, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	q.Exists, q.Born, q.Next = true, stat.Czxid, nextSequence(stat)
	queue, others := zkqueue.Parse(names)
	known := make(map[string]zkqueue.Contender)
	if before != nil && before.Born == q.Born {
		for _, c := range memoryOf(before).queue {
			known[c.Node+c.Pair] = c
		}
	}
	if err := r.fill(ctx, path, queue, known, before != nil && before.Stale); err != nil {
		return nil, nil, err
	}
	queue = slices.DeleteFunc(queue, func(c zkqueue.Contender) bool { return c.Node == "" })
	q.Memory = memory{queue: queue}
	q.Contenders = append(q.Contenders, Describe(queue, q.At)...)
	return q, slices.Sorted(slices.Values(others)), nil
}

// The method fill reads the nodes of a queue. It reads known nodes only if stale is true. Nodes that were deleted in the meantime get an
// empty name.
func (r Reader) fill(ctx context.Context, path string, queue []zkqueue.Contender, known map[string]zkqueue.Contender, stale bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, c := range queue {
		k, ok := known[c.Node+c.Pair]
		if ok && !stale {
			queue[i] = k
			continue
		}
		group.Go(func() error {
			read, err := r.contenderAt(ctx, path, c)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			if ok && read.Asked { // the request has replaced the description, so the known description is kept
				k.Asked = true
				read = k
			}
			queue[i] = read
			return nil
		})
	}
	return group.Wait()
}

// readOther reads a child that is no contender. If the child was deleted in the meantime, the result is empty.
func (r Reader) readOther(ctx context.Context, path, name string) (inspect.Other, error) {
	n, err := r.nodeAt(ctx, join(path, name))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return inspect.Other{}, nil
	case errors.Is(err, zk.ErrNoAuth):
		return inspect.Other{Name: name}, nil
	case err != nil:
		return inspect.Other{}, err
	}
	return inspect.Other{
		Name: name, Readable: true, Ephemeral: n.stat.EphemeralOwner != 0,
		Since: time.UnixMilli(n.stat.Ctime), Children: int(n.stat.NumChildren),
	}, nil
}

// nextSequence returns the sequence number of the next sequential node below a path. It is computed from the cversion of the path. The
// cversion is twice the number of creations minus the number of children, in 32 bits.
func nextSequence(path zk.Stat) int64 {
	return int64(uint32(path.Cversion)+uint32(path.NumChildren)) / 2
}

// A node is the result of a read of one node.
type node struct {
	data     []byte
	children []string
	stat     zk.Stat
}

// nodeAt reads the node at a path.
func (r Reader) nodeAt(ctx context.Context, path string) (node, error) {
	return ask(ctx, r.Client, "get", path, func(p zkqueue.Path) (node, error) {
		data, stat, err := p.Conn.Get(p.Name)
		if err != nil {
			return node{}, zkqueue.Lacking("READ", path, err)
		}
		return node{data: data, stat: *stat}, nil
	})
}

// childrenOf lists the names of the children of a path, in no particular order, and reads the stat of the path.
func (r Reader) childrenOf(ctx context.Context, path string) ([]string, zk.Stat, error) {
	n, err := ask(ctx, r.Client, "children of", path, func(p zkqueue.Path) (node, error) {
		children, stat, err := p.Conn.Children(p.Name)
		if err != nil {
			return node{}, zkqueue.Lacking("READ", path, err)
		}
		return node{children: children, stat: *stat}, nil
	})
	return n.children, n.stat, err
}

// contenderAt reads the node of a contender below a path. For a deleted node the error is [zk.ErrNoNode]. If the node may not be read,
// contenderAt returns no error.
func (r Reader) contenderAt(ctx context.Context, path string, c zkqueue.Contender) (zkqueue.Contender, error) {
	return ask(ctx, r.Client, "node "+c.Node+" of", path, func(p zkqueue.Path) (zkqueue.Contender, error) {
		read := c
		err := p.Read(&read)
		return read, err
	})
}

// The function kinds returns the sorts of locks that share the path.
func kinds(q *inspect.Queue) []sort {
	sorts := make(map[sort]bool)
	for i := range q.Contenders {
		sorts[sortOf(&q.Contenders[i])] = true
	}
	return slices.SortedFunc(maps.Keys(sorts), sort.compare)
}

func join(path, name string) string {
	if path == "/" {
		return path + name
	}
	return fmt.Sprintf("%s/%s", path, name)
}
