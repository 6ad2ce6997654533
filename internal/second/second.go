// Package second defines the interface between package tier and a second tier. The first tier, the gate of package tier, decides between
// the goroutines of a process. The second tier is a store, which decides between processes. internal/zknode implements the interface for
// ZooKeeper, and internal/queue for all other stores.
//
// The comments of this package say what every second tier has to do. internal/test/tiertest checks it.
package second

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// A Tier is the connection of this process to a store. Tiers, claims and grants are safe for concurrent use.
type Tier interface {
	// Claim returns a handle that queues for the lock at path. It returns an error if the path or an option is wrong.
	Claim(path string, o Options) (Claim, error)
	// Semaphore returns a handle that takes permits of the semaphore at path. permits is the total number of permits. An error that wraps
	// [errors.ErrUnsupported] means that the store has no semaphores.
	Semaphore(path string, permits int, o Options) (Semaphore, error)
	// Err returns nil if the store can be reached, as far as this process knows. Otherwise it returns the reason. Once the tier is closed, it
	// returns [ErrClosed].
	Err() error
	// GracePeriod returns the present grace period of the store, as far as this process knows. It returns nil if there is none. Before the
	// request of a claim returns, the tier records the grace period that the answer shows.
	GracePeriod() *GracePeriodError
	// Refusal returns why the store has refused requests for some seconds, although it can be reached. It returns nil if the store does not
	// refuse requests. A refusal does not end holds.
	Refusal() error
	// Groups returns how many requests carried commands about several locks, and how many commands these requests carried in all.
	Groups() (requests, commands int64)
	// Now returns the time on the clock of the leases. That clock is monotonic, starts at an arbitrary time, and counts the machine's sleep.
	Now() time.Duration
	// Logger returns the logger for events that no return value can report. A call of this logger does not wait for the program's handler.
	Logger() *slog.Logger
	// Context returns a context that ends when the tier is closed.
	Context() context.Context
	// Notify makes the tier call f with the state of the connection, and again after each change, one call at a time. Changes during a call
	// of f are combined into one. After Close, no call of f begins. Close does not wait for a running call. Notify is called at most once.
	Notify(f func(Connection))
	// Close ends every grant as lost, and returns when all goroutines of the tier have ended. Close may be called several times.
	Close() error
}

// Options are the options of one lock.
type Options struct {
	Mode      Mode
	MayLinger time.Duration // how long the process may keep the lock while it does not use it; other processes can read this
	Own       []any         // options of the store's package; Claim returns an error for an option that it does not know
}

// A Mode defines with which other contenders a contender can share the lock.
type Mode int

const (
	Exclusive Mode = iota // a mutex, which is not shared
	Writing               // the writer of a reader/writer lock, which is not shared
	Reading               // a reader, which shares the lock with other readers
)

// A Claim is a handle that queues for one lock. Each acquisition enters a new contender.
type Claim interface {
	// Acquire enters a contender, and blocks until that is first in the queue. A reader gets the lock once only readers are ahead. Acquire
	// returns an error if ctx ends, or if retrying cannot help. When ctx ends, the error wraps its cause. While the store cannot be
	// reached, Acquire keeps trying. After an error, the contender is removed, possibly in the background. During the wait, the tier
	// reports the place of the contender in w. The tier sends no additional requests for that.
	Acquire(ctx context.Context, w *Wait) (Grant, error)
	// TryAcquire returns [ErrLocked] if there is another contender. For a reader, only writers count. It fails at once while the store
	// cannot be reached. In a grace period it returns the error of [GracePeriodError.Locked].
	TryAcquire(ctx context.Context) (Grant, error)
	// Requeue gives up old, which is a grant of the same lock, and enters a new contender at the tail of the queue. Both take one write. It
	// then waits like Acquire. The old grant is given up even if Requeue returns an error.
	Requeue(ctx context.Context, old Grant, w *Wait) (Grant, error)
	// Contenders returns the contenders in the order of the queue, the holder first. Contenders, Revoke and Break block while the store
	// cannot be reached.
	Contenders(ctx context.Context) ([]Contender, error)
	// Revoke asks the holders to release the lock. Their grants report the request. A holder may ignore it.
	Revoke(ctx context.Context) error
	// Break removes the contender with the token from the queue, even if another process or library created it. It removes no other
	// contender. Break returns nil once the contender is removed, and [ErrReleased] if there is none. [ErrUnknown] means that the contender
	// may have been removed, or may still be removed. After any other error it was not removed. [errors.ErrUnsupported] means that the store
	// has no way to remove a contender of another process.
	Break(ctx context.Context, token int64) error
	// Load returns the value that was last saved beside the lock, and [ErrNoValue] if there is none. It sees the effect of every [Grant.Save]
	// that returned before Load was called, whichever server answers. While the store cannot be reached, Load blocks.
	Load(ctx context.Context) (Value, error)
	// Equal reports whether the contenders of both claims would differ only in their names. If so, an error of one claim that retrying
	// cannot fix applies to the other one, too.
	Equal(Claim) bool
}

