package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Semaphore limits the number of permits that all processes together hold at a path. Its methods may be called concurrently.
//
// Caution: a semaphore is not reentrant; each Acquire takes more permits. If two goroutines hold permits and wait for more, they can
// deadlock. Acquire all permits in one call.
//
// If enough permits are free, Acquire, TryAcquire and Release take one round trip each on etcd, PostgreSQL (in tables), MySQL and Redis;
// on etcd TryAcquire takes two while other processes hold permits. On ZooKeeper, Acquire takes two round trips and Release takes one.
// TryAcquire there takes three, or one if too few permits are free. The number of permits does not change these costs. A local hand-off
// takes no round trip. On ZooKeeper the permits are shared with Curator's semaphore. On the other stores, no semaphore of another library
// is compatible.
//
// A killed process keeps its permits for the session timeout. If the process was also waiting for permits, it keeps its place in the queue
// for the same time. During this time no process behind the killed process gets permits, however many are free.
type Semaphore struct {
	registry *Registry
	at       lockKey
	permits  int
	options  *options
	store    second.Semaphore
	invalid  error // why the path, the number or an option cannot be used; nil if all can be used
}

// Semaphore returns the semaphore at path. The parameter permits is the number of permits that all processes together may hold. Semaphore
// sends no request, and its result need not be closed. Semaphores of one path share the permits of this process. If the path, the number
// or an option is wrong, the methods of the semaphore return an error. If the store has no semaphores, the error wraps
// [errors.ErrUnsupported].
//
// The store keeps the number, and all processes use the stored number. [Semaphore.SetPermits] sets it. If SetPermits was never called, the
// first process that uses the semaphore while no permit is taken or wanted stores its own number. A process that passed another number uses
// the stored one, and logs one warning. To change the number, deploy the new number in every process, and then call SetPermits once, or run
// "tierlock permits -set". Until then, or until the semaphore is idle for a moment, new processes use the old number. One request cannot
// ask for more permits than the number that its own process gave to Semaphore.
//
// The options [WithHandOff], [WithStrictOrder] and [WithMaxWait] apply to semaphores. [WithLinger] and [WithRounds] do not apply, because
// an unused permit is released at once.
//
// While other processes queue, a process takes an equal share of the permits. If twice its largest request is more than this share, the
// process takes twice its largest request. The process hands these permits off among its goroutines for three hand-off budgets
// ([WithHandOff], 20 ms by default). A process that has only a part of all permits may hand them off for longer. The first process in the
// queue waits for at most three budgets for each process in the queue, and for one critical section, however many permits it wants.
func (r *Registry) Semaphore(path string, permits int, opts ...Option) *Semaphore {
	s := &Semaphore{registry: r, at: lockKey{path, counting}, permits: permits}
	var own []any
	if s.options, own, s.invalid = r.options.forLock(opts); s.invalid == nil && permits < 1 {
		s.invalid = fmt.Errorf("%d permits in all: want at least one", permits)
	}
	if s.invalid != nil {
		s.invalid = fmt.Errorf("tier: semaphore %s: %w", path, s.invalid)
		return s
	}
	s.store, s.invalid = r.second.Semaphore(path, permits, second.Options{Own: own})
	return s
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.at.path }

// Acquire blocks until it has all k permits, until ctx ends, or until an error occurs that retrying cannot fix. All waiters of the process
// get the last kind of error. Acquire never takes only a part of the k permits. While the store cannot be reached, Acquire retries.
//
// Requests are served whole and in order: processes in the order in which they queue, and goroutines of a process in the order of their
// calls. A small request does not overtake a large request ahead of it. There is one exception: another process may hand its permits off
// among its own goroutines for a limited time; see [Registry.Semaphore].
//
// If the wait ends without permits, the error is a [*WaitError] as for [Mutex.Acquire]. The error names the process ahead in the queue, or
// says that too few permits are free. The error also says how many permits this process has. The error wraps [ErrTooManyPermits] if k is
// more than the number that this process gave to [Registry.Semaphore], or more than the number in the store. The stored number may also
// become smaller than k during the wait. Acquire also returns an error at once if k is below 1, or if the store cannot take k permits in
// one write; on ZooKeeper that limit is some thousands. After any error the queue entry is removed, in the background if the store does not
// answer.
func (s *Semaphore) Acquire(ctx context.Context, k int) (*Permits, error) {
	return s.take(ctx, "acquire", k, (*pool).enter)
}

