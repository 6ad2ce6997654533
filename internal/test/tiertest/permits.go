package tiertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/tier"
)

var permitPromises = []promise{
	{name: "permits", text: "No more permits are taken than exist, and each request gets as many permits as it asked for",
		test: neverMoreThanThereAre},
	{name: "permits-order", text: "A request waits for all requests ahead of it, even if enough permits are free for it; TryAcquire " +
		"overtakes no request", test: permitsInOrder},
	{name: "permits-halves", text: "Two requests that each want more than half of the permits do not deadlock", test: noHalves},
	{name: "permits-part", text: "A holder can release some of its permits: other processes can get exactly these permits, and the holder " +
		"keeps the rest",
		test: partOfAPortion},
	{name: "permits-gone", text: "When Release returns, its permits are free, whether the holder released some or all of its permits",
		test: permitsAreGone},
	{name: "permits-wake-up", text: "When a holder releases permits, the next waiter gets them, whichever messages are in flight at that " +
		"moment",
		test: permitsWakeUp},
	{name: "permits-demand", text: "The first waiter can reduce the number of permits that it wants, and keeps its place in the queue",
		test: demandShrinks},
	{name: "permits-try", text: "TryAcquire gets permits if enough are free and no request waits", test: tryPermits},
	{name: "permits-contenders", text: "Contenders lists the processes that hold permits, each with its number of permits, and then the " +
		"waiters in order",
		test: permitContenders},
	{name: "permits-standing", text: "A waiter knows how many requests are ahead of it, and the first waiter learns that others wait, " +
		"without sending a further request", test: permitStanding},
	{name: "permits-number", text: "While a process uses the path, a process that passes a different number of permits uses the number in " +
		"the store", test: anotherNumber},
	{name: "permits-renumber", text: "Once no process uses the path, the next process that uses it sets the number of permits",
		test: anotherNumberLater},
	{name: "permits-fewer", text: "If the number of permits is reduced, holders keep their permits, and new grants respect the new number",
		test: fewerPermits},
	{name: "permits-more", text: "If the number of permits is raised, waiters get the new permits, even while another process still " +
		"passes the old number", test: morePermits},
	{name: "permits-set", text: "A number that SetPermits has stored stays, also when no process uses the path any more", test: numberStays},
	{name: "permits-claims", text: "Two semaphore handles of a store compare equal (`==`) exactly if they have the same path; an invalid " +
		"path gives an error",
		test: semaphores},
	{name: "permits-tokens", text: "Each grant of permits has a higher token than the grant before it", test: permitTokens},
	{name: "permits-gate", text: "Goroutines of one process together take no more permits than exist, and small requests do not starve " +
		"large requests",
		test: permitsThroughTheGate},
}

// In neverMoreThanThereAre, processes only take and release permits. The oracle checks that they never have more permits than there are.
func neverMoreThanThereAre(s *scene) {
	const total, turns = 5, 10
	var all sync.WaitGroup
	for i, t := range s.takers(3, total) {
		for j := range 3 {
			all.Go(func() {
				for turn := range turns {
					r := t.acquire(s.Context(), 1+(i+2*j+turn)%total)
					if <-r.done; r.err != nil || len(r.portion.permits) != r.want {
						s.Errorf("want %d permits, got %v (%v)", r.want, r.portion, r.err)
						return
					}
					p := r.portion
					time.Sleep(s.moment() / 30)
					if len(p.permits) > 1 {
						s.give(p, len(p.permits)/2)
						time.Sleep(s.moment() / 30)
					}
					s.giveAll(p)
				}
			})
		}
	}
	all.Wait()
	s.none()
}

func permitsInOrder(s *scene) {
	t := s.takers(4, 4)
	first := t[0].take(4)
	large, small, next := t[1].queue(3), t[2].queue(1), t[0].queue(2)
	for range 2 {
		s.give(first, 1)
		s.wait(large, small, next)
		t[3].refused(1)
	}
	s.give(first, 1)
	a := large.granted()
	s.wait(small, next)
	s.give(first, 1)
	b := small.granted()
	s.wait(next)
	s.give(a, 2)
	c := next.granted()
	if a.token >= b.token || b.token >= c.token {
		s.Errorf("tokens %d, %d, %d", a.token, b.token, c.token)
	}
	t[3].refused(1)
	s.giveAll(a, b, c)
	s.none()
}

