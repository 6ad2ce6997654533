package zknode

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// A Lock is a lock path as one client uses it. Each acquisition is a separate contender with its own znode. Therefore two acquisitions of
// one Lock exclude each other like acquisitions of different processes. The methods may be called concurrently.
//
// If many goroutines of one process want the same lock, use package tier: it queues them locally behind a single node.
type Lock struct {
	client *Client
	path   string // on the server
	of     string // the path of the semaphore to which this lock belongs, on the server; "" if it belongs to none
	mode   second.Mode
	acl    []zk.ACL
	data   []byte        // the content of its nodes; if it is nil, the content is a description of the process
	linger time.Duration // for how long the lock may linger, as written to its nodes
}

// A LockOption is an option of one lock. [Client.Lock] accepts it, and the claims of a [Tier] accept it as well.
type LockOption interface{ apply(*Lock) }

// NodeACL sets the ACL for the nodes of the lock, and for parents that have to be created for it. It replaces the client's ACL. It has to
// give this client the permissions that [WithACL] lists.
func NodeACL(acl []zk.ACL) LockOption {
	return lockOption(func(l *Lock) { l.acl = slices.Clone(acl) })
}

// maxData keeps a create well below a megabyte, because a server drops the connection for a larger request.
const maxData = 512 << 10

// NodeData sets the content of the lock's nodes. By default the content is a description of the process. The content may have up to 512
// KiB, and should be UTF-8, because other libraries show it to people.
func NodeData(data []byte) LockOption {
	return lockOption(func(l *Lock) { l.data = append([]byte{}, data...) }) // the copy is never nil, even if data is
}

// Lock returns the lock at path. The path and its parents are created when the lock is first acquired. If path or an option is wrong, the
// error says why; see [ValidatePath].
func (c *Client) Lock(path string, opts ...LockOption) (*Lock, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	path = c.chroot + path
	if err := ValidatePath(path); err != nil { // with the chroot it may be too long
		return nil, err
	}
	l := &Lock{client: c, path: path, acl: c.options.acl, data: c.options.data}
	for _, opt := range opts {
		opt.apply(l)
	}
	var err error
	switch {
	case len(l.acl) == 0:
		err = fmt.Errorf("empty ACL: %w", zk.ErrInvalidACL)
	case len(l.data) > maxData:
		err = fmt.Errorf("data of %d bytes: want at most %d", len(l.data), maxData)
	default:
		return l, nil
	}
	return nil, fmt.Errorf("zklock: lock %s: %w", l.Path(), err)
}

// equal reports whether the nodes of both locks would be the same: same client, path, mode, ACL and content.
func (l *Lock) equal(other *Lock) bool {
	return l.client == other.client && l.path == other.path && l.mode == other.mode && l.linger == other.linger &&
		slices.Equal(l.acl, other.acl) &&
		(l.data == nil) == (other.data == nil) && bytes.Equal(l.data, other.data)
}

// contentOf returns the content of the znode with index i, for a node that is created now. kazoo shows the content of the second znode to
// users, and fails if that content is not UTF-8. The second znode therefore always has a description.
func (l *Lock) contentOf(i int) []byte {
	if l.data != nil && i == 0 {
		return l.data
	}
	return l.client.content.Now(l.linger)
}

// The method creates returns the operations that create znodes whose names begin with the prefixes.
func (l *Lock) creates(prefixes []string) []any {
	var ops []any
	for i, prefix := range prefixes {
		ops = append(ops, &zk.CreateRequest{
			Path: l.path + "/" + prefix, Data: l.contentOf(i), Acl: l.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// queue returns the path in the form that the tools of operators use.
func (l *Lock) queue() zkqueue.Path { return zkqueue.Path{Conn: l.client.link.Conn, Name: l.path} }

// Path returns the path of the lock.
func (l *Lock) Path() string { return strings.TrimPrefix(l.path, l.client.chroot) }

// Acquire queues for the lock and blocks until it is held, ctx ends, or an error occurs that retrying cannot fix. Examples are a missing
// permission and [ErrSequenceExhausted]. Acquire retries while ZooKeeper cannot be reached. If the session expires during the wait, the
// place in the queue is lost, and Acquire starts again at the tail.
//
// If ctx ends, the error wraps the cause of ctx. If ZooKeeper cannot be reached, the error also wraps the reason. After any error no node
// of this acquisition stays in the queue: it is deleted, in the background if necessary, or ends with its session. Parents that Acquire has
// created, but not used, are deleted in the same way.
//
// Without contention, Acquire takes one round trip, or two if the path is missing. After the release of the last node ahead, the grant
// takes one more round trip.
func (l *Lock) Acquire(ctx context.Context) (*Node, error) {
	return run(ctx, l.attempt(new(second.Wait)), "acquire "+l.path, (*attempt).acquire, (*Node).Release)
}

// TryAcquire is like Acquire, but does not wait for other holders. TryAcquire returns [ErrLocked] if another contender has the lock or
// waits for it. It may also return [ErrLocked] if another contender has just left, because a server may lag behind. To find this out takes
// one read. If the queue is empty, a second round trip creates a node; if another client was faster, TryAcquire deletes the node again.
// While ZooKeeper cannot be reached, and while a lease that has ended is not renewed, TryAcquire fails at once with an error that wraps
// [zk.ErrNoServer].
func (l *Lock) TryAcquire(ctx context.Context) (*Node, error) {
	a := l.attempt(new(second.Wait))
	a.once = true
	return run(ctx, a, "try "+l.path, (*attempt).try, (*Node).Release)
}

// requeue gives up old, a node of the same path, and queues for the lock again. A single write deletes old and creates a new node at the
// tail of the queue. If the sequence numbers are nearly used up, it takes two writes. Then requeue waits like [Lock.Acquire], with the same
// results. Whatever the result is, old is given up; await waits for that.
func (l *Lock) requeue(ctx context.Context, old *Node, w *second.Wait) (*Node, error) {
	if old.spent.Swap(true) {
		return nil, second.ErrReleased
	}
	old.leave()
	a := l.attempt(w)
	if old.life.Err() != nil || old.stepAside() { // if the path has to be deleted and created again, Acquire waits for that
		old.discard()
		return run(ctx, a, "acquire "+l.path, (*attempt).acquire, (*Node).Release)
	}
	a.old.Store(old)
	n, err := run(ctx, a, "requeue "+l.path, (*attempt).acquire, (*Node).Release)
	if old := a.old.Swap(nil); old != nil {
		old.discard()
	}
	return n, err
}
