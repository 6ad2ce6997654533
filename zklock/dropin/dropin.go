// Package dropin is go-zookeeper's zk.Lock on two tiers: the same methods, made in the same
// way from a connection that the program already has. A program moves by changing the import
// of NewLock, one process at a time: the two locks exclude each other.
package dropin

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

// A Lock has the methods of zk.Lock, with one znode per process. While a fleet moves, a process
// that has moved keeps at least its share of the turns: the queue is fair to znodes, and a
// process with zk.Lock has one per goroutine, so the one znode of a process that has moved brings
// a turn for each of its goroutines that waits.
//
// As with zk.Lock, a Lock is a handle for one user at a time: each goroutine makes its
// own. What differs, on purpose:
//
//   - All handles of one connection and path share a gate and a node.
//   - While another process waits, the lock may still go to other handles of the same
//     connection: to all that waited when the node was granted, and to any for the default
//     budget of [tier.WithHandOff].
//   - A node carries the data and the ACL of the handle that it was created for, even
//     while it is handed on to others.
//   - Locking waits through lost connections and expired sessions, where zk.Lock fails.
//     It fails when the connection is closed, with an error wrapping [tier.ErrClosed] and
//     [zk.ErrClosing], and for errors that retrying cannot fix.
//   - An error leaves no node behind. zk.Lock leaves one that blocks everybody until the
//     session ends.
//   - Unlock always leaves the handle unlocked, and reports once that the lock was lost
//     meanwhile, with an error wrapping [tier.ErrLost] and [zk.ErrNoNode]; zk.Lock repeats
//     zk.ErrNoNode for ever and cannot be locked again. It waits 5 s for the server at
//     most, or 6 s if other handles of the connection want the lock; the node is then
//     deleted in the background.
//   - Children that are no lock nodes are ignored. Each of them makes zk.Lock fail.
//   - Missing parents are created as container nodes, which the server removes when they
//     are empty.
//   - Data of more than 512 KiB is refused.
//   - Paths are checked; see zklock.ValidatePath.
//
// On the program's own connection there is no lease, no notice of loss before Unlock, no
// protection from hung servers, and no way to end a wait but to close the connection. For those
// use zklock.Dial and [tier.Mutex].
type Lock struct {
	locks *tier.Registry
	path  string
	acl   zknode.LockOption
	hold  atomic.Pointer[tier.Hold] // nil while unlocked
}

// A nodeOption is an option for the znodes of one lock.
type nodeOption struct {
	tier.Option
	zknode.LockOption
}

// NewLock returns a handle for the lock at path, over a connection that the caller keeps and
// closes. Nodes get acl, and so do parents that have to be created. A path that cannot be a lock
// is reported by Lock.
func NewLock(conn *zk.Conn, path string, acl []zk.ACL) *Lock {
	return &Lock{locks: registryOf(conn), path: path, acl: zknode.NodeACL(acl)}
}

// Lock is [Lock.LockWithData] without data.
func (l *Lock) Lock() error { return l.LockWithData([]byte{}) }

// LockWithData waits until the lock is held. A handle that holds it already gets
// [zk.ErrDeadlock]. After any other error the handle is unlocked, nothing of it is left
// on the server, and it may be locked again.
func (l *Lock) LockWithData(data []byte) error {
	if l.hold.Load() != nil {
		return zk.ErrDeadlock
	}
	mutex := l.locks.Mutex(l.path, nodeOption{LockOption: l.acl}, nodeOption{LockOption: zknode.NodeData(data)})
	hold, err := mutex.Acquire(context.Background()) // zk.Lock has no context
	if errors.Is(err, tier.ErrClosed) {
		return errors.Join(err, zk.ErrClosing)
	}
	if err != nil {
		return err
	}
	l.hold.Store(hold)
	return nil
}

// Unlock releases the lock, and returns nil if it was ours to the end. If that is not known,
// because the server did not answer in time or the connection was closed, the error wraps
// that of the connection, such as [zk.ErrConnectionClosed] or [zk.ErrNoServer]; a lock whose
// connection has ended may also count as lost. If it was lost, the error wraps [tier.ErrLost]
// and [zk.ErrNoNode]. If the ACL does not let this process delete the node, the error wraps
// [zk.ErrNoAuth]: the node then stays until the session ends, and this process, too, queues
// behind it. A handle that does not hold the lock gets [zk.ErrNotLocked]. After any error the
// handle is unlocked.
//
// It waits for 5 s at most, a third of the session timeout of 15 s that it assumes. If other
// handles of the connection want the lock, it first asks the server whether the lock is still
// ours, unless it heard so within the last quarter of a second, and waits a second for the answer.
func (l *Lock) Unlock() error {
	hold := l.hold.Swap(nil)
	if hold == nil {
		return zk.ErrNotLocked
	}
	err := hold.Release()
	switch {
	case errors.Is(err, tier.ErrClosed): // with the connection
		return errors.Join(err, zk.ErrConnectionClosed)
	case errors.Is(err, tier.ErrLost):
		return errors.Join(err, zk.ErrNoNode)
	}
	return err
}

// registries are those of the connections that NewLock was called with, as long as a
// handle is in use. All sides are weak: the map keeps neither connection nor registry.
var registries = struct {
	mu sync.Mutex // guards the field below
	of map[weak.Pointer[zk.Conn]]weak.Pointer[tier.Registry]
}{of: make(map[weak.Pointer[zk.Conn]]weak.Pointer[tier.Registry])}

func registryOf(conn *zk.Conn) *tier.Registry {
	registries.mu.Lock()
	defer registries.mu.Unlock()
	key := weak.Make(conn)
	if locks := registries.of[key].Value(); locks != nil {
		return locks
	}
	client, _ := zknode.Attach(conn) // it refuses nothing but options
	locks := tier.New(zknode.Tier(client), tier.WithRounds())
	known := weak.Make(locks)
	registries.of[key] = known
	runtime.AddCleanup(locks, func(key weak.Pointer[zk.Conn]) {
		registries.mu.Lock()
		defer registries.mu.Unlock()
		if registries.of[key] == known { // else another registry has come since
			delete(registries.of, key)
		}
	}, key)
	return locks
}
