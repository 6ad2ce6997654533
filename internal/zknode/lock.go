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

// A Lock is a lock path, seen by one client. Each acquisition is a contender of its own
// with its own znode, so two acquisitions of one Lock exclude each other like those of
// different processes. It is safe for concurrent use.
//
// Many goroutines of one process that want the same lock are better served by package
// tier, which queues them locally behind a single node.
type Lock struct {
	client *Client
	path   string // on the server
	of     string // likewise, of the semaphore that it is a part of, if any
	mode   second.Mode
	acl    []zk.ACL
	data   []byte        // of its nodes; nil for a description of the process
	linger time.Duration // as its nodes say
}

// A LockOption is for one lock: [Client.Lock] takes it, and so do the claims of its [Tier].
type LockOption interface{ apply(*Lock) }

// NodeACL sets another ACL for the nodes of the lock, and for parents that have to be created for
// it, than the client's. It has to give this client what [WithACL] says.
func NodeACL(acl []zk.ACL) LockOption {
	return lockOption(func(l *Lock) { l.acl = slices.Clone(acl) })
}

// maxData keeps a create well below the megabyte at which a server drops the connection.
const maxData = 512 << 10

// NodeData sets the content of the lock's nodes, instead of a description of the process; at most 512 KiB. NodeData should be UTF-8:
// other libraries show it to people.
func NodeData(data []byte) LockOption {
	return lockOption(func(l *Lock) { l.data = append([]byte{}, data...) }) // not nil
}

// Lock returns the lock at path, which is created with its parents when it is first
// acquired. The error says what is wrong with path, see [ValidatePath], or with an option.
func (c *Client) Lock(path string, opts ...LockOption) (*Lock, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	path = c.chroot + path
	if err := ValidatePath(path); err != nil { // it may be too long
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
		err = fmt.Errorf("data of %d bytes: more than %d", len(l.data), maxData)
	default:
		return l, nil
	}
	return nil, fmt.Errorf("zklock: lock %s: %w", l.Path(), err)
}

// equal reports whether the nodes of both locks would be alike: same client, path, mode, ACL and content.
func (l *Lock) equal(other *Lock) bool {
	return l.client == other.client && l.path == other.path && l.mode == other.mode && l.linger == other.linger &&
		slices.Equal(l.acl, other.acl) &&
		(l.data == nil) == (other.data == nil) && bytes.Equal(l.data, other.data)
}

// contentOf returns the content of the znode with this index, of a node that is created now. kazoo shows users the content of the second
// one, and fails unless that is UTF-8, so it is always a description.
func (l *Lock) contentOf(i int) []byte {
	if l.data != nil && i == 0 {
		return l.data
	}
	return l.client.content.Now(l.linger)
}

// creates are the operations that make the znodes with these prefixes.
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

// queue returns the path in the form that operators' tools use.
func (l *Lock) queue() zkqueue.Path { return zkqueue.Path{Conn: l.client.link.Conn, Name: l.path} }

// Path returns the path of the lock.
func (l *Lock) Path() string { return strings.TrimPrefix(l.path, l.client.chroot) }

// Acquire queues for the lock and blocks until it is held, ctx ends, or an error occurs that retrying cannot fix, such as a missing
// permission or [ErrSequenceExhausted]. An unreachable ZooKeeper is no such error. If the session expires during the wait, the place in the
// queue is lost and Acquire starts again at the tail.
//
// If ctx ends, the error wraps its cause, and the reason if ZooKeeper cannot be reached. After any error no node of this acquisition stays
// in the queue: it is deleted, in the background if necessary, or ends with its session. The same applies to parents that Acquire has
// created and not used.
//
// Uncontended, it takes one round trip, or two if the path is missing. The last part of a wait, from the release of the last node ahead to
// the grant, takes one.
func (l *Lock) Acquire(ctx context.Context) (*Node, error) {
	return run(ctx, l.attempt(new(second.Wait)), "acquire "+l.path, (*attempt).acquire, (*Node).Release)
}

// TryAcquire is like Acquire, but does not wait for other holders. TryAcquire returns [ErrLocked] if another contender has the lock or
// waits for it, and maybe if one has just gone, since a server may lag. That takes one read. If the queue is empty, a second round trip
// creates a node, and deletes it again if another client was faster. While ZooKeeper cannot be reached, and while a lease that has ended
// is not renewed, TryAcquire fails at once with an error that wraps [zk.ErrNoServer].
func (l *Lock) TryAcquire(ctx context.Context) (*Node, error) {
	a := l.attempt(new(second.Wait))
	a.once = true
	return run(ctx, a, "try "+l.path, (*attempt).try, (*Node).Release)
}

// requeue gives up old, a node of the same path, and queues for the lock again, in one transaction: old is deleted and a new node created
// at the tail of the queue with a single write. If sequence numbers are nearly used up, these are two. It then waits like [Lock.Acquire],
// with the same results. Old is given up in any case; await waits for that.
func (l *Lock) requeue(ctx context.Context, old *Node, w *second.Wait) (*Node, error) {
	if old.spent.Swap(true) {
		return nil, second.ErrReleased
	}
	old.leave()
	a := l.attempt(w)
	if old.life.Err() != nil || old.stepAside() { // then Acquire waits until the path is new
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
