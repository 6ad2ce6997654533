package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Contender is an entry in the queue for a lock; once the store has granted it the lock, it is also the grant. Its session covers it
// from before it enters until it is given up.
type Contender struct {
	claim   *claim
	session *session
	id      string
	wake    mutexbool.Bool // look again

	token   atomic.Int64 // 0 until it is known
	weight  atomic.Int64 // permits that it wants, or has
	permits atomic.Int64 // that there are, as it says when it enters; 0 for a lock
	queues  atomic.Bool  // maybe; not before it enters, and not once it is known to be gone
	doomed  bool         // an Enter was not answered that may have removed it: then it is no loss if it is missing; valid once it is gone

	failed atomic.Pointer[error] // why the last command failed while it waits; nil before the first

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends with life, and when it is given up
	quit   context.CancelCauseFunc

	contended atomic.Pointer[second.Contention]
	revoked   mutexbool.Bool

	lessened atomic.Bool // some of its permits were given up
	insists  atomic.Bool // a task sends the weight until the store takes it

	shared  atomic.Bool // it reads, or a command was sent that may make it read
	opening sync.Mutex  // guards the field below; one Share at a time is at it, for as long as that takes
	opened  bool        // by Share

	following sync.Once // in which it follows, unless it was given up before
	follows   bool      // valid after that
	departing sync.Once // in which it begins to leave

	mu      sync.Mutex    // guards the fields below; before that of the lease
	said    View          // the newest; At alone as long as it has not been seen to queue, or once it is missing
	heard   time.Duration // when that came
	granted time.Time     // the zero time before
	lasting *time.Timer   // fires when it has had the lock for long; nil before, or where nothing has to happen then

	Turn     sync.Mutex    // of a guarded write, where a store has one of a contender after the other under way
	pending  atomic.Int32  // guarded writes that may still take effect
	saves    atomic.Int64  // how many there were
	entered  chan struct{} // closed once it has entered, or was refused
	refusal  error         // valid then
	givenUp  atomic.Bool
	fate     error          // what Release says about the end; valid once it is released
	released mutexbool.Bool // it is gone, or no caller has to wait for that any more
}

// enrol makes a new contender enter the queue. If old is not nil, the new contender takes the place of old, which was given up.
func (l *claim) enrol(ctx context.Context, patient bool, old *Contender, enter func(c, old *Contender) error) (*Contender, error) {
	t, err := l.tier, context.Cause(ctx)
	for pace := retry.New(); patient && err == nil && t.left.Load() >= maxLeft; {
		err = retry.Pause(ctx, pace.NextBackOff())
	}
	if err != nil {
		return nil, t.explain(err)
	}
	for {
		x, err := t.present(ctx, patient)
		if err != nil {
			return nil, err
		}
		c := l.contenderUnder(x)
		if c.session.Enrol(c) != nil {
			continue
		}
		t.contenders.Store(c.id, c) // first: the end of the tier loses all that are there
		if !t.Spawn(func() { c.refusal = enter(c, old); close(c.entered) }) {
			return nil, second.ErrClosed
		}
		return c, nil
	}
}

// maxLeft is the number of abandoned contenders from which on new ones wait until some of these are removed.
const maxLeft = 1024

func (l *claim) contenderUnder(x *session) *Contender {
	t := l.tier
	c := &Contender{
		claim: l, session: x, id: t.store.Name(x.name), entered: make(chan struct{}),
	}
	c.permits.Store(int64(l.ref().Permits))
	if t.config.Apart {
		c.session = t.newSession(x.name, x.ttl, t.Now())
	}
	// Its context is not derived from that of Acquire, which bounds the wait only.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.tenure, c.quit = context.WithCancelCause(c.life)
	c.contended.Store(second.NewContention(c.attend))
	c.shared.Store(l.mode == second.Reading)
	return c
}

// await waits until the contender has the lock. If the wait fails or the caller leaves, the contender is given up.
func (c *Contender) await(ctx context.Context, w *second.Wait, d *second.Demand) (err error) {
	select {
	case <-c.entered:
		err = c.refusal
	case <-ctx.Done():
		err = c.explain(context.Cause(ctx))
	}
	if err == nil && !c.hold() {
		err = c.wait(ctx, w, d)
	}
	if err != nil {
		c.abandon()
	}
	return err
}

// lastFailure returns why the last command failed although the store can be reached, and nil if it succeeded.
func (c *Contender) lastFailure() error {
	if failed := c.failed.Load(); failed != nil && !c.claim.tier.status.Load().silent {
		return *failed
	}
	return nil
}

