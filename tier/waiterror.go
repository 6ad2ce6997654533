package tier

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

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
	AheadHolds bool // nobody is ahead of that one, and there is no quarantine

	// Quarantine says that the store grants the lock to nobody as yet, nil if it does.
	Quarantine *QuarantineError

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

// stand takes what the store has told of the place in the queue. Before it has, a quarantine is known all the same.
func (w *Wait) stand(s second.Standing, t second.Tier) {
	if s.Ahead == 0 && s.Quarantine == nil {
		s.Quarantine = t.Quarantine()
	}
	w.Position, w.Ahead, w.AheadHolds = s.Ahead, contender(s.Nearest), s.Ahead == 1 && s.Quarantine == nil
	w.Quarantine = s.Quarantine
}

// owner says whose hold it is.
func (h *Here) owner() string {
	if h.Carried {
		return fmt.Sprintf("this process has the lock, since %s: the hold in the context of this call was released, and %d that entered again not yet",
			stamp(h.Since), h.Holds)
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

// wait returns what is known of a wait with ctx that began then.
func (c *cohort) wait(ctx context.Context, m *Mutex, begun time.Duration) Wait {
	w := Wait{Path: c.key.path, Waited: c.registry.now() - begun}
	c.mu.Lock()
	asked := c.under
	if c.state == held {
		carried, _ := ctx.Value(m.key).(*Hold)
		w.Here = &Here{
			Since: c.registry.at(c.since), Token: c.grant.Token(), Holds: int(c.readers.Load()),
			Carried: carried != nil && carried.own.holds.Load() > 0,
		}
		if c.owner != nil {
			w.Here.Holds = c.owner.count()
		}
	}
	c.mu.Unlock()
	if w.Here == nil {
		w.stand(asked.Standing(), c.registry.second)
	}
	return w
}
