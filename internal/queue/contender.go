package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Contender is one in the queue for a lock, and the grant when it has that. It is enrolled in its session from before it enters
// until it is given up.
type Contender struct {
	claim   *claim
	session *session
	id      string
	wake    mutexbool.Bool // look again

	token  atomic.Int64 // 0 until it is known
	weight atomic.Int64 // permits that it wants, or has
	queues atomic.Bool  // maybe; not before it enters, and not once it is known to be gone
	doomed atomic.Bool  // an Enter that removes it may have been executed

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends with life, and when it is given up
	quit   context.CancelCauseFunc

	contested atomic.Pointer[contention.Signal]
	revoked   mutexbool.Bool

	shared  atomic.Bool // it reads, or a command was sent that may make it read
	opening sync.Mutex  // guards the field below; one Share at a time is at it, for as long as that takes
	opened  bool        // by Share

	following sync.Once   // in which it follows, unless it was given up before
	follows   bool        // valid after that
	later     *time.Timer // until it follows; nil if it has waited

	mu      sync.Mutex    // guards the fields below; before that of the lease
	said    View          // the newest
	heard   time.Duration // when that came
	gap     time.Time     // when the lock is to be left to others who cannot be seen
	unseen  int64         // at which it was seen not to queue
	granted time.Time     // the zero time before

	pending  atomic.Int32 // guarded writes that may still take effect
	spent    atomic.Bool  // given up
	reaped   atomic.Bool  // left to the reaper
	ending   sync.Once
	fate     error         // what Release says about the end; valid when released is closed
	released chan struct{} // closed when it is gone, or left to the reaper
}

// enrol makes a contender that is yet to enter.
func (l *claim) enrol(ctx context.Context, patient bool) (*Contender, error) {
	t, err := l.tier, context.Cause(ctx)
	if err == nil && patient {
		err = t.reaper.Room(ctx)
	}
	if err != nil {
		return nil, t.explain(err)
	}
	for {
		x, err := t.present(ctx, patient)
		if err != nil {
			return nil, err
		}
		if c := l.contenderUnder(x); c.session.Enrol(c) == nil {
			t.contenders.Store(c.id, c)
			if t.ctx.Err() != nil { // End may not have seen it
				c.session.End(second.ErrClosed)
			}
			return c, nil
		}
	}
}

func (l *claim) contenderUnder(x *session) *Contender {
	t := l.tier
	c := &Contender{claim: l, session: x, id: t.store.Name(x.name), released: make(chan struct{})}
	if t.config.Apart {
		c.session = t.newSession(x.name, x.ttl, t.Now())
	}
	// Not derived from the context of Acquire, which bounds only the wait.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.tenure, c.quit = context.WithCancelCause(c.life)
	c.contested.Store(contention.New(c.attend))
	c.shared.Store(l.mode == second.Reading)
	return c
}

// attend has whoever stands behind be seen.
func (c *Contender) attend() {
	c.follow()
	if c.newest().Again > 0 {
		c.claim.tier.Spawn(func() { c.send(c.command(Look)) })
	}
}

// Ref is how the store finds the contender.
func (c *Contender) Ref() Ref {
	return Ref{Path: c.claim.path, ID: c.id, Reads: c.claim.mode == second.Reading, Token: c.token.Load(), Permits: c.claim.permits}
}

func (c *Contender) command(op Op) Command {
	return Command{Op: op, Session: c.session.name, Ref: c.Ref(), Weight: int(c.weight.Load()), Linger: c.claim.linger}
}

// send sends a command about the contender once. Its answer is waited for whoever has lost interest: else nobody would know
// whether it queues.
func (c *Contender) send(cmd Command) Answer { return c.sendFor(c.claim.tier.ctx, cmd) }

// sendFor waits no longer than for ctx.
func (c *Contender) sendFor(ctx context.Context, cmd Command) Answer {
	t := c.claim.tier
	sent := t.Now()
	a := t.do(ctx, cmd)
	a.View.Sent = sent
	switch {
	case a.Outcome == Unknown || a.Begun:
		if cmd.Op == Enter || cmd.Op == Try {
			c.queues.Store(true)
			c.session.doubtful.Store(true)
		}
	case a.Outcome == Expired:
		t.expire(c.session, a.Err)
		a.Err = errGone
	case a.Outcome == Gone:
		a.Err = errGone
	case a.Outcome == Done:
		c.apply(a.View)
	}
	return a
}