// TryAcquire is like Acquire, but does not wait for other holders. TryAcquire returns [ErrLocked] if fewer than k permits are free, if
// another call waits for permits, or if another call took or released permits a moment ago. TryAcquire also returns [ErrLocked] while the
// store is in a grace period, see [GracePeriodError]. While [Registry.Err] reports that the store cannot be reached, TryAcquire fails at
// once. If the store has just stopped answering, TryAcquire blocks like [Mutex.TryAcquire].
func (s *Semaphore) TryAcquire(ctx context.Context, k int) (*Permits, error) {
	permits, err := s.take(ctx, "try", k, (*pool).try)
	if q := (*GracePeriodError)(nil); errors.Is(err, ErrLocked) && !errors.As(err, &q) && !errors.Is(err, errOvertaken) {
		err = tooFew{s.at.failure("try", fmt.Errorf("fewer than %s free, or another call waits for permits", permitsOf(k)))}
	}
	return permits, err
}

// A tooFew is [ErrLocked] with a text for semaphores.
type tooFew struct{ error }

func (tooFew) Unwrap() error { return ErrLocked }

func (s *Semaphore) take(ctx context.Context, op string, k int,
	take func(*pool, context.Context, *Semaphore, int, time.Duration) (*Permits, error),
) (*Permits, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	if err := cmp.Or(s.check(k), context.Cause(ctx)); err != nil {
		return nil, s.at.failure(op, err)
	}
	r := s.registry
	p, ok := r.join(s.at, s).(*pool)
	if !ok {
		return nil, s.at.failure(op, ErrClosed)
	}
	begun := r.now()
	permits, err := take(p, ctx, s, k, begun)
	if err != nil {
		p.part()
		return nil, r.failed(ctx, op, s.at.path, begun, err)
	}
	permits.begin(p)
	if r.options.observer != nil {
		permits.watch = r.watch(ctx, AcquiredEvent{Path: s.at.path, Permits: permits}, begun, permits.since)
		permits.watch.acquired(permits.lost, permits.Release)
	}
	return permits, nil
}

// check returns an error for a request that can never be served.
func (s *Semaphore) check(k int) error {
	switch {
	case k < 1:
		return fmt.Errorf("%d permits: want at least one", k)
	case k > s.permits:
		return fmt.Errorf("%w: the call wants %d, but this process gave %d to Semaphore; ask for fewer", ErrTooManyPermits, k, s.permits)
	case k > s.store.Most():
		return fmt.Errorf("%d permits: the store grants no more than %d in one write; ask for fewer", k, s.store.Most())
	}
	return nil
}

// Do calls f while it holds k permits. Otherwise Do is like [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, k int, f func(ctx context.Context) error) (err error) {
	permits, err := s.Acquire(ctx, k)
	if err != nil {
		return err
	}
	defer func() { err = both(err, permits.Release()) }()
	return f(permits.Context(ctx))
}

