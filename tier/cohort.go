package tier

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A cohort is the state of one lock in this process: the goroutines in front of the gate, the owner behind it, and the grant they share.
// This file has its transitions: arrivals and departures, the request to the second tier, the end of a grant, lingering, readers, and
// owners that listen for requests to yield.
type cohort struct {
	members // whose mutex guards the fields below

	gate    gate[ownership]
	state   state
	grant   second.Grant       // of the owners, or that lingers; else nil
	owner   *ownership         // while held by one alone; else nil
	readers atomic.Int64       // owners that read, at the same time; all but the last one leave without the mutex
	since   time.Duration      // when the present hold began, or the lingering, on the registry's clock
	policy  *options           // of the mutex by which the latest owner came
	request *second.Wait       // what the waiters wait for in the second tier; nil while nothing is asked there
	quit    context.CancelFunc // abandons the request
	trying  *try               // nil unless a try is at the second tier
	round   int64              // the newest arrival when the grant came: by rounds, all up to it get the lock
	spent   chan struct{}      // closed to end the watch over a lingering grant; nil if none runs
	limit   time.Duration      // for how long it may linger
	credit  credit             // whether lingering pays
	sharing sharing
	told    told
	lost    bool // the loss of the present holds is counted
	tally   tally
}

// A state says which goroutine acts for the cohort.
type state int

const (
	idle       state = iota // no goroutine: there is neither a grant nor a waiter
	requesting              // a request, or a TryAcquire, is at the second tier
	held                    // an owner is behind the gate, or several that read
	lingering               // the grant is kept, and no goroutine needs it
	leaving                 // the grant is being given up, and the gate is closed
)

// enter waits at the gate, since begun, until it is admitted with the grant, or ctx ends.
func (c *cohort) enter(ctx context.Context, lock *Mutex) (own *ownership, begun time.Duration, err error) {
	c.mu.Lock()
	begun = c.registry.now() // under the mutex: otherwise a hold could begin before the previous one has ended
	if own = c.takeLocked(lock, begun); own != nil {
		c.mu.Unlock()
		return own, begun, nil
	}
	w := c.gate.join()
	w.seat.mutex, w.seat.since = lock, begun
	c.tally.waited -= begun
	switch c.state {
	case idle, lingering: // a lingering read grant cannot serve this request
		c.requestLocked(c.grant)
	case requesting:
		c.trying.keepsWaiting(begun)
	case held:
		c.expectHandOffLocked()
	}
	c.mu.Unlock()
	return &w.seat, begun, await(ctx, c, w, lock.options.maxWait, begun)
}