// enter appends the contender to the queue. The same command is sent until it is answered: a later one finds what an earlier one
// has done.
func (c *Contender) enter(ctx context.Context, old *Contender) error {
	cmd := c.command(Enter)
	if old != nil {
		cmd.Old = old.Ref()
	}
	return c.claim.tier.repeat(ctx, func() (Outcome, error) {
		a := c.send(cmd)
		if old != nil {
			old.requeued(a)
		}
		return a.Outcome, a.Err
	})
}

// tryOnce holds the lock if nobody is in the way.
func (c *Contender) tryOnce() error {
	a, locked := c.send(c.command(Try)), second.ErrLocked
	if a.Quarantined || a.View.Quarantined {
		locked = c.claim.tier.Quarantine().Locked()
	}
	switch {
	case a.Outcome == Locked:
		return locked
	case a.Outcome != Done:
		return a.Err
	case c.hold():
		return nil
	case !c.newest().Has: // who was in the way showed too late
		return locked
	}
	return errors.New("the lease has run out and is not renewed yet")
}

// wait waits until the contender has the lock, and holds it. errGone says that it has to start again.
func (c *Contender) wait(ctx context.Context, w *second.Wait, d *second.Demand) error {
	c.follow()
	defer w.Forget()
	for pace := shortest; ; pace = min(2*pace, longest) {
		c.wake.Clear()
		var changed <-chan struct{} // the demand has
		if d != nil {
			d.Changed.Clear()
			changed = d.Changed.C()
		}
		if c.lost() {
			return errGone
		}
		if err := c.newest().Err; err != nil {
			return err
		}
		if c.hold() { // else it is not its turn, or the lease has run out and may be renewed
			return nil
		}
		if v := c.newest(); v.Ahead > 0 || v.Quarantined { // else it waits for permits, and for nobody, or that is yet to be told
			w.Stands(c.standing)
		}
		if d != nil {
			if err := c.bid(ctx, d); err != nil {
				return err
			}
		}
		if err := c.awaitNews(ctx, pace, changed); err != nil {
			return c.claim.tier.explain(err)
		}
	}
}

// shortest and longest are the times between two looks at somebody who tells nobody.
const shortest, longest = 10 * time.Millisecond, 100 * time.Millisecond

// awaitNews waits until the contender is told something, something has changed, or it has to look again.
func (c *Contender) awaitNews(ctx context.Context, pace time.Duration, changed <-chan struct{}) error {
	var look <-chan time.Time
	if again := c.newest().Again; again > 0 {
		if again <= longest {
			again = min(again, pace)
		}
		timer := time.NewTimer(again)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-c.wake.C():
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-look:
		if c.send(c.command(Look)).Outcome != Done {
			return c.claim.tier.answering(ctx)
		}
	}
	return nil
}

// standing is what was said of those ahead.
func (c *Contender) standing() second.Standing {
	v := c.newest()
	s := second.Standing{Ahead: v.Ahead}
	if v.Ahead > 0 {
		s.Nearest = v.Nearest
	}
	if v.Quarantined {
		s.Quarantine = c.claim.tier.Quarantine()
	}
	return s
}

// follow has the store tell of the contender, until that is given up.
func (c *Contender) follow() {
	c.following.Do(func() {
		if follower := c.claim.tier.follower; follower != nil {
			c.follows = true
			follower.Follow(c.Ref())
		}
	})
}

func (c *Contender) unfollow() {
	if c.later != nil {
		c.later.Stop()
	}
	c.following.Do(func() {}) // nor later
	if c.follows {
		c.claim.tier.follower.Unfollow(c.Ref())
	}
}

// apply takes over how the contender stands.
func (c *Contender) apply(v View) {
	if !c.takes(v) {
		c.missing(v)
	} else if c.claim.tier.config.Apart && v.Known {
		c.session.Renew(v.Sent)
	}
	c.wake.Set()
}