// SetPermits stores the number of permits. From then on all processes use this number, and not the number that they gave to
// [Registry.Semaphore]. While the store cannot be reached, SetPermits blocks until ctx ends; the error then wraps the cause of ctx, and the
// number may still be stored. Other errors are those of [Mutex.Contenders]. n must be at least 1.
//
// If the number becomes smaller, holders keep their permits. The store then grants no permit until the number of taken permits is below the
// new number. A waiter that wants more permits than the new number gets [ErrTooManyPermits]. If the number becomes larger, waiters are
// admitted at once. After a reduction, [Semaphore.Contenders] may show the surplus holders as waiting until they release.
//
// etcd, PostgreSQL, MySQL and Redis keep the number in a separate key or row, also while the semaphore is idle. ZooKeeper keeps the number
// in the data of the path. The server deletes the path some time after the last use of the semaphore. Curator's clients do not read the
// number in the store: they continue to use the number in their program.
func (s *Semaphore) SetPermits(ctx context.Context, n int) error {
	switch {
	case s.invalid != nil:
		return s.invalid
	case n < 1:
		return s.at.failure("set the permits of", fmt.Errorf("%d permits in all: want at least one", n))
	case s.registry.draining():
		return s.at.failure("set the permits of", ErrClosed)
	}
	return s.store.SetPermits(ctx, n)
}

// Contenders returns the processes that hold permits, followed by the queue of waiting processes. Holders are sorted by the time when they
// took the oldest permit that they still hold. A process that holds permits and waits for more appears in both parts. A holder appears
// once for each grant of the store, with the token of the grant. This token equals [Permits.Token], except on ZooKeeper. Otherwise
// Contenders is like [Mutex.Contenders].
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	all, err := s.store.Contenders(ctx)
	return contenders(all), err
}

// Break removes the contender with the given token, and so takes its permits. [Semaphore.Contenders] shows the tokens. All permits that a
// process took from the store in one grant have the same token. Permits of one grant are lost together, even if several goroutines hold
// them. [Permits.Lost] is closed, and [Permits.Err] and [Permits.Release] return an error that wraps [ErrLost]. If Break removes a waiter,
// the waiter queues again at the end of the queue.
//
// Caution: the next contender gets the permits at once, although the former holder may still use them. Otherwise Break is like
// [Mutex.Break]: it returns the same errors, and the former holder learns of its loss at the same time.
func (s *Semaphore) Break(ctx context.Context, token int64) error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.store.Break(ctx, token)
}

// Permits are the permits that one call of Acquire took. They are lost together. Release them exactly once. The methods may be called
// concurrently.
type Permits struct {
	pool      *pool
	semaphore *Semaphore
	count     int // of permits that the caller wants
	taken     []permit
	since     time.Duration // when this caller got them, on the clock of the leases
	released  atomic.Bool
	lost      context.Context // ends when one of the permits is lost
	endLost   context.CancelCauseFunc
	onLoss    []func() bool // each function stops the watching for the loss of one permit
	work      contexts
	watch     *watch // reports to the observer; nil if there is no observer
}

// begin is called when the permits have been granted.
func (p *Permits) begin(from *pool) {
	p.pool = from
	p.lost, p.endLost = context.WithCancelCause(context.Background())
	for _, one := range p.taken {
		life := one.Context()
		p.onLoss = append(p.onLoss, context.AfterFunc(life, func() { p.endLost(context.Cause(life)) }))
	}
}

// Count returns the number of permits.
func (p *Permits) Count() int { return len(p.taken) }

// Path returns the path of the semaphore.
func (p *Permits) Path() string { return p.semaphore.at.path }

// Lost returns a channel that is closed when one of the permits is lost, before the store can grant it to another process; see
// [Hold.Lost]. The release of the permits does not close the channel.
func (p *Permits) Lost() <-chan struct{} { return p.lost.Done() }

