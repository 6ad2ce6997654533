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

// A cohort is the state of one lock in this process: the goroutines that wait in front of the gate, the owner behind the gate, and the
// grant that the owner uses. This file has the transitions of that state: goroutines arrive and leave, the lock is requested from the
// second tier, grants end or linger ([WithLinger]), readers join, and owners listen for requests to yield.
type cohort struct {
	members // its mutex guards the fields below

	gate    gate[ownership]
	state   state
	grant   second.Grant       // the grant of the owners, or the lingering grant; nil if there is none
	owner   *ownership         // the only owner; nil if there is none, or if owners read
	readers atomic.Int64       // the number of owners that read at present; all but the last one leave without the mutex
	since   time.Duration      // when the present hold or the lingering began, on the registry's clock
	policy  *options           // the options of the mutex that the latest owner used
	request *second.Wait       // describes what blocks the request in the second tier; nil if there is no request
	quit    context.CancelFunc // cancels the request
	trying  *try               // the TryAcquire that is at the second tier; nil if there is none
	round   int64              // the number of the newest arrival at the time of the grant; see WithRounds and fairLocked
	spent   chan struct{}      // closed to end the goroutine that watches a lingering grant; nil if that goroutine does not run
	limit   time.Duration      // for how long the grant may linger
	credit  credit             // whether lingering pays
	sharing sharing
	told    told
	lost    bool // the loss of the present holds has been counted
	tally   tally
}

// A state says which goroutine acts for the cohort.
type state int

const (
	idle       state = iota // no goroutine acts: there is neither a grant nor a waiter
	requesting              // a request, or a TryAcquire, is at the second tier
	held                    // one owner, or several owners that read, are behind the gate
	lingering               // the process keeps the grant, and no goroutine needs it
	leaving                 // the grant is being released, and the gate is closed
)

// enter waits at the gate until it is admitted with the grant, or until ctx ends. The result begun is the time at which the wait began.
func (c *cohort) enter(ctx context.Context, lock *Mutex) (own *ownership, begun time.Duration, err error) {
	c.mu.Lock()
	begun = c.registry.now() // read under the mutex: otherwise a hold could begin before the previous hold has ended
	if own = c.takeLocked(lock, begun); own != nil {
		c.mu.Unlock()
		return own, begun, nil
	}
	w := c.gate.join()
	w.seat.mutex, w.seat.since = lock, begun
	c.tally.waited -= begun
	switch c.state {
	case idle, lingering: // a lingering grant that is left here is a read grant, which cannot serve this request
		c.requestLocked(c.grant)
	case requesting:
		c.trying.keepsWaiting(begun)
	case held:
		c.expectHandOffLocked()
	}
	c.mu.Unlock()
	return &w.seat, begun, await(ctx, c, w, lock.options.maxWait, begun)
}

// try takes the lock if neither this process nor another one holds it.
func (c *cohort) try(ctx context.Context, lock *Mutex) (own *ownership, begun time.Duration, err error) {
	c.mu.Lock()
	begun = c.registry.now()
	if own = c.takeLocked(lock, begun); own != nil {
		c.mu.Unlock()
		return own, begun, nil
	}
	kept := c.lingeringLocked() // a grant that is left here serves only readers: takeLocked has used any other grant
	if c.state != idle && kept == nil {
		c.mu.Unlock()
		return nil, begun, c.key.failure("try", ErrLocked)
	}
	c.forgetLocked(requesting)
	c.mu.Unlock()
	t := newTry(ctx, begun) // called without the mutex, because the program may have implemented ctx
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
	c.admitReadersLocked(now) // the readers that arrived during the call
	c.expectHandOffLocked()
	return own, begun, nil
}

// takeLocked makes a goroutine that arrives now with m an owner at once, if that is possible. The goroutine gets the lingering grant, or it
// joins the present readers. It does not join them if a waiter needs the readers to end. takeLocked returns nil if the goroutine has to
// wait.
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

// drop releases a grant that no goroutine uses, before another grant is requested. drop reports whether the grant is released. If ctx ends
// first, the release continues in the background, and the cohort becomes free after it.
func (c *cohort) drop(ctx context.Context, kept second.Grant) bool {
	gone := make(chan struct{})
	if !c.spawn(func() { kept.Release(); close(gone) }) { // if the release fails, the second tier retries it
		return true // the registry is closed: the grant ends with the session
	}
	select {
	case <-gone:
		return true
	case <-ctx.Done():
	}
	c.spawn(func() { <-gone; c.free() })
	return false
}

// turnAway ends all waits. It is called when the registry admits no more goroutines.
func (c *cohort) turnAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate.tellAll()
}