// explain adds to the error of a wait why it took that long, if that is known.
func (c *Contender) explain(cause error) error { return c.claim.tier.explainBy(cause, c.lastFailure()) }

// attend asks the store to show which contenders wait behind this one, for Contended.
func (c *Contender) attend() {
	c.follow()
	if c.newest().Again > 0 {
		c.claim.tier.Spawn(func() { c.send(c.command(Look)) })
	}
}

// Ref returns what the store needs in order to find the contender.
func (c *Contender) Ref() Ref {
	return Ref{Path: c.claim.path, ID: c.id, Reads: c.claim.mode == second.Reading, Token: c.token.Load(), Permits: int(c.permits.Load())}
}

func (c *Contender) command(op Op) Command {
	return Command{Op: op, Session: c.session.name, Ref: c.Ref(), Weight: int(c.weight.Load()), Linger: c.claim.linger}
}

// send sends a command about the contender once. send waits for the answer even after the caller has left: otherwise it would be unknown
// whether the contender queues.
func (c *Contender) send(cmd Command) Answer { return c.sendFor(c.claim.tier.ctx, cmd) }

// sendFor sends a command about the contender once, and waits for its answer only until ctx ends.
func (c *Contender) sendFor(ctx context.Context, cmd Command) Answer {
	t := c.claim.tier
	sent := t.Now()
	a := t.do(ctx, cmd)
	a.View.Sent = sent
	if why := a.refusal(); why != nil || c.failed.Load() != nil {
		c.failed.Store(&why)
	}
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
	case a.Outcome == Denied && a.Permits > 0:
		c.claim.learn(a.Permits)
		a.Err = errRenumbered
	case a.Outcome == Done:
		c.apply(a.View)
	}
	return a
}

// enter appends the contender to the queue. enter sends the same command until that is answered: a later one finds what an earlier one
// has done.
func (c *Contender) enter(old *Contender) error {
	cmd, removed := c.command(Enter), Kept
	if old != nil {
		cmd.Old = old.Ref()
		defer func() { old.depart(removed) }()
	}
	_, err := c.claim.tier.repeat(c.tenure, func() Answer {
		a := c.send(cmd)
		switch {
		case old == nil:
		case a.Outcome == Unknown || a.Begun:
			old.doomed = true
		case a.Outcome == Done:
			removed = a.Removed
		}
		return a
	})
	return err
}

// tryOnce takes the lock, or the permits, if that is possible at once.
func (c *Contender) tryOnce(weight int64) error {
	if err := c.want(weight); err != nil {
		return err
	}
	a, locked := c.send(c.command(Try)), second.ErrLocked
	if a.InGracePeriod || a.View.InGracePeriod {
		locked = c.claim.tier.GracePeriod().Locked()
	}
	switch {
	case a.Outcome == Locked:
		return locked
	case a.Outcome != Done:
		return cmp.Or(a.refusal(), a.Err)
	case c.hold():
		return nil
	case !c.newest().Has: // who was in the way showed too late
		return locked
	}
	return second.Unavailable(errors.New("the lease has run out and is not renewed yet"))
}

// wait waits until the store grants the contender the lock, and then makes it the holder.
func (c *Contender) wait(ctx context.Context, w *second.Wait, d *second.Demand) error {
	c.follow()
	defer w.Forget()
	for pace, ahead := shortest, ""; ; pace = min(2*pace, longest) {
		if next := c.newest().Nearest.ID; next != ahead { // locks without notifications follow one another: the last one may go as soon
			pace, ahead = shortest, next
		}
		c.wake.Clear()
		var changed <-chan struct{} // the demand has
		if d != nil {
			d.Changed.Clear()
			changed = d.Changed.C()
		}
		if err := cmp.Or(context.Cause(c.life), c.newest().Err, context.Cause(ctx)); err != nil {
			return c.explain(err)
		}
		if c.hold() { // else it is not its turn, or the lease has run out and may be renewed
			return nil
		}
		if v := c.newest(); v.Ahead > 0 || v.InGracePeriod { // else it waits for permits and for no contender, or that is not known yet
			w.Stands(c.standing)
		}
		if d != nil {
			if v := c.newest(); v.Of > 0 && c.weight.Load() > int64(v.Of) {
				return tooMany(int(c.weight.Load()), v.Of)
			}
			if err := c.bid(ctx, d); err != nil {
				return err
			}
		}
		c.awaitNews(ctx, pace, changed) // the end of ctx is seen above
	}
}

// shortest and longest bound the time between two polls of a lock for which the store sends no notifications.
const shortest, longest = 10 * time.Millisecond, 100 * time.Millisecond