func noHalves(s *scene) {
	t := s.takers(2, 6)
	var held []*portion
	for range 3 {
		held = append(held, t[0].take(1), t[1].take(1))
	}
	a, b := t[0].queue(5), t[1].queue(4)
	s.giveAll(held...)
	p := a.granted()
	s.wait(b)
	s.giveAll(p)
	s.giveAll(b.granted())
	s.none()
}

func partOfAPortion(s *scene) {
	t := s.takers(3, 6)
	p, q, whole := t[0].take(3), t[0].take(1), t[0].take(2)
	r, next := t[1].queue(2), t[2].queue(2)
	if err := t[0].store.Release(slices.Concat(p.part(1), q.part(1))); err != nil {
		s.Errorf("Release of permits that came in two writes: %v", err)
	}
	s.within(0, "what was given up goes to the next", r.end)
	got := r.granted()
	s.wait(next)
	s.give(p, 1)
	s.wait(next)
	s.give(whole, 1)
	s.within(0, "what was given up goes to the next", next.end)
	other := next.granted()
	for _, held := range []*portion{p, whole, got, other} {
		if err := held.err(); err != nil || held.life.Err() != nil {
			s.Errorf("permits that were not given up: %v, context: %v", err, context.Cause(held.life))
		}
	}
	t[1].refused(1)
	s.giveAll(p, whole)
	last := t[1].takes(2)
	t[1].refused(1)
	s.giveAll(got, other, last)
	s.none()
}

func permitsAreGone(s *scene) {
	t := s.process().of(3)
	s.usedPermits(t)
	p := t.take(3)
	late := s.delay(t.proc)
	for _, n := range []int{1, 2} {
		begun := time.Now()
		s.give(p, n)
		if took := time.Since(begun); took < late {
			s.Errorf("Release of %d permits returned after %v, although no answer came before %v", n, took, late)
		}
	}
	if n := s.present(); n != 0 {
		s.Errorf("%d have permits when Release has returned", n)
	}
}

func permitsWakeUp(s *scene) {
	holder, p := s.process().of(3), s.process().of(3)
	s.usedPermits(holder)
	s.wakesUp(p.proc, func(ctx context.Context, release chan<- func()) (*call, func()) {
		held := holder.take(3)
		release <- func() { s.give(held, 2) }
		r := p.acquire(ctx, 2)
		return r.call, func() { s.giveAll(r.granted(), held) }
	})
}

// demandThatShrinks returns a demand for k permits. A call of shrink reduces it to fewer permits.
func demandThatShrinks(k, fewer int) (d *second.Demand, shrink func()) {
	var wanted atomic.Pointer[second.Demand]
	wanted.Store(demand(k))
	d = &second.Demand{
		Want: func() int { return wanted.Load().Want() },
		Take: func(free int) int { return wanted.Load().Take(free) },
	}
	return d, func() {
		wanted.Store(demand(fewer))
		d.Changed.Set()
	}
}

func demandShrinks(s *scene) {
	t := s.takers(3, 4)
	held := t[0].take(3)
	d, shrink := demandThatShrinks(3, 1)
	first, next := t[1].queueWith(1, d), t[2].queue(1)
	s.wait(first, next)
	shrink()
	p := first.granted()
	s.wait(next)
	s.give(held, 1)
	s.giveAll(next.granted(), p, held)
	s.none()
}

func tryPermits(s *scene) {
	t := s.takers(3, 3)
	s.usedPermits(t[0])
	a := t[0].takes(2)
	t[0].refused(2)
	t[1].refused(2)
	b := t[1].takes(1)
	t[2].refused(1)
	r := t[2].queue(3)
	s.giveAll(a)
	t[0].refused(1)
	t[1].refused(1)
	s.wait(r)
	s.giveAll(b)
	s.giveAll(r.granted())
	s.giveAll(t[1].takes(3))
	s.none()
}

// The method look returns the holders and the waiters, as the process sees them.
func (t *taker) look() []second.Contender {
	t.scene.Helper()
	return t.scene.look(t.store.Contenders)
}

