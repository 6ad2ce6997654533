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
	AheadHolds bool // nobody is ahead of that one

	// Of a wait for permits: how many it is for, and how many this process has. Whoever is ahead then
	// waits for permits, too: those who have them do not queue.
	Permits int
	Taken   int
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
	text := fmt.Sprintf("tier: acquire %s: waited %v: %v", e.Path, e.Waited.Round(time.Millisecond), e.Err)
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
		return "this process has the lock, since " + stamp(w.Here.Since) + w.Here.hint()
	case w.AheadHolds:
		return w.Ahead.who() + " has the lock"
	case w.Position > 0:
		return fmt.Sprintf("%d processes are ahead, the last of them %s", w.Position, w.Ahead.who())
	}
	return ""
}

// shortage is the obstacle to permits.
func (w Wait) shortage() string {
	var who []string
	switch {
	case w.AheadHolds:
		who = append(who, w.Ahead.who()+" is ahead")
	case w.Position > 0:
		who = append(who, fmt.Sprintf("%d processes are ahead, the last of them %s", w.Position, w.Ahead.who()))
	}
	if w.Taken > 0 {
		who = append(who, fmt.Sprintf("this process has %d of the permits", w.Taken))
	}
	return strings.Join(who, "; ")
}

// stand takes what the store has told of the place in the queue.
func (w *Wait) stand(s second.Standing) {
	w.Position, w.Ahead, w.AheadHolds = s.Ahead, contender(s.Nearest), s.Ahead == 1
}

func (h *Here) hint() string {
	if h.Carried {
		return fmt.Sprintf("; the hold in the context of this call is released, but %d that entered again are not", h.Holds)
	}
	return ", and the context of this call carries no hold: an owner enters again with the context of its hold only"
}

// who names the process in words.
func (c Contender) who() string {
	var b strings.Builder
	switch {
	case c.PID != 0:
		fmt.Fprintf(&b, "process %d on %s", c.PID, c.Host)
		if c.Label != "" {
			fmt.Fprintf(&b, " (%s)", c.Label)
		}
	case c.ID != "":
		b.WriteString("contender " + c.ID)
	default:
		b.WriteString("another process")
	}
	if !c.Since.IsZero() {
		b.WriteString(", in the queue since " + stamp(c.Since) + ",")
	}
	return b.String()
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
		w.stand(asked.Standing())
	}
	return w
}
