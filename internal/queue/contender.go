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

// A Contender is an entry in the queue for a lock. Once the store has granted it the lock, it is also the grant. If the lease of its
// session ends before the contender is given up, the contender is lost.
type Contender struct {
	claim   *claim
	session *session
	id      string
	wake    mutexbool.Bool // set when the waiter has to look at the state again

	token   atomic.Int64 // 0 until it is known
	weight  atomic.Int64 // how many permits it wants or has
	permits atomic.Int64 // the total number of permits that it names when it enters; 0 for a lock
	queues  atomic.Bool  // it may be in the queue; false before it enters, and once it is known to be removed
	doomed  bool         // an unanswered Enter of its successor may have removed it, so its absence is no loss; valid once it is removed

	failed atomic.Pointer[error] // why its last command failed, nil if that succeeded; a nil pointer before the first failure

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends when life ends, and when the contender is given up
	quit   context.CancelCauseFunc

	contended atomic.Pointer[second.Contention]
	revoked   mutexbool.Bool

	lessened atomic.Bool // some of its permits were given up, and it kept others
	insists  atomic.Bool // a task repeats the new weight until the store accepts it

	shared  atomic.Bool // it is a reader, or a command was sent that may make it one
	opening sync.Mutex  // guards the field below; open holds it until its command is answered
	opened  bool        // Share has made it a reader

	following sync.Once // subscribes to the store's notifications, or does nothing if the contender was given up before
	follows   bool      // it has subscribed; valid once following is done
	departing sync.Once // starts its removal

	mu      sync.Mutex    // guards the fields below; locked before the mutex of the lease
	said    View          // the newest view; only At is set before the contender is seen in the queue, and once it is missing
	heard   time.Duration // when that view arrived
	granted time.Time     // when it became the holder; zero before that
	lasting *time.Timer   // subscribes after a sixth of the TTL as the holder; nil before the grant, and if the store is no Follower

	Turn     sync.Mutex    // for stores that send the guarded writes of a contender one after the other
	pending  atomic.Int32  // how many guarded writes may still take effect
	saves    atomic.Int64  // how many calls of Save there were
	entered  chan struct{} // closed once it has entered, or was refused
	refusal  error         // why it was refused; valid once entered is closed
	givenUp  atomic.Bool
	fate     error          // what Release says about the end; valid once it is released
	released mutexbool.Bool // it is removed, or callers need not wait for the removal any longer
}

// enrol makes a new contender enter the queue. If old is not nil, the new contender replaces old, which was given up.
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
		t.contenders.Store(c.id, c) // before Spawn, since the end of the tier ends all contenders in this map
		if !t.Spawn(func() { c.refusal = enter(c, old); close(c.entered) }) {
			return nil, second.ErrClosed
		}
		return c, nil
	}
}

// maxLeft limits the number of abandoned contenders that are not removed yet. At the limit, new contenders wait until some are removed.
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
	// The context of Acquire bounds only the wait. The context of the contender is therefore not derived from it.
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
		if d != nil {
			c.claim.tier.quitters.Store(c.claim.path, c) // before abandon, at whose end forget deletes it
		}
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

// explain returns the error of a wait. If it is known why the wait took so long, explain adds the reason.
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
	return Command{
		Op: op, Session: c.session.name, Ref: c.Ref(), Writes: c.claim.mode == second.Writing,
		Weight: int(c.weight.Load()), Linger: c.claim.linger,
	}
}

// send sends a command about the contender once. It waits for the answer even after the caller has stopped waiting. Otherwise it would be
// unknown whether the contender is in the queue.
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

// enter appends the contender to the queue. It repeats the same command until an answer arrives. A repeated command finds the effect of
// an earlier one, and does not add the contender twice.
func (c *Contender) enter(old *Contender) error {
	cmd, removed := c.command(Enter), Kept
	if old != nil {
		cmd.Old, cmd.Unsettled = old.Ref(), !old.Idle()
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
	case !c.newest().Has: // since the Try, the store has found that another contender blocks this one
		return locked
	}
	return second.Unavailable(errors.New("the lease has ended and is not yet renewed"))
}

