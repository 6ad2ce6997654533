// Package dropin replaces go-zookeeper's zk.Lock: the same methods, on the connection that the program already has,
// with one znode per process. To migrate, change the import of NewLock, one process at a time: the two locks exclude
// each other.
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

// A Lock has the methods of zk.Lock, with one znode per process. During a migration, migrated processes keep their
// share of acquisitions: when the znode of such a process gets the lock, each of its waiting goroutines has a turn, as
// with one znode per goroutine.
//
// As with zk.Lock, a Lock is a handle for one user at a time: each goroutine creates its own. Intentional differences:
//
//   - All handles of one connection and path share a local queue and a node.
//   - While another process waits, the lock may still go to other handles of the same
//     connection: to all that waited when the node got the lock, and to any handle within the
//     default budget of [tier.WithHandOff].
//   - A node has the data and the ACL of the handle that created it, also while other
//     handles hold the lock.
//   - Lock waits through lost connections and expired sessions, where zk.Lock fails.
//     It fails when the connection is closed, with an error wrapping [tier.ErrClosed] and
//     [zk.ErrClosing], and for errors that retrying cannot fix.
//   - An error leaves no node behind. zk.Lock leaves one that blocks all others until the
//     session ends.
//   - Unlock always leaves the handle unlocked, and reports once that the lock was lost
//     meanwhile, with an error wrapping [tier.ErrLost] and [zk.ErrNoNode]. zk.Lock then returns
//     zk.ErrNoNode each time and cannot be locked again. Unlock waits up to 5 s for the
//     server, or 6 s if other handles of the connection want the lock. After that the node
//     is deleted in the background.
//   - Children that are no lock nodes are ignored. Each of them makes zk.Lock fail.
//   - Missing parents are created as container nodes, which the server removes when they
//     are empty.
//   - Data of more than 512 KiB is refused.
//   - Paths are checked; see zklock.ValidatePath.
//
// Caution: on the program's own connection there is no lease, no notice of loss before Unlock, no protection from hung
// servers, and no way to end a wait except closing the connection. For these use zklock.Dial and [tier.Mutex].
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

// NewLock returns a handle for the lock at path, over a connection that the caller keeps and closes. Nodes, and
// parents that have to be created, get acl. NewLock sends no request; Lock reports a path that cannot be a lock.
func NewLock(conn *zk.Conn, path string, acl []zk.ACL) *Lock {
	return &Lock{locks: registryOf(conn), path: path, acl: zknode.NodeACL(acl)}
}

// Lock is [Lock.LockWithData] without data.
func (l *Lock) Lock() error { return l.LockWithData([]byte{}) }

// LockWithData blocks until the lock is held. It cannot be cancelled except by closing the connection. A handle that
// already holds the lock gets [zk.ErrDeadlock]. After any other error the handle is unlocked, no node of it is left,
// and it may be locked again.
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

// Unlock releases the lock. It returns nil if the lock was held to the end. After any error the handle is unlocked.
// Errors:
//
//   - The lock was lost: the error wraps [tier.ErrLost] and [zk.ErrNoNode].
//   - It is not known whether the lock was held to the end, because the server did not answer in time or the
//     connection was closed: the error wraps that of the connection, such as [zk.ErrConnectionClosed] or
//     [zk.ErrNoServer]. A lock whose connection has ended may also count as lost.
//   - The ACL does not permit this process to delete the node: the error wraps [zk.ErrNoAuth]. The node stays until
//     the session ends and blocks this process as well.
//   - The handle does not hold the lock: [zk.ErrNotLocked].
//
// Unlock waits up to 5 s for the server. If other handles of the connection want the lock, it first asks the server
// whether the lock is still held, and waits up to a second more, unless it knows that from the last quarter of a
// second.
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
