// Package dropin replaces go-zookeeper's zk.Lock. It has the same methods, uses the connection of your program, and needs one znode per
// process. Locks of dropin and of zk.Lock exclude each other. Therefore you can migrate one process at a time, by changing the import of
// NewLock.
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

// A Lock has the methods of zk.Lock, with one znode per process. When the znode of a process gets the lock, each goroutine that waits in
// this process gets the lock once. Therefore a migrated process gets as many acquisitions as with zk.Lock, which has one znode per
// goroutine.
//
// As with zk.Lock, a Lock is a handle for one user at a time: each goroutine creates its own Lock. These differences from zk.Lock are
// intentional:
//
//   - All handles of one connection and path share one local queue and one node.
//   - While another process waits, the lock may still go to other handles of the same connection: to all handles that were waiting when the
//     node got the lock, and, within the default budget of [tier.WithHandOff], to any handle.
//   - A node has the data and the ACL of the handle that created it, also while other handles hold the lock.
//   - Lock keeps waiting when a connection is lost or a session expires; in these cases zk.Lock fails. Lock fails when the connection is
//     closed, with an error that wraps [tier.ErrClosed] and [zk.ErrClosing]. Lock also fails with errors that retrying cannot fix.
//   - After an error no node is left. zk.Lock can leave a node that blocks all other users until the session ends.
//   - Unlock always leaves the handle unlocked. If the lock was lost, Unlock reports this once, with an error that wraps [tier.ErrLost] and
//     [zk.ErrNoNode]. zk.Lock returns zk.ErrNoNode at each call, and cannot be locked again. Unlock waits up to 5 s for the server, or 6 s
//     if other handles of the connection want the lock. If the server does not answer in this time, the node is deleted in the background.
//   - Children of the path that are not lock nodes are ignored. Any such child makes zk.Lock fail.
//   - Missing parents are created as container nodes, which the server removes when they are empty.
//   - Data of more than 512 KiB is refused.
//   - Paths are checked; see zklock.ValidatePath.
//
// Caution: a Lock has no lease, gives no notice of a loss before Unlock, and does not detect hung servers. The only way to end a wait is to
// close the connection. The locks of zklock.Dial do not have these limits.
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

// NewLock returns a handle for the lock at path. The caller owns conn and closes it. The lock's nodes, and parents that the lock creates,
// get the ACL acl. NewLock sends no request. If path cannot be a lock, Lock returns an error.
func NewLock(conn *zk.Conn, path string, acl []zk.ACL) *Lock {
	return &Lock{locks: registryOf(conn), path: path, acl: zknode.NodeACL(acl)}
}

// Lock is [Lock.LockWithData] without data.
func (l *Lock) Lock() error { return l.LockWithData([]byte{}) }

// LockWithData blocks until the lock is held. The only way to end the wait is to close the connection. If the handle already holds the
// lock, LockWithData returns [zk.ErrDeadlock]. After any other error the handle is unlocked, has no node, and may be locked again.
func (l *Lock) LockWithData(data []byte) error {
	if l.hold.Load() != nil {
		return zk.ErrDeadlock
	}
	mutex := l.locks.Mutex(l.path, nodeOption{LockOption: l.acl}, nodeOption{LockOption: zknode.NodeData(data)})
	hold, err := mutex.Acquire(context.Background()) // zk.Lock has no parameter for a context
	if errors.Is(err, tier.ErrClosed) {
		return errors.Join(err, zk.ErrClosing)
	}
	if err != nil {
		return err
	}
	l.hold.Store(hold)
	return nil
}

// Unlock releases the lock. Unlock returns nil if the lock was held until now. After any error the handle is unlocked. The errors are:
//
//   - The lock was lost: the error wraps [tier.ErrLost] and [zk.ErrNoNode].
//   - The server did not answer in time, or the connection was closed, so it is not known whether the lock was held until now. The error
//     wraps the error of the connection, such as [zk.ErrConnectionClosed] or [zk.ErrNoServer]. If the connection was closed, Unlock may
//     also report the lock as lost.
//   - The ACL does not permit this process to delete the node: the error wraps [zk.ErrNoAuth]. The node stays until the session ends, and
//     until then no process can get the lock.
//   - The handle does not hold the lock: [zk.ErrNotLocked].
//
// Unlock waits up to 5 s for the server. If other handles of the connection want the lock, Unlock first asks the server whether the lock
// is still held, and waits up to a second for the answer. Unlock skips this question if the server confirmed the lock in the last quarter
// of a second.
func (l *Lock) Unlock() error {
	hold := l.hold.Swap(nil)
	if hold == nil {
		return zk.ErrNotLocked
	}
	err := hold.Release()
	switch {
	case errors.Is(err, tier.ErrClosed): // the connection was closed
		return errors.Join(err, zk.ErrConnectionClosed)
	case errors.Is(err, tier.ErrLost):
		return errors.Join(err, zk.ErrNoNode)
	}
	return err
}

// The map registries has the registries of the connections with which NewLock was called, as long as a handle is in use. All references are
// weak, so the map keeps neither a connection nor a registry alive.
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
	client, _ := zknode.Attach(conn) // cannot fail: Attach returns an error only for a wrong option
	locks := tier.New(zknode.Tier(client), tier.WithRounds())
	known := weak.Make(locks)
	registries.of[key] = known
	runtime.AddCleanup(locks, func(key weak.Pointer[zk.Conn]) {
		registries.mu.Lock()
		defer registries.mu.Unlock()
		if registries.of[key] == known { // otherwise another registry has replaced it
			delete(registries.of, key)
		}
	}, key)
	return locks
}