// takes reports false if the contender has been removed from its place in the queue. Views come in several ways, and a process
// can be stopped before it looks at one: what counts is the order of the store. Only an answer to what was sent since is newer in
// any case, as that order may be set back. Where the contender has not been seen to queue, it may be yet to come there; what was
// said before it was missing, does not count any more.
func (c *Contender) takes(v View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queued, token := c.said.Known, c.token.Load()
	switch {
	case !v.Known && v.Err != nil:
		return false // it cannot stay, whatever was said since
	case queued && v.At < c.said.At && v.Sent <= c.heard:
		return true // overtaken
	case !v.Known:
		c.unseen = max(c.unseen, v.At)
		return !queued
	case v.At <= c.unseen:
		return false
	case token != 0 && v.Token != token:
		return false // a late command has given it another place; the one that it had is lost
	}
	if !queued {
		c.queues.Store(true)
	}
	c.token.Store(v.Token)
	c.said, c.heard = v, c.claim.tier.Now()
	if v.Yield > 0 {
		c.gap = time.Now().Add(v.Yield)
	}
	if v.Asked {
		c.revoked.Set()
	}
	since := time.Now()
	if v.Sent > 0 {
		since = c.claim.tier.origin.Add(v.Sent)
	}
	c.contestLocked(since)
	return true
}

// contestLocked tells the holder of one who has waited since then.
func (c *Contender) contestLocked(since time.Time) {
	signal := c.contested.Load()
	if !c.gap.IsZero() {
		signal.Suspect(c.gap)
	}
	if !c.granted.IsZero() && c.said.Behind && !signal.Raised() {
		if since.Before(c.granted) {
			since = c.granted
		}
		signal.Raise(since)
	}
}

func (c *Contender) newest() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// hold makes a contender that has the lock the holder. Nobody can come before it any more, so that this is right however old the
// word is, if the lease runs: each renewal tells of a loss before it counts.
func (c *Contender) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.said.Has || !c.session.Hold(c) {
		return false
	}
	c.granted = time.Now()
	c.loss.Held()
	c.contestLocked(c.granted)
	if c.claim.tier.follower != nil { // a short hold costs no looking; one that lasts has to hear of its removal
		c.later = time.AfterFunc(c.session.ttl/6, c.follow)
	}
	return true
}

// Missing says that a command has not found the contender, and returns what that makes of it.
func (c *Contender) Missing() error {
	c.missing(View{})
	return c.Err()
}

// missing says that the contender is not at its place any more, and maybe not in the queue at all. That is a loss unless it was
// given up: then it is most often our own doing, and the answer to that tells.
func (c *Contender) missing(v View) {
	if v.Known {
		c.queues.Store(true) // elsewhere, and has to be removed
	}
	if c.spent.Load() {
		return
	}
	c.lossAt(c.claim.tier.Now()) // a lease that is over has ended before
	loss := c.removed()
	switch {
	case errors.Is(v.Err, second.ErrLost):
		loss = v.Err
	case v.Err != nil:
		loss = second.Lost(second.ByOther, "%s: %w", c.claim.path, v.Err)
	case !v.Known:
		c.queues.Store(false)
	}
	c.session.Lose(c, loss)
}

// removed is the loss of a contender that somebody else has removed.
func (c *Contender) removed() error {
	return second.Lost(second.ByDeletion, "%s", c.claim.tier.config.Lost(c.Ref()))
}

// lose ends the hold, or the wait. If it still queues, others wait behind it: it goes when the owner has given it up, who may need
// the margin to come to an end.
func (c *Contender) lose(reason error) {
	c.end(reason)
	c.reportLoss(reason)
	c.wake.Set()
	if c.queues.Load() {
		time.AfterFunc(c.claim.tier.margin(c.session.ttl), c.settle)
	}
}

func (c *Contender) reportLoss(cause error) {
	t := c.claim.tier
	c.loss.Tell(cause, func() {
		t.Spawn(func() {
			t.config.Logger.Warn(t.config.Package+": lock lost", "path", c.claim.path, "token", c.token.Load(), "cause", cause)
		})
	})
}