// A Grant is a lock that this process has been granted. It is given up exactly once, by Release or by [Claim.Requeue].
type Grant interface {
	// Context returns a context that ends when the lock is lost, before the store can grant the lock to another process. The cause wraps
	// [ErrLost]. The context does not end when the grant is given up.
	Context() context.Context
	// Err returns the loss if the lock was lost, [ErrReleased] if the grant was given up, and otherwise nil. It checks the lease by the clock.
	Err() error
	// ErrAt is Err for a caller that has just read the clock of the tier.
	ErrAt(now time.Duration) error
	// ValidUntil returns when the lease ends if it is not renewed again. It returns the zero time once the lock is lost or given up, or if
	// there is no lease.
	ValidUntil() time.Time
	// Token returns the fencing token. It is positive, does not change, and is greater than the token of any earlier grant. This does not
	// apply among readers, since they may be granted the lock in any order.
	Token() int64
	// Contended returns a signal that another process waits because of this grant. If this grant is a reader's, only writers count. After
	// Share, Contended returns another signal.
	Contended() *Contention
	// RevokeRequested returns a channel that is closed when a process has asked this process to release the lock; see [Claim.Revoke].
	RevokeRequested() <-chan struct{}
	// Shared reports whether the grant is that of a reader.
	Shared() bool
	// Share turns a writer into a reader, in one write and at the same place in the queue. The readers right behind it are then granted the
	// lock. Share waits until the next contender in the queue is a reader, and returns nil once the grant is shared. It returns an error if
	// ctx ends, or the grant is lost or given up; the grant is then still a writer's. Release and Requeue may be called before Share
	// returns. Share is not called concurrently with itself.
	Share(ctx context.Context) error
	// Save replaces the value beside the lock. If data is nil, Save removes the value. This is a guarded write: it takes effect only while
	// this process has the grant. Save sends nothing if check returns an error; check should call Err. The store executes the writes of one
	// grant in the order of the calls. An error that wraps [ErrUnknown] means that the write may have taken effect, or may take effect later
	// while the grant lasts. After any other error it has no effect. The caller must not change data afterwards.
	Save(ctx context.Context, check func() error, data []byte) error
	// Idle reports whether all requests that were sent under the grant have been answered. A request without an answer may still take
	// effect, even under the next holder of the grant.
	Idle() bool
	// Unsettle makes Idle return false from now on. The program calls it when something that it sent elsewhere under the grant may still take
	// effect.
	Unsettle()
	// Leased reports whether a lease shows until when this process has the lock. Without a lease, only the store knows whether this process
	// has the lock. Confirm then asks the store, and waits for a second at most.
	Leased() bool
	Confirm() bool
	// Release gives the grant up, and waits until its contender is removed from the store, but no longer than [Settings.ReleaseWithin]. After
	// that time the contender is removed in the background. Release returns the loss if the lock was lost before, and otherwise nil.
	Release() error
	// AwaitRelease waits like Release, and returns the same errors, but for a grant that Requeue gives up. It may be called before Requeue.
	AwaitRelease() error
}

// Deadlock is called when a goroutine has waited for a day behind a hold of its own process. what describes the wait. Package zktest sets
// Deadlock for tests in virtual time, because a deadlocked test would otherwise never end. Elsewhere it does nothing.
var Deadlock = func(what string) {}

// TellDeadlock calls Deadlock. Its arguments are a message and attributes, as for a call of a logger.
func TellDeadlock(text string, about ...any) {
	var line strings.Builder
	slog.New(slog.NewTextHandler(&line, nil)).Warn(text, about...)
	Deadlock(line.String())
}

// A Contender is an entry in the queue for a lock; see [tier.Contender]. Any program may have written its texts, so the tier passes each of
// them through [Text].
type Contender struct {
	ID     string
	Token  int64
	Since  time.Time
	Host   string
	PID    int
	Label  string
	Linger time.Duration
	Shared bool // it is a reader, which can have the lock together with other readers
	Asked  bool // a revoke was requested

	InGracePeriod bool // it is first, but does not hold the lock before the end of a grace period

	Permits int // how many permits of a semaphore it has
	Of      int // the total number of permits; 0 if that is unknown
}

// A Connection is a state of the connection to the store, as reported to listeners.
type Connection struct {
	State ConnectionState
	Away  time.Duration // in the state Connected: how long there was no connection before
	Err   error         // why there is no connection; nil if the reason is unknown, or there is a connection again
}

// A ConnectionState is the state of the connection between this process and the store.
type ConnectionState string

const (
	Connected ConnectionState = "connected"
	Suspended ConnectionState = "suspended" // there is no connection; the session, and all locks under it, may continue
	Expired   ConnectionState = "expired"   // the session has ended, and all locks under it are lost
)