// Err returns nil while all permits are held, an error that wraps [ErrLost] once one of the permits is lost, and [ErrReleased] after the
// release. It checks the clock on every call, like [Hold.Err].
func (p *Permits) Err() error {
	var err error
	now := p.pool.registry.now()
	for _, one := range p.taken {
		err = cmp.Or(err, one.ErrAt(now))
	}
	if p.released.Load() { // checked last: the end of released permits is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns the end of the lease of the permits, like [Hold.ValidUntil].
func (p *Permits) ValidUntil() time.Time {
	if p.Err() != nil {
		return time.Time{}
	}
	return p.taken[0].ValidUntil() // all permits belong to one session
}

// Token returns the fencing token of the grant with which this process took the permits from the store. The token is positive, and never
// lower than the token of permits that were taken earlier. Permits that were granted together have the same token, and a local hand-off
// does not change it. Caution: several processes hold permits at the same time, with different tokens. Therefore a resource must not refuse
// a token because it is lower than the token of other permits. The resource may compare tokens of permits with the tokens of a lock that
// was acquired later.
func (p *Permits) Token() int64 { return p.taken[0].Token() }

// Context returns a context for work under the permits, derived from ctx. The context is cancelled when one of the permits is lost, with a
// cause that wraps [ErrLost], and when the permits are released, with the cause [ErrReleased]. If the permits are already lost or
// released, the returned context is already cancelled. Calls with the same ctx return the same context.
func (p *Permits) Context(ctx context.Context) context.Context {
	return p.work.under(ctx, p.lost, p.Err, func(ctx context.Context) context.Context { return ctx })
}

// Release releases the permits. Within the hand-off budget, waiting goroutines of this process get the permits. If no goroutine waits, or
// the budget is used up, the permits go back to the store. If the store does not answer, Release returns after [WithReleaseTimeout]. The
// permits are then removed in the background, or end with the session.
//
// Release returns nil if all permits were held until now, and an error that wraps [ErrLost] if one of them was lost. If the permits were
// released before, Release returns [ErrReleased] and has no effect. If the store refuses the release, Release returns that error, like
// [Hold.Release].
func (p *Permits) Release() error {
	if p.released.Swap(true) {
		return ErrReleased
	}
	for _, stop := range p.onLoss {
		stop()
	}
	p.work.end(p.lost)
	defer p.pool.part()
	released := p.watch.releasing()
	err := p.pool.release(p)
	if errors.Is(err, ErrLost) {
		p.endLost(err)
	}
	released(err)
	return err
}

// A pool is the state of one semaphore in this process: a first-in-first-out queue of goroutines that wait for permits, and a request to
// the store while any goroutine waits.
//
// Released permits go to the first waiter. The pool keeps permits only for that waiter, and only if this process has enough permits for the
// whole request of that waiter.
type pool struct {
	members                  // its mutex guards the fields below, except given and store, which never change
	given   int              // the number that the program gave when the pool was made
	permits int              // the number of permits of the semaphore, as far as this process knows
	store   second.Semaphore // releases permits

	gate    gate[Permits]
	request *second.Demand     // the request that is in flight in the store; nil if there is none
	asked   *second.Demand     // the last request whose Take was called; Take is called when the request is first in the queue
	quit    context.CancelFunc // cancels the request; nil if the request is a try
	trying  *try               // the request, if it is a try; otherwise nil
	taken   int                // the number of permits that goroutines of this process hold
	moved   time.Duration      // when taken last changed
	kept    []permit           // kept for the first waiter, which needs more than these
	expiry  *time.Timer        // fires when the first kept permit has to leave the process
	last    *second.Demand     // the previous request
	alone   time.Duration      // the time of the last check that saw no other process wait
}

// A permit is one of the permits that the store granted in one write.
type permit struct {
	second.Permit
	stay
}

// enter waits until it has k permits, or ctx ends.
func (p *pool) enter(ctx context.Context, s *Semaphore, k int, begun time.Duration) (*Permits, error) {
	p.mu.Lock()
	w := p.gate.join()
	w.seat.semaphore, w.seat.count, w.seat.since = s, k, begun
	if p.request == nil {
		p.requestLocked()
	}
	p.trying.keepsWaiting(begun)
	p.alarmLocked()
	p.mu.Unlock()
	return &w.seat, await(ctx, p, w, s.options.maxWait, begun)
}

// try takes permits if enough are free and no process waits. Calls that arrive during a try wait for the end of the try.
func (p *pool) try(ctx context.Context, s *Semaphore, k int, begun time.Duration) (*Permits, error) {
	p.mu.Lock()
	if p.request != nil {
		p.mu.Unlock()
		return nil, p.key.failure("try", ErrLocked)
	}
	p.request = new(second.Demand)
	p.mu.Unlock()
	t := newTry(ctx, begun) // called without the mutex, because the program may have implemented ctx
	p.mu.Lock()
	if p.trying = t; !p.gate.empty() {
		t.keepsWaiting(begun)
	}
	p.mu.Unlock()
	permits, err := s.store.TryAcquire(t.ctx, k)
	p.mu.Lock()
	defer p.mu.Unlock()
	t.over()
	p.trying = nil
	p.followLocked(s.store)
	own := &Permits{semaphore: s, taken: p.portionOf(permits), since: p.registry.now()}
	p.haveLocked(len(permits), own.since)
	p.answeredLocked()
	p.alarmLocked()
	return own, err
}

// turnAway ends all waits. It is called when the registry admits no more goroutines.
func (p *pool) turnAway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.tellAll()
}

// withdraw removes a waiter from the queue. If the waiter has just been served, its permits go to other waiters.
func (p *pool) withdraw(w *waiter[Permits]) {
	p.mu.Lock()
	first := p.gate.first == w
	served := !p.gate.leave(w) && w.refusal == nil
	if first {
		p.offerLocked(nil, false)
	}
	p.mu.Unlock()
	if served { // when the registry is closed, the permits end with the session
		p.spawn(func() { p.release(&w.seat) })
	}
}

// requestLocked starts a goroutine that requests permits from the store, for all waiters. There is only one such goroutine. The request
// uses the options of the first waiter's semaphore. Granted permits go to the waiters that are first when the request returns, and surplus
// permits go back to the store. If retrying cannot fix the error, all waiters with an equal claim on the store get it.
func (p *pool) requestLocked() {
	store := p.gate.first.seat.semaphore.store
	request := new(second.Demand)
	request.Take = func(free int) int { return p.want(request, store, free) }
	request.Want = func() int { // assumes that all permits are free, and that as many other processes queue as last time
		p.mu.Lock()
		defer p.mu.Unlock()
		p.followLocked(store)
		if p.gate.empty() {
			return 0
		}
		return p.wantLocked(max(p.permits, p.gate.first.seat.count), p.last.Others()) // the store may have more permits by now
	}
	// ctx is not derived from any waiter's context, because the request serves the waiters that are first when it returns.
	ctx, quit := context.WithCancel(context.Background())
	p.request, p.quit = request, quit
	p.spawn(func() {
		defer quit()
		permits, err := store.Acquire(ctx, request)
		p.mu.Lock()
		p.followLocked(store)
		switch {
		case errors.Is(err, ErrTooManyPermits):
			p.refuseLocked()
		case err != nil && ctx.Err() == nil: // if ctx has ended, the request was cancelled, and the present waiters may have come after that
			p.gate.refuse(err, func(one *Permits) bool { return one.semaphore.store.Equal(store) })
		}
		rest := p.offerLocked(p.portionOf(permits), true)
		p.answeredLocked()
		p.mu.Unlock()
		p.giveBack(rest)
	})
}

// answeredLocked is called after the end of a request.
func (p *pool) answeredLocked() {
	p.last, p.request, p.quit = p.request, nil, nil
	if !p.gate.empty() {
		p.requestLocked()
	}
}

// want returns how many of the free permits the request takes. They may be too few for the waiter that is first then. In this case, the
// next release in this process supplies the rest.
func (p *pool) want(request *second.Demand, store second.Semaphore, free int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.request != request { // the request was cancelled
		return 0
	}
	p.followLocked(store)
	p.asked = request
	first := p.gate.first
	if p.refuseLocked(); p.gate.first != first {
		p.offerLocked(nil, false) // the permits that were kept for a waiter that is refused
	}
	return p.wantLocked(free, request.Others())
}

// refuseLocked refuses the waiters at the head that want more permits than the semaphore has. It is called when the store has just reported
// the number.
func (p *pool) refuseLocked() {
	for refused := 1; refused > 0 && !p.gate.empty() && p.gate.first.seat.count > p.permits; {
		first := &p.gate.first.seat
		refused = p.gate.refuse(fmt.Errorf("%w: %d of %d", ErrTooManyPermits, first.count, p.permits),
			func(one *Permits) bool { return one == first })
	}
}

// followLocked adopts the number of permits that the store reported last.
func (p *pool) followLocked(store second.Semaphore) {
	p.permits = store.Permits()
	if permits := p.permits; permits != p.given && p.registry.warnOnce(p.key) {
		p.spawn(func() {
			p.registry.second.Logger().Warn("tier: the number of permits differs from the one in the store; the stored number applies, and "+
				"SetPermits changes it",
				"path", p.key.path, "given", p.given, "permits", permits)
		})
	}
}

func (p *pool) wantLocked(free, others int) int {
	s := supply{total: p.permits, others: others, free: free, kept: len(p.kept)}
	return s.take(p.headLocked(p.permits))
}

// headLocked returns what the waiters at the head of the gate want: the first ones that want n permits together, and the next one.
func (p *pool) headLocked(n int) (head []wish) {
	for w := p.gate.first; w != nil && n >= 0; w = w.next {
		o := w.seat.semaphore.options
		head = append(head, wish{w.seat.count, o.budget(), o.strict})
		n -= w.seat.count
	}
	return head
}

// portionOf returns the permits of a grant, with the time for which they may stay in this process.
func (p *pool) portionOf(permits []second.Permit) []permit {
	limit := stay{p.registry.now(), budgetsOf(len(permits), p.permits, p.request.Others())}
	all := make([]permit, len(permits))
	for i, one := range permits {
		all[i] = permit{one, limit}
	}
	return all
}

// release hands permits off to local waiters, as far as that is fair. It gives the other permits back to the store.
func (p *pool) release(permits *Permits) error {
	p.mu.Lock()
	p.haveLocked(-len(permits.taken), p.registry.now())
	rest := p.offerLocked(permits.taken, false)
	p.mu.Unlock()
	return p.giveBack(rest)
}

// offerLocked offers permits, and the kept ones, to the waiters. Either the store has just granted the permits, or a goroutine has released
// them. When the first waiter has changed, offerLocked is called without permits. It returns the permits that have to go back to the store.
func (p *pool) offerLocked(permits []permit, granted bool) (rest []permit) {
	return p.applyLocked(p.viewLocked(permits, granted).assign(), permits)
}

// viewLocked describes the pool to the policy. The spares are the kept permits, and then the given ones.
func (p *pool) viewLocked(permits []permit, granted bool) poolView {
	n := len(p.kept) + len(permits)
	v := poolView{now: p.registry.now(), alone: p.alone, taken: p.taken, waiters: p.headLocked(n), spares: make([]spare, n)}
	if len(v.waiters) == 0 { // the rest of the view does not matter, and there may be no request
		return v
	}
	v.contended = p.last.Contended() || p.request.Contended()
	v.away = p.registry.second.Err() != nil
	for i, one := range slices.Concat(p.kept, permits) {
		v.spares[i] = spare{one.stay, granted && i >= len(p.kept), one.ErrAt(v.now) == nil && one.Leased()}
	}
	return v
}

// applyLocked does what the policy has decided about the spares: the kept permits, and then the given ones. Of the given permits, it
// returns the ones that have to go back to the store.
func (p *pool) applyLocked(decided verdict, permits []permit) (rest []permit) {
	var served, still, due []permit
	for i, one := range slices.Concat(p.kept, permits) {
		switch fate := decided.fates[i]; {
		case fate == handedOut:
			served = append(served, one)
		case fate == kept:
			still = append(still, one)
		case i < len(p.kept):
			due = append(due, one)
		default:
			rest = append(rest, one)
		}
	}
	p.kept, p.alone = still, decided.alone
	p.serveLocked(served)
	p.dropLocked(due) // not returned with rest: the loss of one of these is no error of the goroutine that releases the others
	p.changedLocked(decided.until)
	return rest
}

// haveLocked counts permits that goroutines of this process have got. If more is negative, they have released permits.
func (p *pool) haveLocked(more int, now time.Duration) {
	p.taken += more
	p.moved = now
}

// serveLocked gives permits to the first waiters, in order. They suffice exactly for whole requests.
func (p *pool) serveLocked(permits []permit) {
	now := p.registry.now()
	for len(permits) > 0 {
		seat := &p.gate.first.seat
		k := seat.count
		seat.taken, seat.since = permits[:k:k], now
		p.haveLocked(k, now)
		permits = permits[k:]
		p.gate.admit()
	}
}

// dropLocked gives up unused permits.
func (p *pool) dropLocked(permits []permit) {
	if len(permits) > 0 {
		p.spawn(func() { p.giveBack(permits) }) // when the registry is closed, the permits end with the session
	}
}

// giveBack releases permits in the store.
func (p *pool) giveBack(permits []permit) error {
	if len(permits) == 0 {
		return nil
	}
	all := make([]second.Permit, len(permits))
	for i, one := range permits {
		all[i] = one.Permit
	}
	return p.store.Release(all)
}

// changedLocked notifies the request that the demand has changed. It also sets the timer for the kept permits: the first of them has to
// leave at the time until.
func (p *pool) changedLocked(until time.Duration) {
	p.alarmLocked()
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.kept) > 0 {
		p.expiry = time.AfterFunc(until-p.registry.now(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.expireLocked()
		})
	}
	switch {
	case p.quit == nil: // no request is in flight, or it is a try, which cannot change
	case p.gate.empty():
		p.quit() // no waiter is left
	default:
		p.request.Changed.Set()
	}
}