// withdraw removes a waiter from the queue. If the waiter has just been chosen as the only owner, the grant goes to the next waiter, and
// the process keeps its place in the store's queue. If the waiter was admitted as a reader, other goroutines may have read under the grant.
// Its ownership is therefore released like any other.
func (c *cohort) withdraw(w *waiter[ownership]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, own := c.registry.now(), &w.seat
	switch {
	case c.gate.leave(w):
		c.tally.waited += now
		c.admitReadersLocked(now) // the readers that waited behind w
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
		c.spawn(func() { c.release(own) }) // if the registry is closed, this does not run, and the grant ends with the session
	}
}

// requestLocked starts a goroutine that requests the lock from the second tier for all waiters. There is only one such goroutine. It asks
// for a write grant if there is a writer among the waiters, because a write grant serves readers as well. Otherwise it asks for a read
// grant. If old is not nil, the same write gives old up.
//
// The request is cancelled only when the last waiter has left. Therefore the process keeps its place in the queue when another waiter
// leaves. If the registry is closed, requestLocked returns false and does not give old up.
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
	// ctx is not derived from any waiter's context, because the request serves the waiter that is first when the request returns.
	ctx, quit := context.WithCancel(context.Background())
	request := new(second.Wait)
	c.request, c.quit = request, quit
	return c.spawn(func() {
		defer quit()
		grant, err := acquire(ctx, request)
		c.deliver(ctx, claim, grant, err)
	})
}

// deliver passes the result of a request to the waiters. If retrying cannot fix the error, all waiters whose claims equal the refused claim
// get it.
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
	if ctx.Err() == nil { // if it has ended, the request was cancelled, and the present waiters may have come after that
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

// admitLocked lets the first waiter through with grant. If the first waiter is a reader, admitLocked also admits the readers directly
// behind it.
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

// ownLocked makes own an owner: it gets the grant and its first hold. The hold begins now.
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

// disownLocked ends an ownership when no other ownership uses the grant.
func (c *cohort) disownLocked(own *ownership, now time.Duration) {
	if own == c.owner {
		c.owner = nil
	} else {
		c.readers.Add(-1)
	}
	c.tally.held += now
}

// forgetLocked changes to a state without a grant. It also ends the goroutines that watched the previous grant.
func (c *cohort) forgetLocked(next state) {
	c.state = next
	c.stopWatchLocked()
	if c.sharing.quit != nil {
		c.sharing.quit()
	}
	c.grant, c.sharing, c.told, c.lost = nil, sharing{}, told{}, false
}

// free is called after the end of a grant. It requests a new grant for the waiters.
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

// release is called after the last hold of an ownership was released. If the process does not keep the grant, release gives it up before it
// opens the gate.
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
		next, now = c.decide(grant)
		if own == c.owner || c.readers.Load() == 1 {
			break
		}
		c.mu.Unlock() // another reader has joined in between, and keeps the grant
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
	if errors.Is(err, ErrLost) && !counted { // the loss was not noticed before the release
		c.tally.lose(err, 1)
	}
	if err == nil { // not counted after an error: the time would include the wait for an answer that did not come
		c.tally.given++
		c.tally.giving += c.registry.now() - now
	}
	if !requeued {
		c.freeLocked()
	}
	return err
}

// noteLossLocked checks whether the present holds are lost, and counts their loss once. It is called by code that may discover a loss, and
// by code that reads the counters. The counters that a program reads therefore include each loss, although no goroutine watches the holds.
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
	giveUp  decision = iota // release the grant; if there are waiters, a new request serves them
	requeue                 // give the grant up and queue again for the waiters, in one write
	handOff                 // pass the grant to the first waiter
	keep                    // let the grant linger, because there is no waiter
)

