package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// The errors of all stores. They are wrapped, often together with an error of the store: test with errors.Is.
var (
	// ErrLocked is returned by TryAcquire if another goroutine or process holds the lock or waits for it, or if the store is in a grace
	// period, see [GracePeriodError].
	ErrLocked = second.ErrLocked
	// ErrLost means that the lock was lost while it was held. It is final for that hold.
	ErrLost = second.ErrLost
	// ErrReleased means that the hold was released before. [Mutex.Break] and [Semaphore.Break] return it if no contender has the token.
	ErrReleased = second.ErrReleased
	// ErrClosed means that the registry is closed or being shut down.
	ErrClosed = second.ErrClosed
	// ErrCannotUpgrade means that the write lock was requested with the context of a hold that reads. Two readers that both upgrade
	// would deadlock.
	ErrCannotUpgrade = errors.New("a reader cannot become the writer: release the hold first")
	// ErrTooManyPermits means that a call wants more permits than the semaphore has. The number in the store counts; see
	// [Semaphore.SetPermits].
	ErrTooManyPermits = second.ErrTooManyPermits
	// ErrUnknown means that the outcome of a guarded write is ambiguous: the answer was lost, or the context ended first, whose cause is
	// wrapped, too. The write may have taken effect or may yet, but not after another process has acquired the lock. Read the data
	// before you decide what to do. zklock.Multi, etcdlock.Txn, pglock.Tx and redislock.Eval return it. A write that was refused because
	// the lock is lost returns [ErrLost] instead. [Mutex.Break] and [Semaphore.Break] return ErrUnknown if
	// the contender may have been removed, or may yet be.
	ErrUnknown = second.ErrUnknown
	// ErrUnavailable means that the store grants no lock at the moment: it cannot be reached, refuses or does not answer a request, or
	// has not renewed a session or lease yet. Try again later. Every error of TryAcquire wraps it, or [ErrLocked], [ErrClosed], the
	// cause of ctx, or an error of the store that trying again cannot fix. All errors of [Registry.Err] wrap it, except a
	// [*GracePeriodError] and ErrClosed. So do errors of a wait that ends in such a state.
	ErrUnavailable = second.ErrUnavailable
	// ErrWaitLimit means that the lock was not acquired within the limit of [WithMaxWait].
	ErrWaitLimit = errors.New("wait limit reached")
)

// A GracePeriodError means that the store grants no lock until the time in its field Until, for the reason in its field Reason. A server
// that was started or promoted may not know all locks that were granted before. It therefore waits until their longest lease has ended.
// Locks that it knows stay held. PostgreSQL and Redis have grace periods; ZooKeeper and etcd need none.
//
// Get it with errors.As, as a *GracePeriodError, from the error of TryAcquire, which wraps [ErrLocked] as well, from that of
// [Registry.Err], and from a [*WaitError], which also has it as a field.
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

// await returns nil when the waiter is chosen, and otherwise the reason why not; then nothing is left of the waiter.
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
	if r.draining() { // a shutdown from now on wakes w
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

// A Wait describes a wait for a lock or for permits, and what blocks it, as far as this process knows from queueing. Reading it sends no
// request.
type Wait struct {
	Path   string
	Waited time.Duration

	// Here is the hold of this process; nil if the process does not hold the lock.
	Here *Here

	// Position is the number of processes ahead in the queue of the store, and Ahead the one right ahead. Both are zero if this process
	// has not seen the queue yet, or holds the lock.
	Position   int
	Ahead      Contender
	AheadHolds bool // Ahead holds the lock: it is first, and there is no grace period

	// GracePeriod is the grace period of the store; nil if there is none.
	GracePeriod *GracePeriodError

	// Refusal is why the store refused, or did not answer, the last request of this process for the lock although it can be reached, for
	// example because it has no memory left. It is nil if the request was served. The process repeats such a request until it is served.
	Refusal error

	// Of a wait for permits: how many it wants, how many this process has, and whether it is first in the queue, so that too few are
	// free. Ahead then waits as well: processes that have permits are not in the queue.
	Permits int
	Taken   int
	First   bool
}

// Here describes the hold of this process that blocks a wait in the same process.
type Here struct {
	Since time.Time
	Token int64
	Holds int // unreleased holds: more than one after reentrant acquisitions, or with several readers

	// Carried is true if the context of the call carries a released hold of this lock. Another hold of the same call tree is then not
	// released yet. Otherwise the owner is another goroutine, or the caller itself without the context of its hold.
	Carried bool
}

// A WaitError is returned by [Mutex.Acquire] when a wait ended without the lock: its context ended, its limit was reached, or the
// registry was closed. Get it with errors.As, as a *WaitError. It wraps the cause.
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
	return fmt.Sprintf("%d processes are ahead, the nearest is %s%s", w.Position, w.Ahead.who(), w.Ahead.since())
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
		return fmt.Sprintf("this process has the lock, since %s: the hold in the context of this call was released, but "+
			"%d reentrant holds were not", stamp(h.Since), h.Holds)
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

// A Contender is one process in the queue for a lock, or one that has permits of a semaphore. Fields that the store does not show, or not
// with these permissions, are zero.
type Contender struct {
	ID    string    // its name in the queue, such as the name of the node in ZooKeeper
	Token int64     // fencing token it has as holder
	Since time.Time // when it queued, by the clock of ZooKeeper or PostgreSQL, elsewhere by that of its process

	// HeldSince is when the present hold began, if it belongs to this process; otherwise it is zero, because only the holder knows. Since
	// is not the start of a hold: a process stays in the queue while it hands the lock off among its goroutines.
	HeldSince time.Time

	// Self-reported by the process; zero for other libraries. Strings, including ID, are cut after 256 bytes with "…", and characters that
	// are not printable are escaped.
	Host  string
	PID   int
	Label string

	// Linger is how long the process may keep the lock while it is idle ([WithLinger]). Lingering is true if it does so now, which only
	// that process itself can see.
	Linger    time.Duration
	Lingering bool
	// Shared is true for a reader of an [RWMutex]. Readers at the head of the queue hold the lock together.
	Shared bool
	// Asked is true if [Mutex.Revoke] or Curator's Revoker has asked it to release the lock. Curator's request replaces the description of
	// the process.
	Asked bool

	// InGracePeriod is true if it is first but does not hold the lock yet: see [GracePeriodError].
	InGracePeriod bool

	// Permits is how many permits of a semaphore it has; 0 for one that waits.
	Permits int
	// Of is the number of permits of the semaphore; 0 if it is not known.
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
