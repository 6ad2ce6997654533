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

// A session is the time for which the store keeps this process's contenders.
//
// For holders it lasts TTL less margin, counted from when the newest answered renewal was sent. The store counts from when it received
// that renewal, which is later.
type session struct {
	*lease.Lease[*Contender]
	name string
	ttl  time.Duration

	doubtful atomic.Bool // orphaned contenders may queue under it; see [Tier.audit]
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
		t.refuse(a.Err)
	}
	if a.Outcome != Done {
		return nil
	}
	x := t.newSession(a.Name, a.TTL, sent)
	t.Begin(x.name) // before anybody acts on it
	t.learn(func(s *status) { s.session, s.refused = x, nil })
	return x
}

// refuse records why the store gives or renews no session at the moment.
func (t *Tier) refuse(why error) {
	before, _ := t.learn(func(s *status) { s.refused = second.Unavailable(why) })
	if before.refused == nil || before.refused.Error() != why.Error() {
		t.config.Logger.Warn(t.config.Package+": no lock can be acquired", "err", why)
	}
}

// renewUntilOver renews a session each quarter of its TTL until it is over. While the store does not answer, it goes on trying: the
// session may still exist there, and with it the places in the queues.
func (t *Tier) renewUntilOver(x *session, well func()) {
	timer := time.NewTimer(x.ttl / 4)
	for pace := retry.New(); !x.Over(); {
		select {
		case <-timer.C:
		case <-t.renew.C():
		case <-t.ctx.Done():
			return
		}
		t.renew.Clear() // before the renewal: who asks meanwhile may know of what it has not told
		if t.beat(x) && t.status.Load().away == nil {
			well()
			pace.Reset()
			timer.Reset(x.ttl / 4)
			continue
		}
		t.renew.Clear() // all that failed have asked, and the pace counts
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
	sent := t.Now() // last: what is said of these is newer than all that was said before
	a := t.do(t.ctx, beat)
	for _, v := range a.Views { // before the lease is renewed, or one that was lost could become a holder
		v.Sent = sent
		t.tell(v)
	}
	switch a.Outcome {
	case Expired:
		t.expire(x, a.Err)
	case Denied:
		t.refuse(a.Err)
	case Done:
		t.learn(func(s *status) { s.refused = nil })
		x.Renew(sent)
		for c := range x.Contenders() {
			c.wake.Set() // it may have waited for nothing else
			if a.Doubt {
				c.restate()
			}
		}
		x.doubtful.CompareAndSwap(false, a.Doubt) // for good
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

// audit deletes orphaned contenders, which have no owner in this process. A command that was not answered may be executed at any later
// time, even after the removal of its contender, for example by a server that was stopped and continued. Only the end of the session
// rules that out, because commands of an ended session are refused. Until then the audit finds what such a command has created. It leaves
// out contenders that their owner has given up: the owner removes them, and its command would otherwise find nothing.
func (t *Tier) audit(x *session) {
	a := t.do(t.ctx, Command{Op: Audit, Session: x.name})
	unwanted := slices.DeleteFunc(a.Present, func(r Ref) bool {
		known, ok := t.contenders.Load(r.ID) // since before it entered
		if !ok {
			return false
		}
		// A store that was set back may still have a contender whose name is now in use at another path. Only the beginning is compared, since
		// stores may add something behind the path.
		c := known.(*Contender)
		return !c.released.IsSet() && strings.HasPrefix(r.Path, c.claim.path) && (!r.Reads || c.claim.mode == second.Reading)
	})
	if len(unwanted) > 0 {
		t.do(t.ctx, Command{Op: Drop, Session: x.name, Among: unwanted})
	}
}

// present waits for a session, and until the store answers. Without that, callers with short deadlines would pile up commands during an
// outage, and the store would execute them all afterwards. It returns at once if the store refuses to open a session. If patient is
// false, it also returns at once while the store does not answer.
func (t *Tier) present(ctx context.Context, patient bool) (x *session, err error) {
	left := t.await(ctx, func(s *status) bool {
		x, err = s.session, nil
		if !patient {
			err = t.outage()
		}
		live := x != nil && !x.Over()
		if err == nil && !live {
			err = s.refused // also of a store that is away besides
		}
		return err != nil || live && s.away == nil
	})
	return x, cmp.Or(err, left)
}
