package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// Errors are wrapped; test for these with errors.Is. They are the same on every store, whose own
// error is wrapped beside them where there is one.
var (
	// ErrLocked is returned by TryAcquire when somebody else has the lock or waits for it, or the store
	// grants none: see [GracePeriodError].
	ErrLocked = second.ErrLocked
	// ErrLost says that the lock was lost while it was held. It is final for that hold.
	ErrLost = second.ErrLost
	// ErrReleased says that the hold was released before.
	ErrReleased = second.ErrReleased
	// ErrClosed says that the registry is closed, or is being shut down.
	ErrClosed = second.ErrClosed
	// ErrCannotUpgrade says that the lock was asked for to write with the context of a hold that reads.
	// Two that did so would wait for each other.
	ErrCannotUpgrade = errors.New("a reader cannot become the writer: release the hold first")
	// ErrTooManyPermits says that a call asks for more permits than the semaphore has. The number that the store has counts; see
	// [Semaphore.SetPermits].
	ErrTooManyPermits = second.ErrTooManyPermits
	// ErrUnknown says that the outcome of a guarded write is unknown: it may have taken effect, or may yet,
	// but never after the lock went to another process. So it is on every store, with zklock.Multi,
	// etcdlock.Txn, pglock.Tx and redislock.Eval, when the answer is lost or the context ends first, whose
	// cause is wrapped as well. A write that was refused is not unknown, and one that was refused because
	// the lock was lost wraps [ErrLost] alone.
	ErrUnknown = second.ErrUnknown
	// ErrUnavailable says that the store grants no lock at the moment: it cannot be reached, it refuses, or leaves unanswered, what it
	// is asked, or a session or a lease has yet to be renewed. Try again later. Every error of TryAcquire wraps it, or [ErrLocked],
	// [ErrClosed], the cause of ctx, or an error of the store that no other try changes, such as a missing permission. So do
	// the errors of [Registry.Err] other than a [*GracePeriodError], and those of a wait that ends in such a state.
	ErrUnavailable = second.ErrUnavailable
	// ErrWaitLimit says that the lock could not be had within the limit of [WithMaxWait].
	ErrWaitLimit = errors.New("wait limit reached")
)

// A GracePeriodError says that the store grants no lock to anybody up to a time, its field Until, and why, its
// field Reason. A server that began anew, or took over from another one, may not know all who were granted a lock
// before: so it waits until they have lost it, for as long as the longest lease lasts. Locks that it knows to be
// held stay so. PostgreSQL and Redis have such times, ZooKeeper and etcd none.
//
// Get at it with errors.As, as a *GracePeriodError, in the error of TryAcquire, which wraps [ErrLocked] as well, in
// that of [Registry.Err], and in a [*WaitError], which has it as a field, too.
type GracePeriodError struct {
	Until  time.Time `json:"until"` // by the clock of this machine
	Reason string    `json:"reason"`
}

func (e *GracePeriodError) Error() string { return (*second.GracePeriodError)(e).Error() }

// inGracePeriod adds the error for users to that of a try in the words of its store.
type inGracePeriod struct {
	error
	period *GracePeriodError
}

func (e inGracePeriod) Unwrap() []error { return []error{e.error, e.period} }

// A gated stake is a cohort or a pool, as its waiters know it.
type gated[S any] interface {
	stake
	wait(ctx context.Context, w *waiter[S], begun time.Duration) Wait
	withdraw(w *waiter[S])
}

