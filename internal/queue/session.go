package queue

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A session is a period for which the store keeps the contenders of this process. Each renewal extends it by the TTL.
//
// Holders trust the session for a shorter time, the TTL less the margin. They count from when the newest answered renewal was sent. The
// store counts from when it received that renewal, which is later.
type session struct {
	*lease.Lease[*Contender]
	name string
	ttl  time.Duration

	doubtful atomic.Bool // the queues may have orphaned contenders of this session; see [Tier.audit]
}

func (t *Tier) newSession(name string, ttl, sent time.Duration) *session {
	return &session{name: name, ttl: ttl, Lease: lease.New[*Contender](lease.Config{
		Name:    t.config.Store + " session " + name,
		Clock:   t.clock,
		Vouches: func() bool { return true },
	}, sent, ttl-t.margin(ttl))}
}

func (t *Tier) margin(ttl time.Duration) time.Duration { return cmp.Or(t.config.Margin, ttl/3) }

// keep opens sessions, one after another, until the tier is closed.
func (t *Tier) keep() {
	for pace := retry.New(); t.ctx.Err() == nil; retry.Pause(t.ctx, pace.NextBackOff()) {
		if x := t.open(); x != nil {
			t.renewUntilOver(x, pace.Reset)
		}
	}
}

// open tries once to open a session.
func (t *Tier) open() *session {
	sent := t.Now()
	a := t.do(t.ctx, Command{Op: Open})
	if a.Outcome == Denied {
		t.refuse(Open, a.Err)
	}
	if a.Outcome != Done {
		return nil
	}
	x := t.newSession(a.Name, a.TTL, sent)
	t.Begin(x.name) // before any goroutine can see the session and end it
	t.learn(func(s *status) { s.session, s.refused = x, nil })
	return x
}

// refuse records why the store refuses to open or renew a session.
func (t *Tier) refuse(op Op, why error) {
	before, _ := t.learn(func(s *status) { s.refused, s.renewal = second.Unavailable(why), op == Beat })
	if before.refused == nil || before.refused.Error() != why.Error() {
		t.config.Logger.Warn(t.config.Package+": no lock can be acquired", "err", why)
	}
}

// renewUntilOver renews a session each quarter of its TTL until the session has ended. While the store does not answer, renewUntilOver
// tries again, because the session and its places in the queues may still exist in the store.
func (t *Tier) renewUntilOver(x *session, well func()) {
	timer := time.NewTimer(x.ttl / 4)
	for pace := retry.New(); !x.Over(); {
		select {
		case <-timer.C:
		case <-t.renew.C():
		case <-t.ctx.Done():
			return
		}
		t.renew.Clear() // before the renewal: a request that comes during it may have a new reason
		if t.beat(x) && t.status.Load().away == nil {
			well()
			pace.Reset()
			timer.Reset(x.ttl / 4)
			continue
		}
		t.renew.Clear() // failed commands have requested a renewal, but the next renewal waits for the backoff
		timer.Reset(pace.NextBackOff())
	}
}

// beat renews a session once.
func (t *Tier) beat(x *session) (renewed bool) {
	beat := Command{Op: Beat, Session: x.name}
	for c := range x.Contenders() {
		if !c.IsLost() {
			beat.Among = append(beat.Among, c.Ref())
		}
	}
	sent := t.Now() // read after Among is complete, so that the views in the answer count as newer than all views before
	a := t.do(t.ctx, beat)
	for _, v := range a.Views { // before the lease is renewed; otherwise a contender that lost its place could become a holder
		v.Sent = sent
		t.tell(v)
	}
	switch a.Outcome {
	case Expired:
		t.expire(x, a.Err)
	case Denied:
		t.refuse(Beat, a.Err)
	case Done:
		t.learn(func(s *status) { s.refused = nil })
		x.Renew(sent)
		for c := range x.Contenders() {
			c.wake.Set() // a contender that is first may have waited only for the renewal
			if a.Doubt {
				c.restate()
			}
		}
		x.doubtful.CompareAndSwap(false, a.Doubt) // never set back to false
		if x.doubtful.Load() && !t.config.OwnTTL {
			t.Spawn(func() { t.audit(x) })
		}
	}
	return a.Outcome == Done
}

// expire ends a session that the store says has expired.
func (t *Tier) expire(x *session, why error) {
	x.End(why)
	t.Connection.End(x.name)
	t.renew.Set()
}

// audit deletes orphaned contenders, which have no owner in this process. A command without an answer creates them when it is executed
// late, for example by a server that was paused and resumed. It may even be executed after its contender was removed. Only the end of the
// session rules that out, because the store refuses commands of an ended session. Until then, the audit finds orphaned contenders.
//
// The audit does not delete a contender whose owner is about to remove it. Otherwise the owner's command would find nothing, and the owner
// would report a loss.
func (t *Tier) audit(x *session) {
	a := t.do(t.ctx, Command{Op: Audit, Session: x.name})
	unwanted := slices.DeleteFunc(a.Present, func(r Ref) bool {
		known, ok := t.contenders.Load(r.ID) // t.contenders has every contender, from before it enters
		if !ok {
			return false
		}
		// After a store was set back to an earlier state, an old contender may be in a queue again, and a contender at another path may
		// have its name now. The paths are therefore compared, but only their beginning, since some stores append to the path.
		c := known.(*Contender)
		return !c.released.IsSet() && strings.HasPrefix(r.Path, c.claim.path) && (!r.Reads || c.claim.mode == second.Reading)
	})
	if len(unwanted) > 0 {
		t.do(t.ctx, Command{Op: Drop, Session: x.name, Among: unwanted})
	}
}

// present waits until there is a session and the store answers. Otherwise callers with short deadlines would send more and more commands
// during an outage, and the store would execute all of them afterwards. present returns an error at once if the store refuses to open a
// session. If patient is false, it also returns at once while the store does not answer.
func (t *Tier) present(ctx context.Context, patient bool) (x *session, err error) {
	left := t.await(ctx, func(s *status) bool {
		x, err = s.session, nil
		if !patient {
			err = t.outage()
		}
		live := x != nil && !x.Over()
		if err == nil && !live && !s.renewal {
			err = s.refused // even if the store cannot be reached at the moment
		}
		return err != nil || live && s.away == nil
	})
	return x, cmp.Or(err, left)
}
