// Package second defines what the gate of package tier requires of a second tier, which is a store that decides between processes.
// internal/zknode implements it for ZooKeeper, and internal/queue for all other stores.
//
// Every tier has to fulfil all of it; internal/test/tiertest checks that.
package second

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// A Tier is the connection of this process to a store. It is safe for concurrent use, as
// are claims and grants.
type Tier interface {
	// Claim prepares to queue for the lock at path. The error says what is wrong with path or an
	// option.
	Claim(path string, o Options) (Claim, error)
	// Semaphore prepares to take permits of the semaphore at path, with that many permits in all. An error that wraps
	// [errors.ErrUnsupported] means that the store has no semaphores.
	Semaphore(path string, permits int, o Options) (Semaphore, error)
	// Err returns nil while the store can be reached as far as this process knows, and
	// otherwise why not; [ErrClosed] once the tier is closed.
	Err() error
	// GracePeriod returns the grace period of the store, as far as this process knows, nil if it is over or there is none. It includes
	// what a claim has just read.
	GracePeriod() *GracePeriodError
	// Refusal returns why the store has refused requests for seconds, although it can be reached; nil if it does not refuse them. Held
	// locks stay held.
	Refusal() error
	// Groups returns how many requests had commands about several locks, and how many commands these were.
	Groups() (requests, commands int64)
	// Now reads the clock of the leases, which starts anywhere, is monotonic, and counts the sleep of the machine.
	Now() time.Duration
	// Logger returns the logger for events that no return value can report. No call waits for the program's handler.
	Logger() *slog.Logger
	// Context ends when the tier is closed.
	Context() context.Context
	// Notify calls f with the state of the connection, and again after each change, one call at a time. Changes during a call are
	// combined into one. After the tier is closed no call begins; Close does not wait for a running one. Notify is called at most once.
	Notify(f func(Connection))
	// Close ends every grant as lost and leaves no goroutine. Close may be called again.
	Close() error
}

// Options are the options of one lock.
type Options struct {
	Mode      Mode
	MayLinger time.Duration // for how long a contender may be kept while the lock is idle; its description says so
	Own       []any         // options of the tier's package; Claim refuses those that it does not know
}

// A Mode says with which contenders a contender shares the lock.
type Mode int

const (
	Exclusive Mode = iota // with none: a mutex
	Writing               // with none: the writer of a reader/writer lock
	Reading               // with other readers
)

// A Claim is a handle that queues for one lock: each grant of it is a contender of its own.
type Claim interface {
	// Acquire queues and blocks until its contender is first, ctx ends (the error wraps its cause) or there is an error that retrying cannot
	// fix. While the store cannot be reached it keeps trying. A claim to read is granted once only readers are ahead. After an error no
	// contender is left, or it is removed in the background. During the wait, the tier reports the place of the contender in w, from what it
	// has read anyway.
	Acquire(ctx context.Context, w *Wait) (Grant, error)
	// TryAcquire returns [ErrLocked] if there is another contender, for a claim to read one that does not read. It fails at once while
	// the store cannot be reached. In a grace period the error is that of [GracePeriodError.Locked].
	TryAcquire(ctx context.Context) (Grant, error)
	// Requeue gives up old, a grant of the same lock, and queues again at the tail, in one write. It then waits like Acquire. Old is given
	// up in any case, also if ctx ends.
	Requeue(ctx context.Context, old Grant, w *Wait) (Grant, error)
	// Contenders returns the queue, the holder first. While the store cannot be reached it blocks, as Revoke and Break do.
	Contenders(ctx context.Context) ([]Contender, error)
	// Revoke asks the holders to release the lock; their grants report it. No holder has to.
	Revoke(ctx context.Context) error
	// Break removes the contender with the token from the queue, whichever process or library created it, and no other. Break returns nil
	// once the contender is removed, and [ErrReleased] if there is none. [ErrUnknown] means that the contender may have been removed, or may
	// yet be; after any other error it was not. [errors.ErrUnsupported] means that the store cannot do it.
	Break(ctx context.Context, token int64) error
	// Load returns what was saved beside the lock last, and [ErrNoValue] if that is nothing. It sees every [Grant.Save] that has returned
	// before it began, whichever server answers. While the store cannot be reached it blocks.
	Load(ctx context.Context) (Value, error)
	// Equal reports whether the contenders of both claims would be alike, so that an error
	// that retrying cannot fix is one for both.
	Equal(Claim) bool
}