// decide decides what happens to the grant at a release; now is the time of the decision. The mutex is locked at the call and at the
// return. A grant with a lease follows the rule of afterReleaseLocked. A grant without a lease is also confirmed by the store before the
// process keeps it, because otherwise it would be unknown whether the lock was still held. The mutex is not locked during that call, but
// the state stays held, so no goroutine is admitted.
func (c *cohort) decide(grant second.Grant) (d decision, now time.Duration) {
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

// afterReleaseLocked is the rule of lock cohorting (Dice, Marathe, Shavit 2012): a hand-off within a process costs no message, so the lock
// stays in the process as long as that is fair. A grant is not kept without a valid lease or while the connection is down. A grant is not
// kept while a guarded write of its last owner has no answer, because the write could take effect under the next owner. A grant is not kept
// once an owner was asked to yield.
func (c *cohort) afterReleaseLocked(grant second.Grant, now time.Duration) decision {
	first := c.gate.first
	quiet := grant.Idle() // read before Err: the end of a connection counts as the answer to a write, although the write may still take effect
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

// fairLocked reports whether the grant may go to the local waiter with this arrival number. The waiter gets the grant after a release, or
// joins the present readers. There is no limit while no other process waits. When another process waits, the limit is the hand-off budget;
// in strict order there is no hand-off.
//
// With WithRounds each goroutine that waited at the time of the grant gets the lock in any case. The process therefore gets as many
// acquisitions as if each goroutine queued in the store by itself. If one of these waiters leaves, its acquisition is not passed on, and
// goroutines that arrive later get none.
func (c *cohort) fairLocked(arrival int64, released bool) bool {
	switch {
	case c.policy.rounds && arrival <= c.round:
		return true
	case released && c.policy.strict:
		return false
	}
	waited := c.grant.Contended().For()
	return waited == 0 || waited < c.budgetLocked() // in most cases waited is 0
}

// budgetLocked returns for how long the grant may stay in this process while other processes wait. A shared grant has already used its
// budget. Share starts its contention signal anew, and from then on the grant stays only while no process waits.
func (c *cohort) budgetLocked() time.Duration {
	if c.sharing.begun {
		return 1
	}
	return c.policy.budget()
}

// expectHandOffLocked is called when there is a new owner, and when a goroutine begins to wait for the owner. If a goroutine waits, a
// hand-off is possible. The budget of the hand-off starts when a read of the queue shows another process, so these reads have to begin now.
// Without a local waiter there are no reads.
func (c *cohort) expectHandOffLocked() {
	if c.gate.empty() {
		return
	}
	c.setAlarmLocked(c)
	if !c.policy.strict {
		c.grant.Contended().C()
	}
}

// lingerLocked starts to keep a grant for which no goroutine waits.
func (c *cohort) lingerLocked(grant second.Grant, now time.Duration) {
	c.state, c.grant, c.since = lingering, grant, now
	if limit := c.policy.linger; c.limit != limit { // the last owner may have used another mutex of the same path, with another limit
		c.stopWatchLocked()
		c.limit = limit
	}
	if c.spent == nil {
		limit, spent := c.limit, make(chan struct{})
		c.spent = spent
		c.spawn(func() { c.watchLingering(grant, limit, spent) }) // if the registry is closed, this does not run: the grant ends with the session
	}
}

// stopWatchLocked ends the goroutine that watches a lingering grant.
func (c *cohort) stopWatchLocked() {
	if c.spent != nil {
		close(c.spent)
		c.spent = nil
	}
}

// lingeringLocked returns the lingering grant, or nil if there is none.
func (c *cohort) lingeringLocked() second.Grant {
	if c.state != lingering {
		return nil
	}
	return c.grant
}

// watchLingering starts when a grant lingers for the first time. It ends when that grant can linger no more. watchLingering releases the
// lingering grant in these cases: no goroutine needed the grant for the time limit, another process waits or has asked for the lock, the
// lock is lost, or the registry shuts down.
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
		case <-grant.Contended().C(): // after this the grant does not linger again, unless it is shared
		case <-revoked: // after this the grant does not linger again either
		case <-grant.Context().Done():
		case <-c.registry.open.Done(): // from now on no grant lingers
		}
		c.endLingering(grant, spent, true)
		return
	}
}

// endLingering releases the grant if it has lingered for long enough. If now is true, it releases a lingering grant at once. endLingering
// returns for how long the grant may still linger; this is the full limit while the grant is in use. If now is true, the watch ends even if
// the grant is in use. A grant that lingers later gets a new watch.
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

// admitsLocked reports whether m can use grant: a writer needs a grant that is not shared.
func (c *cohort) admitsLocked(grant second.Grant, m *Mutex) bool {
	return c.key.kind != readWrite || m.reads() || !c.sharing.begun && !grant.Shared()
}

// openLocked reports whether one more reader may join the present readers. It returns true as long as that is fair to other processes. If
// no more readers join, the present readers finish, and the grant ends with the last of them.
func (c *cohort) openLocked(now time.Duration, arrival int64) bool {
	return c.state == held && c.reading() && c.grant.ErrAt(now) == nil && !c.toldLocked(c.grant) && c.fairLocked(arrival, false)
}

// admitReadersLocked admits the readers at the head of the gate, which join the present readers.
func (c *cohort) admitReadersLocked(now time.Duration) {
	for !c.gate.empty() && c.gate.first.seat.mutex.reads() && c.openLocked(now, c.gate.first.arrival) {
		c.admitFirstLocked(c.grant, now, joined)
	}
}

// reading reports whether there are owners that read. The result stays true while the mutex is locked, because the last reader locks the
// mutex to leave.
func (c *cohort) reading() bool { return c.readers.Load() > 0 }

