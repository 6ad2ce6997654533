package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// These errors are the same on all stores. The errors that calls return wrap them, often together with an error of the store's client. Test
// with errors.Is.
var (
	// ErrLocked is returned by TryAcquire if another goroutine or process holds the lock or waits for it. TryAcquire also returns ErrLocked
	// while the store is in a grace period, see [GracePeriodError].
	ErrLocked = second.ErrLocked
	// ErrLost means that the lock was lost while it was held. A lost hold never becomes valid again: acquire the lock anew.
	ErrLost = second.ErrLost
	// ErrReleased means that the hold was already released. [Mutex.Break] and [Semaphore.Break] return ErrReleased if no contender has the
	// token.
	ErrReleased = second.ErrReleased
	// ErrClosed means that the registry is closed or being shut down.
	ErrClosed = second.ErrClosed
	// ErrCannotUpgrade means that the write lock was requested with the context of a hold that reads. Two readers that both upgrade
	// would deadlock.
	ErrCannotUpgrade = errors.New("a reader cannot become the writer: release the hold first")
	// ErrTooManyPermits means that a call wants more permits than the semaphore has. The store keeps the number of permits; see
	// [Semaphore.SetPermits].
	ErrTooManyPermits = second.ErrTooManyPermits
	// ErrUnknown means that the outcome of a guarded write is ambiguous: the answer was lost, or the context ended before the answer. If the
	// context ended, the error also wraps its cause. The write may have taken effect, or may still take effect, but not after another process
	// has acquired the lock. Read the data before you decide what to do. [Hold.Save], zklock.Multi, etcdlock.Txn, pglock.Tx, mysqllock.Tx and
	// redislock.Eval return ErrUnknown. If a write was refused because the lock is lost, they return [ErrLost] instead. [Mutex.Break] and
	// [Semaphore.Break] return ErrUnknown if the contender may have been removed, or may still be removed.
	ErrUnknown = second.ErrUnknown
	// ErrUnavailable means that the store grants no lock at the moment. The store cannot be reached, refuses or does not answer a request, or
	// has not renewed a session or lease yet. Try again later. TryAcquire returns ErrUnavailable in such a state. The error of a wait that
	// ends in such a state also wraps it. All errors of [Registry.Err] wrap ErrUnavailable, except a [*GracePeriodError] and [ErrClosed].
	ErrUnavailable = second.ErrUnavailable
	// ErrWaitLimit means that the lock was not acquired within the limit of [WithMaxWait].
	ErrWaitLimit = errors.New("wait limit reached")
)

// A GracePeriodError means that the store grants no lock until the time in the field Until. The field Reason says why. A server that was
// started or promoted may have forgotten locks. Therefore it grants no lock until the longest lease of such a lock has ended. Locks that
// the server has not forgotten stay held. PostgreSQL, MySQL and Redis have grace periods; ZooKeeper and etcd need none.
//
// Use errors.As to get a *GracePeriodError from an error of TryAcquire, of [Registry.Err] or of a wait. The error of TryAcquire also wraps
// [ErrLocked]. A [*WaitError] also has the *GracePeriodError as a field.
type GracePeriodError struct {
	Until  time.Time `json:"until"` // by the clock of this machine
	Reason string    `json:"reason"`
}

func (e *GracePeriodError) Error() string { return (*second.GracePeriodError)(e).Error() }

// An inGracePeriod has two errors: the error of a try, whose text comes from its store, and the [GracePeriodError] that users see.
type inGracePeriod struct {
	error
	period *GracePeriodError
}

func (e inGracePeriod) Unwrap() []error { return []error{e.error, e.period} }

// A gated is a cohort or a pool, with the methods that its waiters use.
type gated[S any] interface {
	stake
	wait(ctx context.Context, w *waiter[S], begun time.Duration) Wait
	withdraw(w *waiter[S])
}