// try takes the lock if it is free here and in the store.
func (c *cohort) try(ctx context.Context, lock *Mutex) (own *ownership, begun time.Duration, err error) {
	c.mu.Lock()
	begun = c.registry.now()
	if own = c.takeLocked(lock, begun); own != nil {
		c.mu.Unlock()
		return own, begun, nil
	}
	kept := c.lingeringLocked() // for readers only: takeLocked has taken any other
	if c.state != idle && kept == nil {
		c.mu.Unlock()
		return nil, begun, c.key.failure("try", ErrLocked)
	}
	c.forgetLocked(requesting)
	c.mu.Unlock()
	t := newTry(ctx, begun) // without the mutex: ctx may be of a type of the program
	c.mu.Lock()
	if c.trying = t; !c.gate.empty() {
		t.keepsWaiting(begun)
	}
	c.mu.Unlock()
	if kept != nil && !c.drop(t.ctx, kept) {
		err = c.key.failure("try", context.Cause(t.ctx))
		t.end(nil)
		return nil, begun, err
	}
	grant, err := lock.claim.TryAcquire(t.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	t.over()
	if err != nil {
		c.freeLocked()
		return nil, begun, err
	}
	c.trying = nil
	c.round = c.gate.arrivals
	now := c.registry.now()
	own = c.ownLocked(&ownership{mutex: lock}, grant, now, found)
	c.admitReadersLocked(now) // those that came meanwhile
	c.expectHandOffLocked()
	return own, begun, nil
}

// takeLocked makes a goroutine that arrives now with m an owner at once: of the lingering grant, or beside the present readers, unless a
// waiter needs them to end. takeLocked returns nil if the goroutine has to wait.
func (c *cohort) takeLocked(m *Mutex, now time.Duration) *ownership {
	c.downgradeLocked(c.owner)
	source := joined
	switch grant := c.lingeringLocked(); {
	case grant == nil:
		if !m.reads() || !c.gate.empty() || !c.openLocked(now, c.gate.arrivals+1) {
			return nil
		}
	case grant.ErrAt(now) != nil:
		c.offerLocked(grant, resumed)
		return nil
	case !c.admitsLocked(grant, m):
		return nil
	default:
		source = resumed
		c.credit.used()
	}
	return c.ownLocked(&ownership{mutex: m}, c.grant, now, source)
}

// drop gives up a grant that lingered, before another one is requested. drop reports whether the grant is gone; if ctx ends first, it
// continues in the background, and then frees the cohort.
func (c *cohort) drop(ctx context.Context, kept second.Grant) bool {
	gone := make(chan struct{})
	if !c.spawn(func() { kept.Release(); close(gone) }) { // if the release fails, the second tier retries it
		return true // closed: it goes with the session
	}
	select {
	case <-gone:
		return true
	case <-ctx.Done():
	}
	c.spawn(func() { <-gone; c.free() })
	return false
}

// turnAway ends all waits, because the registry admits no goroutine any more.
func (c *cohort) turnAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.tellAll()
}

// withdraw takes a waiter out of the queue. If it has just been chosen as the only owner, the grant goes to the next waiter, so the process
// keeps its place. If it was admitted as a reader, others may have read under the grant, so it is released like a hold.
func (c *cohort) withdraw(w *waiter[ownership]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, own := c.registry.now(), &w.seat
	switch {
	case c.gate.leave(w):
		c.tally.waited += now
		c.admitReadersLocked(now) // those that waited behind it
		if c.gate.empty() && c.quit != nil {
			c.quit() // no waiter is left for the grant
		}
	case w.refusal != nil:
	case own == c.owner:
		c.tally.came[own.source]--
		c.disownLocked(own, now)
		c.offerLocked(own.grant, own.source)
	default:
		c.tally.came[own.source]--
		c.spawn(func() { c.release(own) }) // unless closed: then the grant goes with the session
	}
}

// requestLocked starts the one goroutine that asks the second tier for the lock, for all waiters. requestLocked asks as the first writer
// among them, because a write grant serves readers as well, or as the first reader if there is no writer. If old is not nil, the same
// write gives old up. The request is cancelled only when the last waiter has left, so a waiter that leaves does not cost the process its
// place in the queue. requestLocked reports false when the registry is closed: then old is not given up.
func (c *cohort) requestLocked(old second.Grant) bool {
	w := c.gate.first
	for w != nil && w.seat.mutex.reads() {
		w = w.next
	}
	claim := cmp.Or(w, c.gate.first).seat.mutex.claim
	c.forgetLocked(requesting)
	acquire := claim.Acquire
	if old != nil {
		acquire = func(ctx context.Context, w *second.Wait) (second.Grant, error) { return claim.Requeue(ctx, old, w) }
	}
	// Not derived from any waiter's context: it serves the waiter that is first when it returns.
	ctx, quit := context.WithCancel(context.Background())
	request := new(second.Wait)
	c.request, c.quit = request, quit
	return c.spawn(func() {
		defer quit()
		grant, err := acquire(ctx, request)
		c.deliver(ctx, claim, grant, err)
	})
}