// expireLocked gives up the permits that were kept for long enough. If the timer was stopped too late, the kept permits have changed since
// it fired: there may be none, or none whose time is over.
func (p *pool) expireLocked() { p.applyLocked(p.viewLocked(nil, false).expire(), nil) }

// wait describes the wait of w. The wait started at begun.
func (p *pool) wait(_ context.Context, w *waiter[Permits], begun time.Duration) Wait {
	wait := Wait{Path: p.key.path, Waited: p.registry.now() - begun, Permits: w.seat.count}
	p.mu.Lock()
	request, served := p.request, w.served()
	if !served { // if w was served, the permits may be the permits of w itself
		wait.Taken, wait.First = p.taken, request != nil && request == p.asked
	}
	p.mu.Unlock()
	if request != nil && !served {
		wait.stand(request.Standing(), p.registry.second)
		wait.First = wait.First && wait.Position == 0 // the process may have lost its place in the queue since then
	}
	return wait
}

// alarmLocked is called when a goroutine begins to wait, and when the permits for which it waits change.
func (p *pool) alarmLocked() {
	if p.stuckLocked() {
		p.setAlarmLocked(p)
	}
}

// stuckLocked reports whether the first waiter can get no permits before a goroutine of this process releases some. Other processes cannot
// help this waiter.
func (p *pool) stuckLocked() bool {
	return !p.gate.empty() && p.gate.first.seat.count > p.permits-p.taken
}

// lookAtWait is called when the alarm fires.
func (p *pool) lookAtWait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alarm.set = false; p.stuckLocked() {
		first := &p.gate.first.seat
		p.judgeLocked(p.moved, first.since, p,
			"tier: a goroutine is blocked by permits of its own process; if the goroutine itself has these permits, this is a deadlock: "+
				"acquire all permits at once; if their holder waits for a lock of this goroutine, acquire locks and permits in one order "+
				"everywhere",
			"permits", first.count, "taken", p.taken, "of", p.permits, "waiters", p.gate.waiting)
	}
}

func (p *pool) addTo(s *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Permits += p.taken
	s.PermitWaiters += p.gate.waiting
}
