package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

// Dial connects to the servers that the string connect lists, such as "host:port,host:port/path". Dial blocks until it has a session or ctx
// ends. Ports may be left out; the default is 2181, also with TLS.
//
// The path is a chroot: the paths of locks and of guarded writes are relative to it. The chroot is created with the first lock. If this
// package created the path, the path is removed when it is empty. If this client may not create the path, the first lock gets an error
// that wraps [zk.ErrNoAuth] and names the permission. Caution: a misspelled path is created silently, and its locks do not exclude
// processes that use the correct path.
//
// If ctx ends first, the error wraps [tier.ErrUnavailable], the cause of ctx and the last failure to connect. A wrong connect string or
// option fails at once. If no server name can be resolved, Dial fails within 3 s. If only some names cannot be resolved, Dial logs them.
// With [tier.WithLazyStart] Dial returns at once, and fails only for a wrong connect string or option. After Dial has returned an error, a
// name look-up or a connection attempt may continue in the background for up to 3 s.
//
// The client reconnects by itself, and resolves names again at each attempt. If a name cannot be resolved within a second, the client uses
// the addresses that it found before. After its session has expired, it opens a new session. The registry owns the connection: close the
// registry to close the connection. The end of ctx has no effect after Dial has returned.
func Dial(ctx context.Context, connect string, opts ...tier.RegistryOption) (*tier.Registry, error) {
	settings := second.Defaults
	own, share, err := second.Split[zknode.Option, tier.Option](&settings, opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial %s: %w", connect, err)
	}
	client, err := zknode.Dial(ctx, connect, append(own, zknode.WithSettings(settings))...)
	if errors.Is(err, zk.ErrNoServer) {
		err = second.Unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	return tier.New(zknode.Tier(client), share...), nil
}

// Multi is the guarded write of ZooKeeper. It executes operations of [zk.Conn.Multi] in one transaction. The transaction takes effect only
// while this process holds all locks of guard, a [*tier.Hold] or a [*tier.Bundle]. Multi takes one round trip, and blocks until the answer
// arrives or ctx ends. It returns one response for each operation. Paths are relative to the chroot of the connect string.
//
// To read data, use your own connection; its paths are absolute. A read may return old data even while you hold the lock. Therefore pass
// the versions that you read to the operations.
//
// If the error wraps [tier.ErrUnknown], the outcome is ambiguous: the answer was lost, or ctx ended before the answer. If ctx ended, the
// error also wraps its cause. The operations may still take effect, but not after another process has acquired one of the locks. Until the
// outcome is known, these locks are not handed off within this process. After any other error the data is unchanged. Such an error wraps
// [tier.ErrLost] or [tier.ErrReleased], comes from one of the operations, or says that ctx had already ended, or that the locks belong to
// different registries.
func Multi(ctx context.Context, guard tier.Guard, ops ...any) ([]zk.MultiResponse, error) {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return nil, fmt.Errorf("zklock: multi: %w", err)
	}
	g, ok := locks.Grants[0].(interface {
		MultiUnder(ctx context.Context, locks second.Guard, ops ...any) ([]zk.MultiResponse, error)
	})
	if !ok {
		return nil, fmt.Errorf("zklock: multi guarded by %s: this lock is not on ZooKeeper", locks.Path)
	}
	return g.MultiUnder(ctx, locks, ops...)
}

// ValidatePath returns nil if path can name a lock, and otherwise an error that wraps [zk.ErrInvalidPath]. A lock path is absolute and at
// most 1024 bytes of UTF-8. A lock path has no empty component, no "." or "..", and no character that ZooKeeper forbids, such as
// characters above U+FFFF. A lock path is not the root, and is not below /zookeeper. [tier.Name] turns any string into a valid path.
func ValidatePath(path string) error { return zknode.ValidatePath(path) }

// These errors occur only on ZooKeeper. The errors of all stores are in package tier.
var (
	// ErrSequenceExhausted means that the 31-bit sequence numbers of a lock path are nearly used up. Normally the package resets the numbers
	// in time; see Sequence overflow in the package documentation. If the package could not reset the numbers, delete the path while it has no
	// children, or use another path. A foreign child with a negative number, or with the same number as this process's node, causes the same
	// error. The error then names the child. If no process owns the child, delete the child.
	ErrSequenceExhausted = zknode.ErrSequenceExhausted

	// ErrQuotaExceeded means that a ZooKeeper quota leaves no room for a lock node. The call is not retried. Raise the quota (setquota in
	// zkCli.sh), or delete children of the path that are not needed.
	ErrQuotaExceeded = zknode.ErrQuotaExceeded

	// ErrAnswerTooLong means that an answer, in practice a list of children, exceeds the client's limit of 32 MiB. The call is not retried:
	// delete children of the path, or use another path.
	ErrAnswerTooLong = zknode.ErrAnswerTooLong
)