func (c *Contender) lost() bool { return c.life.Err() != nil }

// giveUp comes before the contender leaves the queue, and returns the loss, which is none from then on unless the answer to that
// says so; [second.ErrReleased] if it was given up before.
func (c *Contender) giveUp() (loss error) {
	if c.spent.Swap(true) {
		return second.ErrReleased
	}
	c.lossAt(c.claim.tier.Now())
	c.quit(second.ErrReleased)
	c.session.Leave(c)
	c.unfollow() // before its place goes, which is no loss
	return context.Cause(c.life)
}

// leave removes a contender that was given up, without waiting for the answer. A loss is what became of the lock before, nil if
// it was held to the end.
func (c *Contender) leave(loss error) {
	t := c.claim.tier
	switch {
	case !c.queues.Load(): // by another hand, and nobody has said so yet; or it never entered
		c.finish(cmp.Or(loss, c.removed()))
	case c.session.Over() && !t.config.OwnTTL:
		c.queues.Store(false) // it goes with the session
		c.finish(loss)
	case t.unreachable() != nil || !t.Spawn(func() { c.sendLeave(loss) }):
		c.finish(loss)
	}
}

func (c *Contender) sendLeave(loss error) {
	switch a := c.send(c.command(Leave)); a.Outcome {
	case Done:
		c.left(a.Removed, loss)
	case Expired: // with all that was under it
		c.left(Missing, loss)
	case Denied:
		c.finish(cmp.Or(loss, fmt.Errorf("%w; it stays in the queue until its lease ends, and even this process queues behind it", a.Err)))
	default:
		c.finish(loss)
	}
}

// left follows a command that has removed the contender, or not found it. While the lease runs, nothing but another hand takes it
// away.
func (c *Contender) left(r Removal, loss error) {
	if r == Missing && loss == nil && !c.doomed.Load() && c.session.Valid() {
		loss = c.removed()
	}
	c.queues.Store(false)
	c.finish(loss)
}

// requeued is told what became of a command that removes the contender, which was given up and not lost then, and appends another.
func (c *Contender) requeued(a Answer) {
	switch {
	case a.Outcome == Unknown || a.Begun:
		c.doomed.Store(true)
	case a.Outcome == Done && a.Removed == Kept:
		c.leave(nil)
	case a.Outcome == Done:
		c.left(a.Removed, nil)
	}
}

// finish says that nobody has to wait for the end of the contender any more.
func (c *Contender) finish(fate error) {
	c.settle()
	c.ending.Do(func() {
		c.reportLoss(fate)
		c.fate = fate
		close(c.released)
	})
}

func (c *Contender) finished() bool {
	select {
	case <-c.released:
		return true
	default:
		return false
	}
}

// settle forgets a contender that is known to be gone, and leaves any other to the reaper.
func (c *Contender) settle() {
	t := c.claim.tier
	if !c.queues.Load() {
		t.contenders.CompareAndDelete(c.id, c)
	} else if !c.reaped.Swap(true) {
		t.reaper.Add(remains{contender: c, until: t.Now() + c.session.ttl})
	}
}

// remains are a contender that nobody wants any more.
type remains struct {
	contender *Contender
	until     time.Duration // when its lease is over at the latest, where that is its own
	denied    bool          // which was reported
}

// remove tries once to remove a contender, and reports whether it is certain to be gone, as far as the commands that were
// answered can make it; see [Tier.audit] for the others.
func (t *Tier) remove(item *remains) bool {
	c := item.contender
	over := !t.config.OwnTTL && c.session.Over() || t.config.OwnTTL && t.Now() >= item.until
	var a Answer
	if !over {
		a = c.send(c.command(Leave))
	}
	if over || a.Outcome == Done {
		c.queues.Store(false)
		c.settle()
		return true
	}
	c.session.doubtful.Store(true)
	if a.Outcome == Denied && !item.denied {
		item.denied = true
		t.config.Logger.Warn(t.config.Package+": cannot remove a contender; "+
			"it stays in the queue until its lease ends, also in the way of this process",
			"path", c.claim.path, "id", c.id, "err", a.Err)
	}
	return false
}