// deliver passes the result of a request to the waiters. An error that retrying cannot fix goes to all waiters that want a grant like the
// refused one.
func (c *cohort) deliver(ctx context.Context, claim second.Claim, grant second.Grant, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	source := found
	if c.request.Behind() {
		source = handedOver
	}
	c.request, c.quit = nil, nil
	if err == nil {
		c.round = c.gate.arrivals
		c.offerLocked(grant, source)
		return
	}
	if ctx.Err() == nil { // otherwise the request was cancelled, and the present waiters may have come since
		refused := c.gate.refuse(err, func(own *ownership) bool { return own.mutex.claim.Equal(claim) })
		c.tally.waited += time.Duration(refused) * c.registry.now()
	}
	c.freeLocked()
}

// offerLocked gives an unused grant to the first waiter, or releases it if there is none.
func (c *cohort) offerLocked(grant second.Grant, source source) {
	switch now := c.registry.now(); {
	case c.gate.empty() || grant.ErrAt(now) != nil:
		c.forgetLocked(leaving)
		c.spawn(func() { grant.Release(); c.free() }) // if the release fails, the second tier retries it
	case c.admitsLocked(grant, c.gate.first.seat.mutex):
		c.admitLocked(grant, now, source)
	default:
		c.requestLocked(grant)
	}
}

// admitLocked lets the first waiter through with grant, now. If that is a reader, it also admits the readers right behind it.
func (c *cohort) admitLocked(grant second.Grant, now time.Duration, source source) {
	c.admitFirstLocked(grant, now, source)
	for c.reading() && !c.gate.empty() && c.gate.first.seat.mutex.reads() {
		c.admitFirstLocked(grant, now, joined)
	}
	c.expectHandOffLocked()
}

func (c *cohort) admitFirstLocked(grant second.Grant, now time.Duration, source source) {
	c.tally.waited += now
	c.ownLocked(&c.gate.first.seat, grant, now, source)
	c.gate.admit()
}

// ownLocked gives own the grant and its first hold, from now on.
func (c *cohort) ownLocked(own *ownership, grant second.Grant, now time.Duration, source source) *ownership {
	reads := own.mutex.reads()
	own.cohort, own.grant, own.since, own.source = c, grant, now, source
	own.holds.Store(weight(reads))
	own.reads.Store(reads)
	own.first.own, own.first.shared = own, reads
	if source != joined {
		c.state, c.grant, c.since = held, grant, now
		c.tally.held -= now
	}
	c.tally.came[source]++
	c.policy = own.mutex.options
	if reads {
		c.readers.Add(1)
		c.shareLaterLocked(grant)
	} else {
		c.owner = own
	}
	return own
}

// disownLocked ends the only ownership under the grant.
func (c *cohort) disownLocked(own *ownership, now time.Duration) {
	if own == c.owner {
		c.owner = nil
	} else {
		c.readers.Add(-1)
	}
	c.tally.held += now
}

// forgetLocked enters a state without a grant, and ends the goroutines that watched the previous grant.
func (c *cohort) forgetLocked(next state) {
	c.state = next
	c.stopWatchLocked()
	if c.sharing.quit != nil {
		c.sharing.quit()
	}
	c.grant, c.sharing, c.told, c.lost = nil, sharing{}, told{}, false
}

// free is called after the end of a grant: it requests a new one for the waiters.
func (c *cohort) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeLocked()
}

func (c *cohort) freeLocked() {
	c.state, c.trying = idle, nil
	if !c.gate.empty() {
		c.requestLocked(nil)
	}
}