// await returns when the waiter is chosen; or else with why not, after which nothing is left of it.
func await[S any](ctx context.Context, at gated[S], w *waiter[S], limit, begun time.Duration) error {
	r := at.base().registry
	if limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, limit, ErrWaitLimit)
		defer cancel()
		ctx = limited
	}
	left := false // or chosen
	defer func() {
		if !left { // the observer, or ctx, has panicked or ended the goroutine
			at.withdraw(w)
			at.base().part()
		}
	}()
	var cause error
	if r.draining() { // if not yet, w is told to leave when it comes to that
		cause = ErrClosed
	}
	for long := r.options.observer.alarm(); cause == nil; {
		select {
		case <-w.turn:
			if err := w.refusal; !r.draining() && !errors.Is(err, ErrClosed) {
				left = true
				return err
			}
			cause = ErrClosed
		case <-long:
			r.options.observer.Waiting(ctx, at.wait(ctx, w, begun))
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
	}
	wait := at.wait(ctx, w, begun)
	left = true
	at.withdraw(w)
	if wait.Refusal != nil {
		cause = fmt.Errorf("%w: the last request failed: %w", cause, wait.Refusal)
	} else if problem := r.second.Err(); problem != nil && !errors.Is(cause, problem) {
		cause = fmt.Errorf("%w: %w", cause, problem)
	}
	if wait.GracePeriod != nil {
		cause = fmt.Errorf("%w: %w", cause, wait.GracePeriod)
	}
	return &WaitError{wait, cause}
}

// A Wait is one for a lock, or for permits, with what this process knows of who is in the way. It knows what it
// has read to queue, and asks for nothing more.
type Wait struct {
	Path   string
	Waited time.Duration

	// Here is the hold of this process, nil if it does not have the lock.
	Here *Here

	// Else, how many processes are ahead in the queue of the store, and the one right ahead, as far
	// as its contender tells. Zero if this process has yet to see the queue, or has the lock.
	Position   int
	Ahead      Contender
	AheadHolds bool // nobody is ahead of that one, and there is no grace period

	// Grace period says that the store grants the lock to nobody as yet, nil if it does.
	GracePeriod *GracePeriodError

	// Refusal is why the last request of this process for the lock failed although the store can be reached, such as a server that
	// has no memory left, or does not answer this request alone. It is nil if the request was served. Such a request is sent again
	// until it is served.
	Refusal error

	// Of a wait for permits: how many it is for, how many this process has, and whether it is first in
	// the queue, so that too few are free. Whoever is ahead waits for permits, too: those who have them
	// do not queue.
	Permits int
	Taken   int
	First   bool
}

// Here is the hold in the way of a wait in the same process.
type Here struct {
	Since time.Time
	Token int64
	Holds int // that were not released: more than one if the owner has entered again, or several read

	// Carried reports that the context of the call carries a hold of it that was released, so that
	// it is another one of the same call tree that was not. Else the owner is another goroutine,
	// or the caller, who has not passed the context of its hold on.
	Carried bool
}

// A WaitError is what [Mutex.Acquire] returns when a wait ended without the lock: because its
// context did, or its limit was reached, or the registry was closed. Get at it with errors.As, as
// a *WaitError; it wraps the cause.
type WaitError struct {
	Wait
	Err error // why the wait ended
}

func (e *WaitError) Unwrap() error { return e.Err }

func (e *WaitError) Error() string {
	waited := e.Waited.Round(time.Millisecond).String()
	if e.Permits > 0 {
		waited += " for " + permitsOf(e.Permits)
	}
	text := fmt.Sprintf("tier: acquire %s: waited %s: %v", e.Path, waited, e.Err)
	if who := e.obstacle(); who != "" {
		text += "; " + who
	}
	return text
}

// obstacle says who is in the way, "" if that is not known.
func (w Wait) obstacle() string {
	switch {
	case w.Permits > 0:
		return w.shortage()
	case w.Here != nil:
		return w.Here.owner()
	case w.AheadHolds:
		return w.Ahead.who() + " has the lock" + w.Ahead.since()
	case w.Position > 0:
		return w.queue()
	}
	return ""
}

// queue says who is ahead of those that do not have the lock.
func (w Wait) queue() string {
	if w.Position == 1 {
		return w.Ahead.who() + " is ahead" + w.Ahead.since()
	}
	return fmt.Sprintf("%d processes are ahead, of which the last is %s%s", w.Position, w.Ahead.who(), w.Ahead.since())
}