// The method sees waits until the process sees contenders with these numbers of permits. A waiter has 0 permits.
func (t *taker) sees(want ...int) (all []second.Contender) {
	t.scene.Helper()
	var got []int
	if !t.scene.poll(t.scene.news(), func() bool {
		got, all = nil, t.look()
		for _, c := range all {
			got = append(got, c.Permits)
		}
		return slices.Equal(got, want)
	}) {
		t.scene.Fatalf("contenders have %d permits, want %d", got, want)
	}
	for _, c := range all {
		if c.ID == "" || c.PID == 0 || c.Host == "" || c.Since.IsZero() || c.Of != t.total {
			t.scene.Errorf("a contender is %+v, want to know its process, and that it has or wants some of %d", c, t.total)
		}
	}
	return all
}

func permitContenders(s *scene) {
	t := s.takers(4, 5)
	t[0].sees()
	a, b := t[0].take(3), t[1].take(1)
	first, last := t[2].queue(5), t[3].queue(2)
	var all []second.Contender
	for _, asker := range t {
		all = asker.sees(3, 1, 0, 0)
	}
	s.give(a, 2)
	t[3].sees(1, 1, 0, 0)
	s.giveAll(a, b)
	p := first.granted()
	if want := all[2].Token; p.token != want {
		s.Errorf("token %d, want %d as seen in the queue", p.token, want)
	}
	t[3].sees(5, 0)
	s.giveAll(p)
	if p = last.granted(); p.token != all[3].Token {
		s.Errorf("token %d, want %d as seen in the queue", p.token, all[3].Token)
	}
	t[0].sees(2)
	s.giveAll(p)
	s.none()
	t[0].sees()
}

func permitStanding(s *scene) {
	t := s.takers(3, 3)
	s.usedPermits(t[0])
	free := demand(2)
	held := t[0].begin(s.Context(), 2, func(ctx context.Context) ([]second.Permit, error) { return t[0].store.Acquire(ctx, free) }).granted()
	if free.Contended() {
		s.Errorf("who found enough free has seen others")
	}
	d1, d2 := demand(2), demand(2)
	first := t[1].queueWith(2, d1)
	s.wait(first)
	if d1.Contended() || d1.Standing().Ahead != 0 {
		s.Errorf("who is first has seen others in the queue: %d, %+v", d1.Others(), d1.Standing())
	}
	next := t[2].queueWith(2, d2)
	s.awaitStanding(&d2.Wait, 1, t[0].sees(2, 0, 0)[1].Token)
	s.await("whoever is first knows of one behind", s.news(), func() bool { return d1.Others() == 1 && d1.Contended() })
	s.giveAll(held)
	p := first.granted()
	s.await("who was next is first", s.news(), func() bool { return d2.Standing().Ahead == 0 })
	if !d2.Contended() {
		s.Errorf("who has waited for another one has not seen it")
	}
	s.giveAll(p)
	s.giveAll(next.granted())
	s.none()
}

func semaphores(s *scene) {
	p := s.process()
	p.of(2)
	semaphore := func(path string, permits int) second.Semaphore {
		s.Helper()
		o, err := p.Semaphore(path, permits, second.Options{})
		if err != nil {
			s.Fatalf("Semaphore: %v", err)
		}
		return o
	}
	one := semaphore(s.path, 2)
	if !one.Equal(semaphore(s.path, 2)) {
		s.Errorf("two semaphores of one path are not equal")
	}
	if one.Equal(semaphore(s.path+"-other", 2)) {
		s.Errorf("semaphores of two paths are equal")
	}
	if _, err := p.Semaphore("", 2, second.Options{}); err == nil {
		s.Errorf("there is a semaphore for no path")
	}
	if one.Most() < 100 {
		s.Errorf("one write takes no more than %d permits", one.Most())
	}
}

func permitTokens(s *scene) {
	t := s.takers(2, 3)
	for turn := range 6 {
		a, b := t[turn%2], t[(turn+1)%2]
		p := a.take(2)
		waiting := b.queue(2)
		again := a.queue(1)
		s.giveAll(p)
		s.giveAll(waiting.granted())
		s.giveAll(again.granted())
		s.none()
		s.giveAll(b.takes(3))
		s.none()
	}
}