// release is called after the last release of an ownership. Unless the grant stays here, it is given up before the gate opens.
func (c *cohort) release(own *ownership) error {
	grant := own.grant
	var next decision
	var now time.Duration
	for {
		if loss, out := c.slipOut(own); out {
			if loss != nil {
				loss = c.key.failure("release", loss)
			}
			return loss
		}
		c.mu.Lock()
		next, now = c.decideLocked(grant)
		if own == c.owner || c.readers.Load() == 1 {
			break
		}
		c.mu.Unlock() // another reader has joined meanwhile, and keeps the grant
	}
	c.noteLossLocked(now)
	counted := c.lost
	c.disownLocked(own, now)
	switch next {
	case handOff:
		c.admitLocked(grant, now, handedOff)
		c.mu.Unlock()
		return nil
	case keep:
		c.lingerLocked(grant, now)
		c.mu.Unlock()
		return nil
	}
	end, requeued := grant.AwaitRelease, next == requeue && c.requestLocked(grant)
	if !requeued {
		end = grant.Release
		c.forgetLocked(leaving)
		c.credit.passed()
	}
	c.mu.Unlock()
	err := end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, ErrLost) && !counted { // only the release has found the loss
		c.tally.lose(err, 1)
	}
	if err == nil { // otherwise this is the time of a wait
		c.tally.given++
		c.tally.giving += c.registry.now() - now
	}
	if !requeued {
		c.freeLocked()
	}
	return err
}

// noteLossLocked counts the present holds as lost, once, if they are. Code that may find a loss calls it, and code that reads the counters.
// A loss is therefore counted in time, and an acquisition costs nothing for it.
func (c *cohort) noteLossLocked(now time.Duration) {
	if c.state != held || c.lost {
		return
	}
	if err := c.grant.ErrAt(now); errors.Is(err, ErrLost) {
		c.lost = true
		c.tally.lose(err, max(c.readers.Load(), 1))
	}
}

// A decision says what happens to the grant after a release.
type decision int

const (
	giveUp  decision = iota // release it; waiters, if any, request a new one
	requeue                 // give it up and queue again for the waiters, in one write
	handOff                 // keep it for the first waiter
	keep                    // let it linger, without a waiter
)

// decideLocked is afterReleaseLocked for a grant with a lease, now. A grant without a lease is kept only if the store confirms it, because
// otherwise it would be unknown whether the lock was still held. That call happens without the mutex; meanwhile the state stays held, so no
// goroutine is admitted.
func (c *cohort) decideLocked(grant second.Grant) (d decision, now time.Duration) {
	now = c.registry.now()
	if d = c.afterReleaseLocked(grant, now); grant.Leased() || d != handOff && d != keep {
		return d, now
	}
	c.mu.Unlock()
	certain := grant.Confirm()
	c.mu.Lock()
	if now = c.registry.now(); !certain {
		return giveUp, now
	}
	return c.afterReleaseLocked(grant, now), now
}

// afterReleaseLocked is the rule of lock cohorting (Dice, Marathe, Shavit 2012): a hand-off within a process costs no message, so the
// lock stays there as long as that is fair. A grant is not kept without a valid lease or while the connection is down. A grant is not
// kept while a guarded write of its last owner has no answer, because the write could take effect under the next owner. A grant is not
// kept once an owner was asked to yield.
func (c *cohort) afterReleaseLocked(grant second.Grant, now time.Duration) decision {
	first := c.gate.first
	quiet := grant.Idle() // read before the connection's state: the end of a connection answers a write that may be in flight
	switch {
	case grant.ErrAt(now) != nil || c.registry.second.Err() != nil:
		return giveUp
	case first != nil && quiet && !c.toldLocked(grant) && c.admitsLocked(grant, first.seat.mutex) && c.fairLocked(first.arrival, true):
		return handOff
	case first != nil:
		return requeue
	case c.policy.linger > 0 && c.credit.pays() && !c.toldLocked(grant) && !c.registry.draining() && quiet && grant.Contended().For() == 0:
		return keep
	}
	return giveUp
}

// fairLocked reports whether the grant may go to a local waiter with this arrival number, after a release or beside the present readers.
// While no other process waits there is no limit. Once one does, the limit is the hand-off budget, and in strict order there is no
// hand-off. By rounds, each goroutine that waited when the grant came gets the lock in any case: the process gets as many acquisitions as
// if each goroutine queued in the store by itself. A waiter that leaves passes its acquisition to no other, and later arrivals get none.
func (c *cohort) fairLocked(arrival int64, released bool) bool {
	switch {
	case c.policy.rounds && arrival <= c.round:
		return true
	case released && c.policy.strict:
		return false
	}
	waited := c.grant.Contended().For()
	return waited == 0 || waited < c.budgetLocked() // waited is 0 most often
}