// slipOut ends a read ownership without the mutex, because readers that were admitted together often leave together. It does not end the
// last one. slipOut returns the loss of the lock, if the lock is lost. For a grant without a lease it asks the store. The grant cannot be
// released meanwhile, because the counter c.readers still includes this ownership.
func (c *cohort) slipOut(own *ownership) (loss error, out bool) {
	if !own.reads.Load() || c.readers.Load() == 1 {
		return nil, false
	}
	loss = own.grant.Err()
	if errors.Is(loss, ErrLost) { // counted now, while c.readers still includes this ownership
		c.mu.Lock()
		c.noteLossLocked(c.registry.now())
		c.mu.Unlock()
	}
	if loss == nil && !own.grant.Leased() && !own.grant.Confirm() {
		loss = errors.New("the server did not confirm that the lock was held until its release")
	}
	for n := c.readers.Load(); n > 1; n = c.readers.Load() {
		if c.readers.CompareAndSwap(n, n-1) {
			return loss, true
		}
	}
	return nil, false
}

// downgradeLocked is called after the last write hold of an ownership was released, if the ownership still has read holds. It turns the
// owner into a reader. It does nothing while a guarded write has no answer, because other readers could see the write take effect.
// takeLocked therefore calls it again for each arrival.
func (c *cohort) downgradeLocked(own *ownership) {
	if own == nil || own != c.owner || !own.grant.Idle() {
		return
	}
	if holds := own.holds.Load(); holds == 0 || holds >= writeHold { // if holds is 0, the ownership is about to end
		return
	}
	c.owner = nil
	c.readers.Store(1)
	own.reads.Store(true)
	c.shareLaterLocked(own.grant)
	c.admitReadersLocked(c.registry.now())
}

// The fields of sharing belong to the watch over a write grant that only readers use. The watch limits for how long such a grant keeps
// readers of other processes out.
type sharing struct {
	quit  context.CancelFunc // ends watchSharing; nil if watchSharing does not run
	begun bool               // Share was called: the grant no longer serves writers
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

// watchSharing shares grant once another process has waited for the hand-off budget. If a goroutine of this process waits at that time, no
// more readers are admitted, and the grant probably ends soon, without the write that Share costs. In that case watchSharing waits for the
// budget once more.
func (c *cohort) watchSharing(ctx context.Context, grant second.Grant) {
	select {
	case <-grant.Contended().C():
	case <-ctx.Done():
		return
	}
	for extended := false; ; {
		c.mu.Lock()
		if ctx.Err() != nil { // the grant was given up
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
			_ = grant.Share(ctx) // even after an error the grant is treated as shared, and serves no writer
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
		_ = retry.Pause(ctx, left) // if ctx ends, the next iteration returns
	}
}

// The type told records which requests to yield the owners under a grant listen for. After such a request the grant is not handed off in
// this process, because an owner that yields does so for another process.
type told struct {
	contended bool            // an owner listens for the signal that another process waits
	revoked   <-chan struct{} // closed when a process has asked for the lock; nil unless an owner listens
}

// contendedOf returns the channel that is closed when another process waits because of grant. It also records that an owner listens.
func (c *cohort) contendedOf(grant second.Grant) <-chan struct{} {
	c.mu.Lock()
	c.told.contended = c.told.contended || c.grant == grant
	c.mu.Unlock()
	return grant.Contended().C()
}

// revokedOf returns the channel that is closed when a process has asked for grant. It also records that an owner listens.
func (c *cohort) revokedOf(grant second.Grant) <-chan struct{} {
	revoked := grant.RevokeRequested()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant == grant {
		c.told.revoked = revoked
	}
	return revoked
}

// toldLocked reports whether an owner that listens was asked to yield grant. toldLocked starts no reads of the queue.
func (c *cohort) toldLocked(grant second.Grant) bool {
	select {
	case <-c.told.revoked: // a nil channel never receives
		return true
	default:
		return c.told.contended && grant.Contended().Raised()
	}
}

// wait describes the wait of w. The wait uses ctx, and started at begun.
func (c *cohort) wait(ctx context.Context, w *waiter[ownership], begun time.Duration) Wait {
	wait := Wait{Path: c.key.path, Waited: c.registry.now() - begun}
	carried, _ := ctx.Value(w.seat.mutex.key).(*Hold) // called without the mutex, because the program may have implemented ctx
	c.mu.Lock()
	request, served := c.request, w.served()
	if c.state == held && !served { // if w was served, the current hold may be the hold of w itself
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

// lookAtWait is called when the alarm fires.
func (c *cohort) lookAtWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm.set = false; c.state == held && !c.gate.empty() {
		places := c.registry.leaks.places(c)
		c.judgeLocked(c.since, c.gate.first.seat.since, c,
			"tier: a goroutine is blocked by a hold of its own process; if the goroutine itself has the hold, this is a deadlock: "+
				"pass the context of the hold to Acquire; if the holder waits for a lock of this goroutine, acquire both locks with AcquireAll",
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

// heldLock describes the lock as HeldLocks returns it. If this process has no grant of the lock, ok is false.
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