// permitsThroughTheGate has goroutines in several processes. Some of them want all permits. The others want one permit each, as long as any
// of the former still runs.
func permitsThroughTheGate(s *scene) {
	const total, turns = 4, 5
	ctx, cancel := context.WithTimeout(s.Context(), 2*s.patience())
	defer cancel()
	var taken atomic.Int64
	turn := func(gate *tier.Semaphore, k int64) bool {
		err := gate.Do(ctx, int(k), func(context.Context) error {
			defer taken.Add(-k)
			if n := taken.Add(k); !oracle.Room(total).Fits(n) {
				s.Errorf("%d permits are out, of %d", n, total)
			}
			time.Sleep(s.moment() / 60)
			return nil
		})
		if err != nil {
			s.Errorf("%d permits through the gate: %v", k, err)
		}
		return err == nil
	}
	var all sync.WaitGroup
	var large atomic.Int32 // goroutines that want all permits and have turns left
	for _, t := range s.takers(3, total) {
		gate := s.gateOf(t)
		large.Add(1)
		all.Go(func() {
			defer large.Add(-1)
			for i := 0; i < turns && turn(gate, total); i++ {
			}
		})
		for range 4 {
			all.Go(func() {
				for large.Load() > 0 && turn(gate, 1) {
				}
			})
		}
	}
	all.Wait()
	s.none()
}

func (s *scene) gateOf(t *taker) *tier.Semaphore {
	s.Helper()
	locks := tier.New(t.Tier)
	s.Cleanup(func() { locks.Close() })
	return locks.Semaphore(s.path, t.total)
}

var permitLossPromises = []promise{
	{name: "permits-cut", text: "A process that is cut off learns that its permits are lost before its lease ends and before others get " +
		"them; other holders lose nothing", test: permitsCutOff},
	{name: "permits-frozen", text: "If the store stops answering, a process learns that its permits are lost before its lease ends",
		alone: true, test: permitsFrozen},
	{name: "permits-stopped", text: "A process that was stopped and then continues finds at its first check that its permits are lost",
		test: permitsStopped},
	{name: "permits-kill", text: "When the lease of a killed process ends, its permits become free, and its waiting request leaves the queue",
		test: permitsOfKilled},
	{name: "permits-failover", text: "If another server takes over, no more permits are taken than exist, and new tokens are still higher",
		alone: true,
		first: true, test: permitsOverFailover},
	{name: "permits-restart", text: "If the store is restarted, no more permits are taken than exist, and new tokens are still higher",
		alone: true,
		first: true, test: permitsOverRestart},
}

func permitsCutOff(s *scene) {
	a, b, c := s.victim().of(3), s.process().of(3), s.process().of(3)
	s.needs(a.Cut != nil, "cut a process off")
	p, other := a.take(2), c.take(1)
	r := b.queue(2)
	struck := time.Now()
	heal := s.cut(a.proc)
	s.awaitPermitLoss(p, struck, r)
	next := r.granted()
	if err := other.err(); err != nil {
		s.Errorf("permits of a process that was not cut off: %v", err)
	}
	heal()
	s.permitsStayLost(p)
	s.giveAll(next, other)
	s.none()
}

func permitsFrozen(s *scene) {
	a, b := s.victim().of(3), s.process().of(3)
	s.needs(s.Freeze != nil, "freeze the store")
	p := a.take(3)
	r := b.queue(2)
	thaw := s.freeze()
	struck := time.Now() // until this moment, the store may have answered a renewal
	for _, one := range p.permits {
		if end := one.ValidUntil(); end.IsZero() && p.err() == nil || end.After(struck.Add(s.Lease)) {
			s.Errorf("the lease ends %v after the store has stopped, want within %v", end.Sub(struck), s.Lease)
		}
	}
	s.awaitPermitLoss(p, struck, r)
	thaw()
	s.permitsStayLost(p)
	s.giveAll(r.granted())
	s.none()
}

func permitsStopped(s *scene) {
	a, b := s.victim().of(3), s.process().of(3)
	s.needs(a.Blind != nil && a.Cut != nil, "stop a process")
	p := a.take(2)
	r := b.queue(2)
	for _, one := range p.permits {
		if g, ok := one.(second.Grant); ok {
			a.Blind(g)
		}
	}
	heal := s.cut(a.proc)
	time.Sleep(s.Lease)
	if err := p.lost(); err != nil {
		s.Errorf("at the first look, after a lease, %v; want ErrLost", err)
	}
	next := r.granted()
	heal()
	s.permitsStayLost(p)
	s.giveAll(next)
	s.none()
}