// budgetLocked is for how long the grant may stay here while other processes wait. A shared grant has used its budget up before, and
// reports anew whether a process waits: from now on it stays only while none does.
func (c *cohort) budgetLocked() time.Duration {
	if c.sharing.begun {
		return 1
	}
	return c.policy.budget()
}

// expectHandOffLocked is called when there is a new owner, and when a goroutine begins to wait for one. With a waiter, a hand-off may come.
// The budget runs from the read of the queue that shows another process, so the reads begin now. Without a local waiter there are none.
func (c *cohort) expectHandOffLocked() {
	if c.gate.empty() {
		return
	}
	c.setAlarmLocked(c)
	if !c.policy.strict {
		c.grant.Contended().C()
	}
}

// lingerLocked keeps a grant without a waiter, from now on.
func (c *cohort) lingerLocked(grant second.Grant, now time.Duration) {
	c.state, c.grant, c.since = lingering, grant, now
	if limit := c.policy.linger; c.limit != limit { // another mutex of the path may have another one
		c.stopWatchLocked()
		c.limit = limit
	}
	if c.spent == nil {
		limit, spent := c.limit, make(chan struct{})
		c.spent = spent
		c.spawn(func() { c.watchLingering(grant, limit, spent) }) // unless closed: then the grant goes with the session
	}
}

// stopWatchLocked ends the watch over a lingering grant.
func (c *cohort) stopWatchLocked() {
	if c.spent != nil {
		close(c.spent)
		c.spent = nil
	}
}

// lingeringLocked returns the lingering grant, nil if there is none.
func (c *cohort) lingeringLocked() second.Grant {
	if c.state != lingering {
		return nil
	}
	return c.grant
}

// watchLingering runs from the first time that a grant lingers until it never will again. watchLingering releases the grant when no
// goroutine has come for long enough, when another process waits or has asked for the lock, when the lock is lost, and when the registry
// shuts down.
func (c *cohort) watchLingering(grant second.Grant, limit time.Duration, spent <-chan struct{}) {
	revoked := c.revokedOf(grant)
	timer := time.NewTimer(limit)
	for left := limit; left > 0; timer.Reset(left) {
		select {
		case <-timer.C:
			left = c.endLingering(grant, spent, false)
			continue
		case <-spent:
			return
		case <-grant.Contended().C(): // from now on a release does not leave the grant lingering, unless it is shared
		case <-revoked: // likewise
		case <-grant.Context().Done():
		case <-c.registry.open.Done(): // likewise
		}
		c.endLingering(grant, spent, true)
		return
	}
}

// endLingering releases the grant if it has lingered for long enough, or at once if now is set. endLingering returns how long the grant
// may still linger, which is the full limit while it is in use. If now is set, the watch ends in any case, and a grant that lingers later
// needs another one.
func (c *cohort) endLingering(grant second.Grant, spent <-chan struct{}, now bool) (left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lingeringLocked() != grant {
		if now && c.spent == spent {
			c.spent = nil
		}
		return c.limit
	}
	if left := c.limit - (c.registry.now() - c.since); left > 0 && !now {
		return left
	}
	if now && grant.Err() == nil {
		c.credit.wasted()
	}
	c.offerLocked(grant, resumed)
	return 0
}

// admitsLocked reports whether grant is enough for m: a writer needs one that is not shared.
func (c *cohort) admitsLocked(grant second.Grant, m *Mutex) bool {
	return c.key.kind != readWrite || m.reads() || !c.sharing.begun && !grant.Shared()
}