// A Grant is the lock, given to this process. It is given up exactly once, by Release or by
// [Claim.Requeue].
type Grant interface {
	// Context ends when the lock is lost, before the store can grant it to another process, with a cause that wraps [ErrLost]. Context does
	// not end when the grant is given up.
	Context() context.Context
	// Err returns the loss, [ErrReleased] once the grant is given up, and otherwise nil. It reads the clock.
	Err() error
	// ErrAt is Err for a caller that has just read the clock of the tier.
	ErrAt(now time.Duration) error
	// ValidUntil returns when the lease ends if it is not renewed again. It returns the zero time once the lock is lost or given up, or if
	// there is no lease.
	ValidUntil() time.Time
	// Token is positive and greater than that of any grant before it, and does not change. Readers may have been granted the lock in any
	// order, so tokens do not order them.
	Token() int64
	// Contended signals that another process waits because of this grant. Behind a reader only a writer counts. After Share it returns
	// another signal.
	Contended() *Contention
	// RevokeRequested returns a channel that is closed when a process has asked for the lock.
	RevokeRequested() <-chan struct{}
	// Shared reports whether the grant is that of a reader.
	Shared() bool
	// Share makes a writer a reader, in one write and at the same place in the queue. The readers right behind it are then granted the lock.
	// It returns nil once the grant is shared and a reader is right behind. Share returns an error if ctx is done, or the grant is lost or
	// given up; the grant is then unchanged. Release and Requeue may be called before it returns. Share is not called concurrently with
	// itself.
	Share(ctx context.Context) error
	// Save replaces the value beside the lock, or removes it if data is nil, as a guarded write: it takes effect only while this process has
	// the grant. It sends nothing if check, which should include Err, returns an error. The store executes the writes of one grant in the
	// order of the calls. An error that wraps [ErrUnknown] means that the write may have taken effect, or may yet, while the grant lasts.
	// After any other error it has not. Save keeps data.
	Save(ctx context.Context, check func() error, data []byte) error
	// Idle reports whether all requests that were sent under the grant have been answered. A request without an answer may still take
	// effect, even under the next holder of the grant.
	Idle() bool
	// Leased reports whether a lease shows until when this process has the lock. Otherwise only the store knows; Confirm asks it, and waits
	// for a second at most.
	Leased() bool
	Confirm() bool
	// Release gives the grant up and waits until it is removed from the store, no longer than [Settings.ReleaseWithin]. What is left is
	// removed in the background. It returns nil if the lock was not lost before, and otherwise the loss.
	Release() error
	// AwaitRelease waits like Release, and returns the same, for a grant that Requeue gives up. AwaitRelease may be called before Requeue.
	AwaitRelease() error
}

// Deadlock is called with a description when a wait behind a hold of its own process has lasted for a day. Package zktest sets it for
// tests in virtual time, which would otherwise never end; elsewhere it does nothing.
var Deadlock = func(what string) {}

// TellDeadlock calls Deadlock with a message and attributes like those of a log call.
func TellDeadlock(text string, about ...any) {
	var line strings.Builder
	slog.New(slog.NewTextHandler(&line, nil)).Warn(text, about...)
	Deadlock(line.String())
}

// A Contender is one process in the queue for a lock; see [tier.Contender]. The tier passes each text through [Text], because any program
// may have written it.
type Contender struct {
	ID     string
	Token  int64
	Since  time.Time
	Host   string
	PID    int
	Label  string
	Linger time.Duration
	Shared bool // it reads: others that do have the lock at the same time
	Asked  bool // a revoke was requested

	InGracePeriod bool // it is first, and does not hold the lock because of a grace period

	Permits int // that it has of a semaphore
	Of      int // the number of permits; 0 if the path does not say
}

// A Connection is a state of the connection to the store, as reported to listeners.
type Connection struct {
	State ConnectionState
	Away  time.Duration // how long there was none; with Connected
	Err   error         // why there is none, nil if that is not known or over already
}

// A ConnectionState is the state of the connection between this process and the store.
type ConnectionState string

const (
	Connected ConnectionState = "connected"
	Suspended ConnectionState = "suspended" // no connection; the session, with all that is held, may live on
	Expired   ConnectionState = "expired"   // the session is over, and all that was held is lost
)