// wait waits until the store grants the contender the lock, and then makes it the holder.
func (c *Contender) wait(ctx context.Context, w *second.Wait, d *second.Demand) error {
	c.follow()
	defer w.Forget()
	for pace, ahead := shortest, ""; ; pace = min(2*pace, longest) {
		if next := c.newest().Nearest.ID; next != ahead { // another contender is next now and may release soon, so poll often again
			pace, ahead = shortest, next
		}
		c.wake.Clear()
		var changed <-chan struct{} // tells that the demand has changed
		if d != nil {
			d.Changed.Clear()
			changed = d.Changed.C()
		}
		if err := cmp.Or(context.Cause(c.life), c.newest().Err, context.Cause(ctx)); err != nil {
			return c.explain(err)
		}
		if c.hold() { // false if it is not first yet, or if the lease has run out, which a renewal may change
			return nil
		}
		if v := c.newest(); v.Ahead > 0 || v.InGracePeriod { // otherwise it only waits for free permits, or its place is unknown
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
		c.awaitNews(ctx, pace, changed) // the next round checks whether ctx has ended
	}
}

// shortest and longest bound the time between two polls of a lock for which the store sends no notifications.
const shortest, longest = 10 * time.Millisecond, 100 * time.Millisecond

// awaitNews returns at the first of these events: a notification about the contender, its loss, a change of the demand, the time of the
// next poll, or the end of ctx.
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

// follow makes the store report the state of the contender until the contender is given up.
func (c *Contender) follow() {
	c.following.Do(func() {
		if follower := c.claim.tier.follower; follower != nil {
			c.follows = true
			follower.Follow(c.Ref())
		}
	})
}

func (c *Contender) unfollow() {
	c.following.Do(func() {}) // from now on follow does nothing
	c.mu.Lock()
	if c.lasting != nil {
		c.lasting.Stop()
	}
	c.mu.Unlock()
	if c.follows {
		c.claim.tier.follower.Unfollow(c.Ref())
	}
}

// apply handles a new view of the contender.
func (c *Contender) apply(v View) {
	if !c.takes(v) {
		c.missing(v)
	} else if c.claim.tier.config.Apart && v.Known {
		c.session.Renew(v.Sent)
	}
	c.wake.Set()
}

// This method stores a new view, unless a newer one is known. It returns false if the view shows that the contender has lost its place in
// the queue.
//
// Views arrive in several ways, and late if the process was paused. They are therefore ordered by At, which the store sets. There is one
// exception, since the store's order may be set back: the answer to a command that was sent after the last view arrived is always newer.
//
// The first line that fits applies. A view is older if its At is lower than that of the known view, unless it answers a command that was
// sent after the known view arrived.
//
//	view                                  what is known before               result
//	not in the queue, with an Err         anything                           lost: the contender cannot stay
//	older                                 the contender was in the queue     ignored
//	not in the queue                      it was never in the queue          stored: it may be about to enter
//	not in the queue                      it was in the queue                lost
//	older, or as old                      it was not in the queue            lost: a newer view says that it is not in the queue
//	in the queue, with another token      its token                          lost: a late command gave it another place
//	in the queue                          anything else                      stored
func (c *Contender) takes(v View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queued, token := c.said.Known, c.token.Load()
	switch {
	case !v.Known && v.Err != nil:
		return false // the contender cannot stay in the queue, even if a newer view is known
	case queued && v.At < c.said.At && v.Sent <= c.heard:
		return true // this view is older than the known one
	case !v.Known:
		c.said, c.heard = View{At: max(c.said.At, v.At)}, c.claim.tier.Now()
		return !queued
	case !queued && v.At <= c.said.At && v.Sent <= c.heard:
		return false
	case token != 0 && v.Token != token:
		return false // a late command has given the contender another place; its first place is lost
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

// contestLocked tells the holder if another contender waits, and that it has waited since the given time. If the view has a Yield,
// contestLocked also tells when the holder should make way for programs that do not use the queue.
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

// hold makes the contender the holder if the store has granted it the lock. New contenders enter at the tail, so a contender that is first
// stays first. An old view may therefore be trusted while the lease is valid: a renewal applies all losses before it extends the lease.
func (c *Contender) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.granted.IsZero() || !c.said.Has || !c.session.Hold(c) {
		return !c.granted.IsZero()
	}
	if t := c.claim.tier; t.follower != nil { // only a long hold subscribes, to learn of its removal
		c.lasting = time.AfterFunc(c.session.ttl/6, func() { t.Spawn(c.follow) })
	}
	c.granted = time.Now()
	c.loss.Held()
	c.contestLocked(c.granted)
	return true
}

// Missing is called when a command has not found the contender. It records the loss, and returns the error for the caller of the command.
func (c *Contender) Missing() error {
	c.missing(View{})
	return c.Err()
}

// The method missing is called when the contender is not at its place any more; it may not be in the queue at all. This is a loss, unless
// the contender was given up. In that case its own command has usually removed it, and the answer to that command shows whether it was lost
// before.
func (c *Contender) missing(v View) {
	if v.Known {
		c.queues.Store(true) // it is at another place, and has to be removed from there
	}
	if c.givenUp.Load() {
		return
	}
	c.lossAt(c.claim.tier.Now()) // if the lease has run out, that is recorded as the cause
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

// Lose ends the hold or the wait of the contender. Its owner may need the time of the margin to stop. After the margin, the contender is
// removed from the queue, because other contenders wait behind it.
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

// giveUp marks the contender as given up, and returns its loss. If the contender was given up before, giveUp returns
// [second.ErrReleased]. Afterwards only the answer to its removal can still show a loss. The caller has to call depart next.
func (c *Contender) giveUp() error {
	if c.givenUp.Swap(true) {
		return second.ErrReleased
	}
	loss := c.lossAt(c.claim.tier.Now())
	c.quit(second.ErrReleased)
	c.session.Leave(c)
	c.unfollow() // before its place is removed, because that removal is no loss
	return loss
}

// abandon gives the contender up and removes it in the background.
func (c *Contender) abandon() (loss error) {
	if loss = c.giveUp(); !errors.Is(loss, second.ErrReleased) {
		c.depart(Kept)
	}
	return loss
}

// depart removes the contender, after the commands by which it enters are answered. If an answer has already shown that the contender was
// removed, depart sends no command, even if a late view still shows the contender.
func (c *Contender) depart(removed Removal) {
	c.departing.Do(func() {
		if removed != Kept {
			c.forget(c.lossBy(removed, context.Cause(c.life)))
		} else if !c.claim.tier.Spawn(func() { <-c.entered; c.leave() }) {
			c.leave()
		}
	})
}

// leave repeats the removal of the contender until an answer shows that it is removed. A command that was never answered may still create
// the contender again; [Tier.audit] finds such contenders. Callers wait only for the first answer.
func (c *Contender) leave() {
	t, loss := c.claim.tier, context.Cause(c.life)
	if !c.queues.Load() { // it never entered; or another process deleted it, and no loss is recorded yet
		loss = cmp.Or(loss, c.removed())
	}
	var until time.Duration // the latest end of the contender's own lease, on stores with OwnTTL
	denied := false
	for pace := retry.New(); c.queues.Load(); {
		if t.unreachable() != nil {
			c.finish(loss)
			t.answering(t.ctx) // otherwise each leaving contender would send requests that cannot succeed
		}
		if t.ctx.Err() != nil {
			c.finish(loss)
			return // the Goodbye of the tier removes it
		}
		if c.dropped(until) {
			break
		}
		leave := c.command(Leave)
		leave.Unsettled = loss != nil || !c.Idle()
		a := c.send(leave)
		if a.Outcome == Expired { // the session's end has removed the contender
			a.Outcome, a.Removed = Done, Missing
		}
		if a.Outcome == Done {
			loss = c.lossBy(a.Removed, loss)
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
			c.finish(cmp.Or(loss, fmt.Errorf("%w; the queue entry stays until the session ends, and until then also blocks this process", a.Err)))
			t.log.Stays(c.claim.path, c.id, a.Err)
		}
		c.finish(loss)
		c.session.doubtful.Store(true)
		if again { // there is no pause before the second try, which is sent as soon as the store can be reached
			retry.Pause(t.ctx, pace.NextBackOff())
		}
	}
	c.forget(loss)
}

// forget deletes what this process stores about a contender that was removed.
func (c *Contender) forget(loss error) {
	c.queues.Store(false)
	c.claim.tier.contenders.CompareAndDelete(c.id, c)
	c.claim.tier.quitters.CompareAndDelete(c.claim.path, c)
	c.finish(loss)
}

// dropped reports whether the store has dropped the contender without a command, because its session or its own lease has ended.
func (c *Contender) dropped(until time.Duration) bool {
	if t := c.claim.tier; t.config.OwnTTL {
		return until > 0 && t.Now() >= until
	}
	return c.session.Over()
}

// lossBy is called with the answer to the removal of the contender, and returns the loss that it shows. If the contender was
// missing while the lease was valid, another process or an operator has removed it.
func (c *Contender) lossBy(r Removal, loss error) error {
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