// openLocked reports whether one more reader may join: as long as that is fair to other processes. If not, the readers come to an end, and
// the grant with them.
func (c *cohort) openLocked(now time.Duration, arrival int64) bool {
	return c.state == held && c.reading() && c.grant.ErrAt(now) == nil && !c.toldLocked(c.grant) && c.fairLocked(arrival, false)
}

// admitReadersLocked lets the readers at the head of the gate join the readers inside.
func (c *cohort) admitReadersLocked(now time.Duration) {
	for !c.gate.empty() && c.gate.first.seat.mutex.reads() && c.openLocked(now, c.gate.first.arrival) {
		c.admitFirstLocked(c.grant, now, joined)
	}
}

// reading reports whether owners read. reading stays true while the mutex is held, as the last reader takes the mutex to leave.
func (c *cohort) reading() bool { return c.readers.Load() > 0 }

// slipOut ends a read ownership without the mutex, unless it is the last one: readers that were admitted together often leave together.
// slipOut returns the loss of the lock, if any; without a lease only the store knows that. The grant stays while the ownership is
// counted.
func (c *cohort) slipOut(own *ownership) (loss error, out bool) {
	if !own.reads.Load() || c.readers.Load() == 1 {
		return nil, false
	}
	loss = own.grant.Err()
	if errors.Is(loss, ErrLost) { // this hold is still counted
		c.mu.Lock()
		c.noteLossLocked(c.registry.now())
		c.mu.Unlock()
	}
	if loss == nil && !own.grant.Leased() && !own.grant.Confirm() {
		loss = errors.New("not known whether the lock was held to the end")
	}
	for n := c.readers.Load(); n > 1; n = c.readers.Load() {
		if c.readers.CompareAndSwap(n, n-1) {
			return loss, true
		}
	}
	return nil, false
}

// downgradeLocked is called after the release of the last write hold of an ownership that also has read holds. While a guarded write has no
// answer it admits no reader, because readers could see the write take effect. takeLocked therefore calls it again for each arrival.
func (c *cohort) downgradeLocked(own *ownership) {
	if own == nil || own != c.owner || !own.grant.Idle() {
		return
	}
	if holds := own.holds.Load(); holds == 0 || holds >= writeHold { // 0: the ownership is about to end
		return
	}
	c.owner = nil
	c.readers.Store(1)
	own.reads.Store(true)
	c.shareLaterLocked(own.grant)
	c.admitReadersLocked(c.registry.now())
}

// sharing limits for how long a write grant that only readers use keeps readers of other processes out.
type sharing struct {
	quit  context.CancelFunc // nil if watchSharing does not run
	begun bool               // Share was called: the grant serves no writer any more
}

// shareLaterLocked is called when a goroutine begins to read under grant.
func (c *cohort) shareLaterLocked(grant second.Grant) {
	if c.sharing.quit != nil || grant.Shared() {
		return
	}
	ctx, quit := context.WithCancel(grant.Context())
	c.sharing.quit = quit
	c.spawn(func() {
		defer quit()
		c.watchSharing(ctx, grant)
	})
}

// watchSharing shares grant once another process has waited for the hand-off budget. If goroutines of this process wait, they are not
// admitted any more, and the grant probably ends soon without a write: it therefore waits for the budget once more.
func (c *cohort) watchSharing(ctx context.Context, grant second.Grant) {
	select {
	case <-grant.Contended().C():
	case <-ctx.Done():
		return
	}
	for extended := false; ; {
		c.mu.Lock()
		if ctx.Err() != nil { // given up
			c.mu.Unlock()
			return
		}
		budget := c.budgetLocked()
		left := budget - grant.Contended().For()
		switch {
		case left > 0:
		case !c.reading(): // the next reader starts the watch again
			c.sharing.quit = nil
			c.mu.Unlock()
			return
		case c.gate.empty() || extended:
			c.sharing.begun = true
			c.mu.Unlock()
			_ = grant.Share(ctx) // after an error the grant admits no more goroutines than before
			c.mu.Lock()
			if c.state == held {
				c.admitReadersLocked(c.registry.now())
				c.expectHandOffLocked()
			}
			c.mu.Unlock()
			return
		default:
			left, extended = budget, true
		}
		c.mu.Unlock()
		_ = retry.Pause(ctx, left) // if ctx ends, the next round returns
	}
}