// awaitNews waits for the first of these: a notification about the contender, its loss, a change of the demand, the time of the next
// poll, or the end of ctx.
func (c *Contender) awaitNews(ctx context.Context, pace time.Duration, changed <-chan struct{}) {
	var look <-chan time.Time
	if again := c.newest().Again; again > 0 {
		if again <= longest {
			again = min(again, pace)
		}
		look = time.After(again)
	}
	select {
	case <-c.wake.C():
	case <-changed:
	case <-c.life.Done():
	case <-ctx.Done():
	case <-look:
		t := c.claim.tier
		if a, _ := second.Do(ctx, t.Spawn, func() (Answer, error) { return c.send(c.command(Look)), nil }, t.explain); a.Outcome != Done {
			t.answering(ctx)
		}
	}
}

// standing returns what is known about the contenders ahead.
func (c *Contender) standing() second.Standing {
	v := c.newest()
	s := second.Standing{Ahead: v.Ahead, Nearest: v.Nearest}
	if v.InGracePeriod {
		s.GracePeriod = c.claim.tier.GracePeriod()
	}
	return s
}

// follow makes the store report the state of the contender until it is given up.
func (c *Contender) follow() {
	c.following.Do(func() {
		if follower := c.claim.tier.follower; follower != nil {
			c.follows = true
			follower.Follow(c.Ref())
		}
	})
}

func (c *Contender) unfollow() {
	c.following.Do(func() {}) // nor later
	c.mu.Lock()
	if c.lasting != nil {
		c.lasting.Stop()
	}
	c.mu.Unlock()
	if c.follows {
		c.claim.tier.follower.Unfollow(c.Ref())
	}
}

// apply takes over a new state of the contender.
func (c *Contender) apply(v View) {
	if !c.takes(v) {
		c.missing(v)
	} else if c.claim.tier.config.Apart && v.Known {
		c.session.Renew(v.Sent)
	}
	c.wake.Set()
}

// takes takes over a new view. takes reports false if the view says that the contender has been removed from its place in the queue.
// Views arrive in several ways, and late if the process was stopped, so their order is that of the store. The exception is the answer to
// a command that was sent after all that is known: it is newer in any case, since the store's order may be set back. A contender that has
// not been seen in the queue may be about to enter. Views from before it was missing then do not count any more.
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
		c.said, c.heard = View{At: max(c.said.At, v.At)}, c.claim.tier.Now()
		return !queued
	case !queued && v.At <= c.said.At && v.Sent <= c.heard:
		return false
	case token != 0 && v.Token != token:
		return false // a late command has given it another place; the one that it had is lost
	}
	if !queued {
		c.queues.Store(true)
	}
	c.token.Store(v.Token)
	c.said, c.heard = v, c.claim.tier.Now()
	c.claim.learn(v.Of)
	if v.Asked {
		c.revoked.Set()
	}
	since := time.Now()
	if v.Sent > 0 {
		since = c.claim.tier.clock.Time(v.Sent)
	}
	c.contestLocked(since)
	return true
}