// awaitPermitLoss waits until the permits are lost. The last renewal of their lease was before struck. The loss has to come before that
// lease ends, and before another process gets the permits.
func (s *scene) awaitPermitLoss(p *portion, struck time.Time, other *taking) {
	s.Helper()
	select {
	case <-p.life.Done():
	case <-other.done: // the record of permits shows whether both processes had them at once
		if other.err != nil {
			s.Fatalf("the waiter: %v", other.err)
		}
	case <-time.After(time.Until(struck.Add(s.Lease)) + s.slack()):
		s.Errorf("the holder does not know of the loss after a lease of %v", s.Lease)
	}
	if !s.poll(0, func() bool { return p.lost() == nil }) { // the other permits are lost soon after the first one
		s.Errorf("after the loss of one permit of a grant: %v, want ErrLost", p.lost())
	}
}

// permitsStayLost checks that the loss of permits is final. Then it releases them.
func (s *scene) permitsStayLost(p *portion) {
	s.Helper()
	for range 5 {
		s.settled()
		if err := p.lost(); err != nil {
			s.Fatalf("permits that were lost have come back: %v", err)
		}
	}
	for _, n := range []int{1, len(p.permits) - 1} {
		s.within(s.lease()/3, "Release of permits that are lost", func() {
			if err := p.give(n); !errors.Is(err, second.ErrLost) {
				s.Errorf("Release of %d permits that are lost: %v, want ErrLost", n, err)
			}
		})
	}
}

func permitsOfKilled(s *scene) {
	a, b, c := s.victim().of(4), s.victim().of(4), s.process().of(4)
	s.needs(a.Kill != nil, "kill a process")
	p := a.take(3)
	b.queue(4)
	next := c.queue(1)
	p.part(3)
	killed := time.Now()
	b.Kill() // killed before it can be granted the permit, as in nothingLeftByKilled
	a.Kill()
	held := next.granted()
	if d := time.Since(killed); d > 2*s.Lease+s.slack() {
		s.Errorf("the next one waited for %v, want at most %v", d, 2*s.Lease)
	}
	s.giveAll(held, c.take(3))
	s.none()
}

func permitsOverFailover(s *scene) {
	a, b := s.victim().of(3), s.victim().of(3)
	if s.Failover == nil {
		s.lacks("the test setup has no second server")
	}
	s.permitsOver(a, b, s.Failover)
}

func permitsOverRestart(s *scene) {
	a, b := s.victim().of(3), s.victim().of(3)
	s.needs(s.Restart != nil, "restart the store")
	s.permitsOver(a, b, s.Restart)
}

// permitsOver checks permits in spite of a fault. There are a holder, which may lose its permits, a waiter, and later contenders.
func (s *scene) permitsOver(a, b *taker, strike func()) {
	letGo := func(p *portion) {
		s.Helper()
		if err := p.give(len(p.permits)); err != nil && !errors.Is(err, second.ErrLost) {
			s.Errorf("Release: %v, want nil or ErrLost", err)
		}
	}
	p := a.take(2)
	r := b.queue(2)
	strike()
	letGo(p)
	next := r.granted()
	again := a.acquire(s.Context(), 3)
	letGo(next)
	letGo(again.granted())
	letGo(s.victim().of(3).take(1))
	s.none()
}

var permitLeftPromises = []promise{
	{name: "permits-left-lost", text: "A call of a semaphore completes even if any message is lost, and leaves no unused entry in the store",
		test: noPermitsLeftByLostMessages},
	{name: "permits-left-cancelled", text: "A call of a semaphore that is cancelled at any step leaves no unused entry in the store",
		test: noPermitsLeftByCancelled},
	{name: "permits-left-try", text: "TryAcquire of a semaphore leaves no unused entry, even if it is cancelled or a message is lost",
		test: noPermitsLeftByTries},
	{name: "permits-left-part", text: "If a holder releases some of its permits, and any message is lost, others can get exactly these " +
		"permits", test: partDespiteLostMessages},
	{name: "permits-bounds", text: "Release of permits returns within a third of the lease, and a cancelled call returns at once, even if " +
		"the process is cut off", test: permitsBounded},
	{name: "permits-close", text: "Close ends all holds of permits and all calls, and leaves no entry and no goroutine", alone: true,
		test: closeEndsPermits},
}

