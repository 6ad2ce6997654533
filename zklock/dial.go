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

// Dial connects to the ensemble of connect, "host:port,host:port/path", and waits for a
// session. Ports may be left out; the default is 2181, also with TLS. Dial keeps trying until ctx
// is done; the error then holds the cause of ctx and the last failure to connect, and wraps
// [tier.ErrUnavailable]. A bad connect string or option fails at once, and so does a list of names of which none can be looked up,
// after 3 s at most. If some can, the others are logged. With [tier.WithLazyStart] only a bad connect
// string or option fails, and no lock is asked for before the credentials of [WithAuth] were shown.
//
// If there is a path, all others are below it, those of locks and those of guarded writes. It need
// not exist: it comes with the first lock, like the parents of a lock, and goes when it is empty;
// one that somebody else has created stays. Where it may not be created, the first lock gets an
// error that wraps [zk.ErrNoAuth] and names the permission. Caution: a misspelled path is created silently, and its locks do not exclude
// processes that use the right one.
//
// The client reconnects by itself and opens a new session when one has expired. Names are looked up
// again whenever it connects, and all the addresses of a name are tried; if that fails or takes longer
// than a second, those are tried that were found before.
//
// On any error nothing is left behind, with two exceptions when ctx ends while nobody
// answers: the look-up of a name may go on for its 3 s, and a server that has fallen
// silent after the handshake is waited for in the background, for a second.
//
// The registry owns the connection and closes it. Once Dial has returned, the end of ctx has no effect.
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

// Multi runs ZooKeeper operations, those that [zk.Conn.Multi] takes, in one transaction that
// takes effect only while all locks of guard, a [*tier.Hold] or a [*tier.Bundle], are ours: an exact fence for data in the
// same ensemble. Paths are below that of the connect string, like those of locks.
//
// To read, the program needs a connection of its own, on which paths are absolute. It may see old
// data even under the lock, so give the versions that were read to the operations.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or is that of
// one of the operations, or ctx had ended before, or the locks are not all of one registry on ZooKeeper. When the
// answer is lost, or ctx ends first, the error wraps [tier.ErrUnknown], and the cause: the operations
// may still take effect, but never after somebody else got one of the locks. Until the outcome is known no lock
// is handed on within the process either.
func Multi(ctx context.Context, guard tier.Guard, ops ...any) ([]zk.MultiResponse, error) {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return nil, fmt.Errorf("zklock: multi: %w", err)
	}
	g, ok := locks.Grants[0].(interface {
		MultiUnder(ctx context.Context, locks second.Guard, ops ...any) ([]zk.MultiResponse, error)
	})
	if !ok {
		return nil, fmt.Errorf("zklock: multi under %s: that lock is not on ZooKeeper", locks.Path)
	}
	return g.MultiUnder(ctx, locks, ops...)
}

// ValidatePath reports whether path may name a lock: absolute, no empty component, no
// "." or "..", valid UTF-8 without the characters that ZooKeeper forbids (among them all
// above U+FFFF), not the root, not under /zookeeper, at most 1024 bytes. The error wraps
// [zk.ErrInvalidPath].
func ValidatePath(path string) error { return zknode.ValidatePath(path) }

// Errors that only ZooKeeper has. Those of all stores are in package tier.
var (
	// ErrSequenceExhausted says that the sequence numbers of a lock path are (all but)
	// used up. They count all creations under the path in 31 bits, and from ZooKeeper
	// 3.6 on they stick at the last one, so that two nodes would both be first. Nothing
	// but a new parent node resets them, which the package sees to where it can; see
	// there, under Sequence overflow. Else delete the path once it is empty, or use another
	// one. A single child with a negative number or our own has the same effect; the
	// error names it, and if it is a stray one, deleting it helps.
	ErrSequenceExhausted = zknode.ErrSequenceExhausted

	// ErrQuotaExceeded says that a quota of the lock path, or of a node above it, leaves no room for a lock node. It is
	// final for that call. Raise the quota (setquota in zkCli.sh), or delete children that are not needed.
	ErrQuotaExceeded = zknode.ErrQuotaExceeded

	// ErrAnswerTooLong says that an answer, in practice a list of children, is longer than the 32 MiB that a client reads. The
	// connection stays. It is final for that call: delete children, or use another path.
	ErrAnswerTooLong = zknode.ErrAnswerTooLong
)