// shortage is the obstacle to permits.
func (w Wait) shortage() string {
	var who []string
	switch {
	case w.First:
		who = append(who, "this process is first in the queue, and too few are free: see Contenders")
	case w.Position > 0:
		who = append(who, w.queue())
	}
	if w.Taken > 0 {
		who = append(who, "this process has "+permitsOf(w.Taken))
	}
	return strings.Join(who, "; ")
}

func permitsOf(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}

// stand takes what the store has told of the place in the queue. Before it has, a grace period is known all the same.
func (w *Wait) stand(s second.Standing, t second.Tier) {
	if s.Ahead == 0 && s.GracePeriod == nil {
		s.GracePeriod = t.GracePeriod()
	}
	w.Position, w.Ahead, w.AheadHolds = s.Ahead, contender(s.Nearest), s.Ahead == 1 && s.GracePeriod == nil
	w.GracePeriod, w.Refusal = (*GracePeriodError)(s.GracePeriod), s.Refusal
}

// owner says whose hold it is.
func (h *Here) owner() string {
	if h.Carried {
		return fmt.Sprintf("this process has the lock, since %s: the hold in the context of this call was released, and %d "+
			"that entered again not yet", stamp(h.Since), h.Holds)
	}
	return "another goroutine of this process has the lock, since " + stamp(h.Since) +
		"; or the caller has, and did not pass the context of its hold"
}

// who names the process in words.
func (c Contender) who() string {
	switch {
	case c.PID != 0 && c.Label != "":
		return fmt.Sprintf("process %d on %s (%s)", c.PID, c.Host, c.Label)
	case c.PID != 0:
		return fmt.Sprintf("process %d on %s", c.PID, c.Host)
	case c.ID != "":
		return "contender " + c.ID
	}
	return "another process"
}

// since says from when on it has been in the queue, for the end of a clause.
func (c Contender) since() string {
	if c.Since.IsZero() {
		return ""
	}
	return ", in the queue since " + stamp(c.Since)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// A Contender is one process in the queue for a lock, or one that has permits of a semaphore. What
// the store does not tell, or only to those with more permissions, is zero.
type Contender struct {
	ID    string    // its name in the queue, such as that of the node in ZooKeeper
	Token int64     // fencing token it has as holder
	Since time.Time // when it queued, by the clock of ZooKeeper or PostgreSQL, elsewhere by that of its process

	// HeldSince is when the present hold began, if it is one of this process; else zero, as only
	// its process knows. Since says nothing of it: a process keeps its place in the queue while it
	// hands the lock off among its goroutines, so a contender that is old may well be in use for
	// many short holds, and healthy.
	HeldSince time.Time

	// What the process says of itself; zero for those of other libraries. Of a text, the ID included, the first 256 bytes
	// count, "…" stands for more, and what is not plainly printed is spelled out, such as \n and \u202e.
	Host  string
	PID   int
	Label string

	// Linger is for how long the process may keep the lock while nobody holds it. Lingering
	// reports that it does so now, which only that process knows: others see false.
	Linger    time.Duration
	Lingering bool
	// Shared says that it reads, of an [RWMutex]: those that do and have only such before them have
	// the lock together. However many goroutines of a process read, it is one contender.
	Shared bool
	// Asked says that it was asked for the lock, with [Mutex.Revoke], or with Curator's Revoker: nothing
	// is known then of what its process says of itself.
	Asked bool

	// InGracePeriod says that it is first, and does not have the lock yet: see [GracePeriodError].
	InGracePeriod bool

	// Permits is how many it has of a semaphore: 0 for one in the queue.
	Permits int
	// Of is how many permits there are, 0 if the path does not say.
	Of int
}

func contender(q second.Contender) Contender {
	return Contender{
		ID: q.ID, Token: q.Token, Since: q.Since, Host: q.Host, PID: q.PID, Label: q.Label, Linger: q.Linger,
		Shared: q.Shared, Asked: q.Asked, InGracePeriod: q.InGracePeriod, Permits: q.Permits, Of: q.Of,
	}
}

func contenders(all []second.Contender) (queue []Contender) {
	for _, q := range all {
		queue = append(queue, contender(q))
	}
	return queue
}