func noPermitsLeftByLostMessages(s *scene) {
	holder, p := s.process().of(3), s.process().of(3)
	s.each(p.proc, lost, func(context.Context) {
		s.giveAll(p.take(2))
		s.none()
	})
	s.each(p.proc, lost, func(context.Context) {
		held := holder.take(2)
		r := p.queue(3)
		s.giveAll(held)
		s.giveAll(r.granted())
		s.none()
	})
	s.each(p.proc, lost, func(context.Context) {
		held := holder.take(2)
		d, shrink := demandThatShrinks(3, 1)
		r := p.queueWith(1, d)
		shrink()
		s.giveAll(r.granted(), held)
		s.none()
	})
}

func noPermitsLeftByCancelled(s *scene) {
	holder, p := s.process().of(3), s.process().of(3)
	for _, m := range []mishap{cancelled, both} {
		s.each(p.proc, m, func(ctx context.Context) {
			p.acquire(ctx, 2).settle()
			s.none()
		})
		s.each(p.proc, m, func(ctx context.Context) {
			held := holder.take(1)
			r := p.acquire(ctx, 3)
			r.waits()
			r.cancel()
			r.settle()
			s.leftWithin(1, s.expiry())
			s.giveAll(held, holder.take(2))
			s.none()
		})
		s.each(p.proc, m, func(ctx context.Context) { // next queues behind r
			held := holder.take(1)
			r := p.acquire(ctx, 3)
			s.settled()
			next := holder.acquire(s.Context(), 2)
			s.settled()
			r.cancel()
			r.settle()
			s.giveAll(next.granted(), held)
			s.none()
		})
		s.each(p.proc, m, func(ctx context.Context) { // the call ends at about the time at which the permits come
			held := holder.take(2)
			r := p.acquire(ctx, 3)
			s.settled()
			s.giveAll(held)
			r.settle()
			s.none()
		})
	}
}

func noPermitsLeftByTries(s *scene) {
	holder, p := s.process().of(3), s.process().of(3)
	for _, m := range []mishap{lost, cancelled, both} {
		s.each(p.proc, m, func(ctx context.Context) {
			p.try(ctx, 2).settle()
			s.none()
		})
		s.each(p.proc, m, func(ctx context.Context) {
			held := holder.take(1)
			r := p.try(ctx, 3)
			if r.end(); r.err == nil {
				s.Errorf("a try got what another process has")
			}
			s.leftWithin(1, s.expiry())
			s.giveAll(held)
			s.none()
		})
	}
}

func partDespiteLostMessages(s *scene) {
	other, p := s.process().of(4), s.process().of(4)
	s.usedPermits(other)
	s.each(p.proc, lost, func(context.Context) {
		held := p.take(3)
		s.give(held, 2)
		taken := other.take(3)
		other.refused(1)
		if err := held.err(); err != nil {
			s.Errorf("a permit that was not given up: %v", err)
		}
		s.giveAll(held, taken)
		s.none()
	})
}

func permitsBounded(s *scene) {
	a, b := s.victim().of(3), s.process().of(3)
	s.needs(a.Cut != nil, "cut a process off")
	held, part := a.take(1), a.take(2)
	waiting := a.queue(3)
	heal := s.cut(a.proc)
	for _, r := range []*taking{waiting, a.acquire(s.Context(), 1), a.try(s.Context(), 1)} {
		s.settled()
		r.leaves()
	}
	s.within(a.lease/3, "Release of a part", func() { part.give(1) }) // the lease has not ended yet
	s.within(a.lease/3, "Release", func() { held.give(1) })
	part.part(1)
	heal()
	s.giveAll(b.take(2))
	a.Close()
	s.giveAll(b.take(3))
	s.none()
}

func closeEndsPermits(s *scene) {
	s.leavesNoGoroutine(func(a, b *proc) { s.closeEndsPermits(a.of(3), b.of(3)) })
}