// contestLocked notifies the holder that another contender has waited since a time, or that locks without a queue may wait from a time on
// (Yield).
func (c *Contender) contestLocked(since time.Time) {
	signal := c.contended.Load()
	if c.said.Yield > 0 {
		signal.Suspect(c.claim.tier.clock.Time(c.heard + c.said.Yield))
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

// hold makes the contender the holder, after the store has granted it the lock. New contenders go to the tail, so being first is
// permanent: an old view may be trusted while the lease is valid, since each renewal applies losses before it counts.
func (c *Contender) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.granted.IsZero() || !c.said.Has || !c.session.Hold(c) {
		return !c.granted.IsZero()
	}
	if t := c.claim.tier; t.follower != nil { // a short hold costs no looking; one that lasts has to hear of its removal
		c.lasting = time.AfterFunc(c.session.ttl/6, func() { t.Spawn(c.follow) })
	}
	c.granted = time.Now()
	c.loss.Held()
	c.contestLocked(c.granted)
	return true
}

// Missing records that a command has not found the contender, and returns the error for its caller.
func (c *Contender) Missing() error {
	c.missing(View{})
	return c.Err()
}

// missing records that the contender is not at its place any more, and perhaps not in the queue at all. That is a loss, unless the
// contender was given up: then its own command has usually removed it, and the answer to that command says whether it did.
func (c *Contender) missing(v View) {
	if v.Known {
		c.queues.Store(true) // elsewhere, and has to be removed
	}
	if c.givenUp.Load() {
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

// removed returns the loss of a contender that another process has deleted.
func (c *Contender) removed() error {
	return second.Lost(second.ByDeletion, "%s", c.claim.tier.config.Lost(c.Ref()))
}

// Lose ends the hold or the wait of the contender. The owner may still need the margin to stop. After the margin the contender is
// removed, because others wait behind it.
func (c *Contender) Lose(reason error) {
	c.end(reason)
	c.reportLoss(reason)
	time.AfterFunc(c.claim.tier.margin(c.session.ttl), func() { c.depart(Kept) })
}

func (c *Contender) reportLoss(cause error) {
	t := c.claim.tier
	c.loss.Tell(cause, func() {
		t.Spawn(func() { t.log.Lost(c.claim.path, c.token.Load(), cause) })
	})
}

// IsLost reports whether the hold or the wait has ended.
func (c *Contender) IsLost() bool { return c.life.Err() != nil }

// giveUp marks the contender as given up before it leaves the queue, and returns its loss, or [second.ErrReleased] if it was given up
// before. After that only the answer to its removal can still show a loss. The caller has to call depart next.
func (c *Contender) giveUp() error {
	if c.givenUp.Swap(true) {
		return second.ErrReleased
	}
	loss := c.lossAt(c.claim.tier.Now())
	c.quit(second.ErrReleased)
	c.session.Leave(c)
	c.unfollow() // before its place goes, which is no loss
	return loss
}

// abandon gives the contender up and removes it in the background.
func (c *Contender) abandon() (loss error) {
	if loss = c.giveUp(); !errors.Is(loss, second.ErrReleased) {
		c.depart(Kept)
	}
	return loss
}

// depart removes the contender once the commands by which it enters are answered. If an answer has said already that it was removed, no
// command is needed, whatever a late view says of it.
func (c *Contender) depart(removed Removal) {
	c.departing.Do(func() {
		if removed != Kept {
			c.forget(c.left(removed, context.Cause(c.life)))
		} else if !c.claim.tier.Spawn(func() { <-c.entered; c.leave() }) {
			c.leave()
		}
	})
}

// leave sends the removal of the contender until its answer shows that it is gone. Commands that were never answered may still create it
// again; [Tier.audit] finds those. No caller waits for more than the first answer.
func (c *Contender) leave() {
	t, loss := c.claim.tier, context.Cause(c.life)
	if !c.queues.Load() { // another process deleted it, which is not known yet; or it never entered
		loss = cmp.Or(loss, c.removed())
	}
	var until time.Duration // when its lease is over at the latest, where that is its own
	denied := false
	for pace := retry.New(); c.queues.Load(); {
		if t.unreachable() != nil {
			c.finish(loss)
			t.answering(t.ctx) // else each contender that leaves would send a request without an answer
		}
		if t.ctx.Err() != nil {
			c.finish(loss)
			return // a goodbye removes it
		}
		if c.over(until) {
			break
		}
		a := c.send(c.command(Leave))
		if a.Outcome == Expired { // with all that was under the session
			a.Outcome, a.Removed = Done, Missing
		}
		if a.Outcome == Done {
			loss = c.left(a.Removed, loss)
			break
		}
		again := until > 0
		if !again {
			until = t.Now() + c.session.ttl
			t.left.Add(1)
			defer t.left.Add(-1)
		}
		if a.Outcome == Denied && !denied {
			denied = true
			c.finish(cmp.Or(loss, fmt.Errorf("%w; the queue entry stays until the session ends, and blocks this process, too", a.Err)))
			t.log.Stays(c.claim.path, c.id, a.Err)
		}
		c.finish(loss)
		c.session.doubtful.Store(true)
		if again { // else as soon as the store answers
			retry.Pause(t.ctx, pace.NextBackOff())
		}
	}
	c.forget(loss)
}

// forget ends what the process keeps of a contender that is gone.
func (c *Contender) forget(loss error) {
	c.queues.Store(false)
	c.claim.tier.contenders.CompareAndDelete(c.id, c)
	c.finish(loss)
}

// over reports whether the store has dropped the contender without a command: at the end of its session, or of a lease of its own.
func (c *Contender) over(until time.Duration) bool {
	if t := c.claim.tier; t.config.OwnTTL {
		return until > 0 && t.Now() >= until
	}
	return c.session.Over()
}

// left returns the loss that a removal shows. While the lease runs, only another process or an operator can have removed the contender.
func (c *Contender) left(r Removal, loss error) error {
	c.queues.Store(false)
	if r == Missing && loss == nil && !c.doomed && c.session.Valid() {
		return c.removed()
	}
	return loss
}

// finish ends all waits for the removal of the contender.
func (c *Contender) finish(fate error) {
	if !c.released.IsSet() {
		c.reportLoss(fate)
		c.fate = fate
		c.released.Set()
	}
}