// told records which requests to yield the owners under a grant listen for. After one has come, the grant is not handed off in this
// process: an owner that yields does so for another process.
type told struct {
	contended bool            // an owner listens for another process that waits
	revoked   <-chan struct{} // closed when a process has asked for the lock; nil unless an owner listens
}

// contendedOf returns the channel that is closed when another process waits because of grant, and notes that an owner listens.
func (c *cohort) contendedOf(grant second.Grant) <-chan struct{} {
	c.mu.Lock()
	c.told.contended = c.told.contended || c.grant == grant
	c.mu.Unlock()
	return grant.Contended().C()
}

// revokedOf returns the channel that is closed when a process has asked for grant, and notes that an owner listens.
func (c *cohort) revokedOf(grant second.Grant) <-chan struct{} {
	revoked := grant.RevokeRequested()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant == grant {
		c.told.revoked = revoked
	}
	return revoked
}

// toldLocked reports whether a listening owner was asked to yield grant. toldLocked starts no reads of the queue.
func (c *cohort) toldLocked(grant second.Grant) bool {
	select {
	case <-c.told.revoked: // never if nil
		return true
	default:
		return c.told.contended && grant.Contended().Raised()
	}
}

// wait describes the wait of w with ctx, which began then.
func (c *cohort) wait(ctx context.Context, w *waiter[ownership], begun time.Duration) Wait {
	wait := Wait{Path: c.key.path, Waited: c.registry.now() - begun}
	carried, _ := ctx.Value(w.seat.mutex.key).(*Hold) // before the mutex: ctx may be of a type of the program
	c.mu.Lock()
	request, served := c.request, w.served()
	if c.state == held && !served { // if it was served, the current hold may be the waiter's own
		wait.Here = &Here{
			Since: c.registry.at(c.since), Token: c.grant.Token(), Holds: int(c.readers.Load()),
			Carried: carried != nil && carried.own.holds.Load() > 0,
		}
		if c.owner != nil {
			wait.Here.Holds = c.owner.count()
		}
	}
	c.mu.Unlock()
	if wait.Here == nil && !served {
		wait.stand(request.Standing(), c.registry.second)
	}
	return wait
}

// lookAtWait is called by the alarm.
func (c *cohort) lookAtWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm.set = false; c.state == held && !c.gate.empty() {
		places := c.registry.leaks.places(c)
		c.judgeLocked(c.since, c.gate.first.seat.since, c,
			"tier: a goroutine is blocked by a hold of its own process; if the hold is its own, this is a deadlock: "+
				"pass the context of the hold to Acquire; if the holder waits for a lock of this goroutine, take both with AcquireAll",
			"token", c.grant.Token(), "waiters", c.gate.waiting,
			"acquired", cmp.Or(places, "not known without tier.WithLeakDetection"))
	}
}

func (c *cohort) addTo(s *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.registry.now()
	c.noteLossLocked(now)
	s.sum(&c.tally)
	s.Waiters += c.gate.waiting
	s.WaitTime += time.Duration(c.gate.waiting) * now
	switch c.state {
	case held:
		s.Holds++
		s.HoldTime += now
	case lingering:
		s.Lingering++
	}
}

// heldLock returns what this process has of the lock, if anything.
func (c *cohort) heldLock() (l HeldLock, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant == nil {
		return HeldLock{}, false
	}
	return HeldLock{
		Path: c.key.path, Token: c.grant.Token(), Since: c.registry.at(c.since),
		Readers: int(c.readers.Load()), Waiters: c.gate.waiting, Lingering: c.state == lingering,
	}, true
}