func (s *scene) closeEndsPermits(a, b *taker) {
	p := a.take(2)
	waiting := a.queue(3)
	s.within(s.lease()/3, "Close", func() {
		if err := a.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	if waiting.end(); !errors.Is(waiting.err, second.ErrClosed) {
		s.Errorf("a waiter gets %v, want ErrClosed", waiting.err)
	}
	if err := p.lost(); err != nil {
		s.Errorf("after Close %v, want ErrLost", err)
	}
	s.leftWithin(0, s.lease()/3)
	for _, r := range []*taking{a.acquire(s.Context(), 1), a.try(s.Context(), 1)} {
		s.within(0, "a call after Close", r.end)
		if !errors.Is(r.err, second.ErrClosed) {
			s.Errorf("after Close: %v, want ErrClosed", r.err)
		}
	}
	if _, err := a.store.Contenders(s.Context()); !errors.Is(err, second.ErrClosed) {
		s.Errorf("Contenders after Close: %v, want ErrClosed", err)
	}
	s.giveAll(b.take(3))
	s.none()
}

var permitCostPromises = []promise{
	{name: "permits-writes", text: "Acquiring free permits takes at most two writes, a release takes one, and a transfer to another " +
		"process takes at most two", alone: true, test: permitsInFewWrites},
	{name: "permits-one-write", text: "Acquiring free permits takes one write, and a transfer of permits to another process also takes one",
		alone: true,
		test:  permitsInOneWrite},
	{name: "permits-try-writes", text: "TryAcquire of a semaphore writes nothing if too few permits are free or another request waits",
		alone: true,
		test:  tryPermitsWritesNothing},
	{name: "permits-hand-off", text: "Handing permits off to another goroutine of the process writes nothing",
		alone: true, test: permitsAreHandedOn},
}

func permitsInFewWrites(s *scene) { s.permitsCost(2, 2) }
func permitsInOneWrite(s *scene)  { s.permitsCost(1, 1) }

// permitsCost checks the number of writes for two operations: to acquire permits, and to transfer all permits of one process to a waiting
// process. The parameters are the limits.
func (s *scene) permitsCost(acquire, handOver int64) {
	a, b := s.process().of(10), s.process().of(10)
	s.usedPermits(a)
	for _, k := range []int{1, 10} {
		var p *portion
		s.costs("permits that are acquired", 0, acquire, func() { p = a.take(k) })
		r := b.queue(11 - k)
		s.costs("permits that go to another process", 0, handOver, func() {
			s.give(p, k)
			p = r.granted()
		})
		s.costs("permits that are given up", 0, 1, func() { s.giveAll(p) })
		s.none()
	}
	p := a.take(10)
	s.costs("some permits that are given up", 0, 1, func() { s.give(p, 3) })
	s.costs("the others that are given up", 0, 1, func() { s.giveAll(p) })
	s.none()
}

func tryPermitsWritesNothing(s *scene) {
	t := s.takers(3, 3)
	s.usedPermits(t[0])
	held := t[0].take(2)
	t[1].refused(2) // after this, the process sees the holders, whichever server it asks
	s.costs("tries of more than are free", 0, 0, func() {
		for range 5 {
			t[0].refused(2)
			t[1].refused(2)
		}
	})
	r := t[2].queue(2)
	t[0].refused(1)
	t[1].refused(1)
	s.costs("tries while somebody waits", 0, 0, func() {
		for range 5 {
			t[0].refused(1)
			t[1].refused(1)
		}
	})
	s.giveAll(held)
	s.giveAll(r.granted())
	s.none()
}

func permitsAreHandedOn(s *scene) {
	const goroutines, turns = 20, 10
	t := s.process().of(2)
	gate := s.gateOf(t)
	s.usedPermits(t)
	held, err := gate.Acquire(s.Context(), 2) // holds the permits at first, so that all goroutines wait
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	s.costs("turns in one process", 0, goroutines*turns/10, func() { // on a busy machine, some releases find no waiter
		time.AfterFunc(2*s.moment(), func() { held.Release() })
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range turns {
					if err := gate.Do(s.Context(), 1, func(context.Context) error {
						time.Sleep(s.moment() / 60) // gives the previous holder time to queue again
						return nil
					}); err != nil {
						s.Errorf("a turn: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
		s.none()
	})
}