// await returns nil when the waiter is chosen, and otherwise the reason for the end of the wait. After an error the waiter has left the
// queue.
func await[S any](ctx context.Context, at gated[S], w *waiter[S], limit, begun time.Duration) error {
	r := at.base().registry
	if limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, limit, ErrWaitLimit)
		defer cancel()
		ctx = limited
	}
	left := false // also set when the waiter is chosen
	defer func() {
		if !left { // the observer or a method of ctx has panicked, or has ended the goroutine
			at.withdraw(w)
			at.base().part()
		}
	}()
	var cause error
	if r.draining() { // after this check, a shutdown wakes w
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

// A Wait describes a wait for a lock or for permits, and what blocks it. A Wait contains what this process has learned while it queued.
// Reading a Wait sends no request.
type Wait struct {
	Path   string
	Waited time.Duration

	// Here is the hold of this process. Here is nil if the process does not hold the lock.
	Here *Here

	// Position is the number of processes ahead in the queue of the store. Ahead is the next process ahead in the queue. Both fields are zero
	// if this process has not read the queue yet, or if it holds the lock.
	Position   int
	Ahead      Contender
	AheadHolds bool // whether Ahead holds the lock: it is the first in the queue, and there is no grace period

	// GracePeriod is the grace period of the store. GracePeriod is nil if there is none.
	GracePeriod *GracePeriodError

	// Refusal says why the store refused or did not answer the last request of this process for the lock, although the store can be reached.
	// For example, the store may have no memory left. Refusal is nil if the last request was served. The process repeats a refused request
	// until it is served.
	Refusal error

	// Permits, Taken and First are set in a wait for permits. Permits is the number of permits that the call wants. Taken is the number of
	// permits that this process has. First says that this process is the first in the queue, and waits because too few permits are free.
	// Ahead is a waiting process, because processes that have permits are not in the queue.
	Permits int
	Taken   int
	First   bool
}

// A Here describes the hold of a lock by this process, if that hold blocks a wait in the same process.
type Here struct {
	Since time.Time
	Token int64
	Holds int // number of unreleased holds; more than one after reentrant acquisitions, or with several readers

	// Carried is true if the context of the call carries a released hold of this lock. In this case another nested hold of the same lock is
	// not released yet. If Carried is false, the lock belongs to another goroutine, or to the caller itself, which called Acquire without the
	// context of its hold.
	Carried bool
}

// A WaitError is returned by [Mutex.Acquire] when a wait ended without the lock. Either the context of the wait ended, its time limit was
// reached, or the registry was closed. Use errors.As to get a *WaitError. The error wraps the cause.
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

// obstacle describes what blocks the wait. It returns "" if that is not known.
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

// queue describes the contenders ahead, if none of them holds the lock.
func (w Wait) queue() string {
	if w.Position == 1 {
		return w.Ahead.who() + " is ahead" + w.Ahead.since()
	}
	return fmt.Sprintf("%d processes are ahead, the nearest of them is %s%s", w.Position, w.Ahead.who(), w.Ahead.since())
}

// shortage describes what blocks a wait for permits.
func (w Wait) shortage() string {
	var who []string
	switch {
	case w.First:
		who = append(who, "this process is first in the queue, and too few permits are free: see Contenders")
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

// stand copies what the store has reported about the place in the queue. If there is no such report yet, the grace period is asked from the
// tier.
func (w *Wait) stand(s second.Standing, t second.Tier) {
	if s.Ahead == 0 && s.GracePeriod == nil {
		s.GracePeriod = t.GracePeriod()
	}
	w.Position, w.Ahead, w.AheadHolds = s.Ahead, contender(s.Nearest), s.Ahead == 1 && s.GracePeriod == nil
	w.GracePeriod, w.Refusal = (*GracePeriodError)(s.GracePeriod), s.Refusal
}

// owner describes the owner of the lock in this process.
func (h *Here) owner() string {
	if h.Carried {
		return fmt.Sprintf("this process has held the lock since %s: the hold in the context of this call was released, but "+
			"%d reentrant holds were not released", stamp(h.Since), h.Holds)
	}
	return "another goroutine of this process has held the lock since " + stamp(h.Since) +
		"; or the caller itself holds the lock, and did not pass the context of its hold"
}

// Contender.who describes the process of a contender.
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

// The method since returns a clause that says since when the contender has been in the queue.
func (c Contender) since() string {
	if c.Since.IsZero() {
		return ""
	}
	return ", in the queue since " + stamp(c.Since)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// A Contender is a process in the queue for a lock, or a process that has permits of a semaphore. A field is zero if the store does not
// have the information, or if the permissions do not allow reading it.
type Contender struct {
	ID    string    // name of the queue entry, such as the name of the node in ZooKeeper
	Token int64     // fencing token of the contender as the holder
	Since time.Time // when the process queued, by the server's clock in ZooKeeper, PostgreSQL and MySQL, elsewhere by the process's clock

	// HeldSince is the start of the current hold, if this process holds the lock. HeldSince is zero if another process holds the lock,
	// because only the holder knows the start. Since is not the start of a hold: a process stays in the queue while it hands the lock off
	// among its goroutines.
	HeldSince time.Time

	// The process itself reports the fields Host, PID and Label. These fields are zero for other libraries. Strings, including ID, are cut
	// after 256 bytes with "…". Characters that are not printable are escaped.
	Host  string
	PID   int
	Label string

	// Linger is how long the process may keep the idle lock ([WithLinger]). Lingering is true if the process keeps the idle lock now. Only
	// the process itself knows that it keeps an idle lock; for other processes Lingering is false.
	Linger    time.Duration
	Lingering bool
	// Shared is true for a reader of an [RWMutex]. Readers at the head of the queue hold the lock together.
	Shared bool
	// Asked is true if [Mutex.Revoke] or Curator's Revoker has asked the contender to release the lock. Curator's request replaces the fields
	// that the process reports.
	Asked bool

	// InGracePeriod is true if the contender is the first in the queue, but does not hold the lock yet because of a grace period: see
	// [GracePeriodError].
	InGracePeriod bool

	// Permits is the number of permits of a semaphore that the contender holds. Permits is 0 if the contender waits.
	Permits int
	// Of is the number of permits of the semaphore. Of is 0 if the number is not known.
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
