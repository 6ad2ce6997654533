package zklock

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
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
	mode   second.Mode
	acl    []zk.ACL
	data   []byte        // of its nodes; nil for a description of the process
	linger time.Duration // as its nodes say
}

// A LockOption is for one lock: [Client.Lock] takes it, and so does the method Mutex of a registry
// of package tier.
type LockOption func(*Lock) error

// ForMutex makes a LockOption one of those that the method Mutex of a registry takes.
func (LockOption) ForMutex() {}

// NodeACL sets another ACL for the nodes of the lock, and for parents that have to be created for
// it, than the client's. It has to give this client what [WithACL] says.
func NodeACL(acl []zk.ACL) LockOption {
	return func(l *Lock) error {
		if len(acl) == 0 {
			return fmt.Errorf("empty ACL: %w", zk.ErrInvalidACL)
		}
		l.acl = slices.Clone(acl)
		return nil
	}
}

// maxData keeps a create well below the megabyte at which a server drops the
// connection.
const maxData = 512 << 10

// NodeData sets the content of the lock's nodes, instead of a description of the process; at
// most 512 KiB. It should be UTF-8: other libraries show it to people.
func NodeData(data []byte) LockOption {
	return func(l *Lock) error {
		if len(data) > maxData {
			return fmt.Errorf("data of %d bytes: more than %d", len(data), maxData)
		}
		l.data = append([]byte{}, data...) // not nil
		return nil
	}
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
	l := &Lock{client: c, path: path, acl: c.options.acl}
	for _, opt := range opts {
		if err := opt(l); err != nil {
			return nil, fmt.Errorf("zklock: lock %s: %w", l.Path(), err)
		}
	}
	return l, nil
}

// equal reports whether the nodes of both locks would be alike: same client, path, mode, ACL
// and content.
func (l *Lock) equal(other *Lock) bool {
	return l.client == other.client && l.path == other.path && l.mode == other.mode && l.linger == other.linger &&
		slices.Equal(l.acl, other.acl) &&
		(l.data == nil) == (other.data == nil) && bytes.Equal(l.data, other.data)
}

// content is that of a node created now.
func (l *Lock) content() []byte {
	if l.data != nil {
		return l.data
	}
	return l.describe()
}

// describe is the content that says who made a node.
func (l *Lock) describe() []byte { return l.client.description.encode(l.linger) }

// Path returns the path of the lock.
func (l *Lock) Path() string { return strings.TrimPrefix(l.path, l.client.chroot) }

// Acquire queues for the lock and waits until it is held, ctx is done, or an error
// occurs that retrying cannot fix, such as missing permissions or
// [ErrSequenceExhausted]. An unreachable ZooKeeper is not such an error. If the session
// expires while waiting, the place in the queue is lost and Acquire starts again at the
// tail.
//
// When ctx is done, the error wraps its cause, and the reason if ZooKeeper cannot be
// reached. After any error no node of this acquisition stays in the queue: it is
// deleted, if need be in the background, or dies with its session. The same goes for
// parents that it has created and not used.
//
// If nobody else is there, it takes one round trip, or two where the path is missing, and
// so does the last part of a wait: from the release of the last node ahead to the grant.
func (l *Lock) Acquire(ctx context.Context) (*Node, error) { return l.acquire(ctx, nil) }

func (l *Lock) acquire(ctx context.Context, w *second.Wait) (*Node, error) {
	n, err := l.start(ctx, w, (*attempt).acquire)
	if err != nil {
		return nil, fmt.Errorf("zklock: acquire %s: %w", l.path, err)
	}
	return n, nil
}

// TryAcquire is Acquire without waiting for others: if somebody has the lock or queues
// for it, it returns [ErrLocked], and maybe also if somebody has just gone: a server may lag.
// That costs one read; only if nobody is seen, a node is created (and deleted again if
// somebody was faster), which takes a second round trip.
// While ZooKeeper cannot be reached it fails at once, with an error wrapping
// [zk.ErrNoServer], and so it does, with another error, as long as a lease that has run
// out is not renewed.
func (l *Lock) TryAcquire(ctx context.Context) (*Node, error) {
	if err := l.client.Err(); err != nil {
		return nil, fmt.Errorf("zklock: try %s: %w", l.path, err)
	}
	n, err := l.start(ctx, nil, (*attempt).try)
	if err != nil {
		return nil, fmt.Errorf("zklock: try %s: %w", l.path, err)
	}
	return n, nil
}

// requeue gives old, a node of the same path, up and queues for the lock again, in one
// transaction (but on a worn path): old goes and a new node joins the tail of the queue, at
// the price of a single write. It then waits like [Lock.Acquire], with the same results. Old
// is given up in any case; awaitRelease waits for that.
func (l *Lock) requeue(ctx context.Context, old *Node, w *second.Wait) (*Node, error) {
	if old.spent.Swap(true) {
		return nil, ErrReleased
	}
	loss := old.leave()
	if loss != nil || old.stepAside() { // then Acquire waits until the path is new
		old.startDelete(loss)
		old.awaitRelease() // or the new node would queue behind it
		return l.acquire(ctx, w)
	}
	var begun atomic.Bool // whoever sets it sees to the end of old
	n, err := l.start(ctx, w, func(a *attempt) (*Node, error) {
		if begun.Swap(true) {
			return nil, context.Cause(a.ctx)
		}
		return a.requeue(old)
	})
	if err != nil {
		if !begun.Swap(true) {
			old.startDelete(nil)
			old.awaitRelease() // whoever comes next would queue behind it
		}
		return nil, fmt.Errorf("zklock: requeue %s: %w", l.path, err)
	}
	return n, nil
}
