package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Semaphore is a path in a registry at which all processes together may have a limited number of
// permits. It is safe for concurrent use.
//
// In round trips, with nobody else there and however many permits it is about: one each for Acquire,
// TryAcquire and Release on etcd, PostgreSQL (in tables) and Redis; on ZooKeeper two for Acquire, three for
// TryAcquire, or one if too few are free, and one for Release. What is handed off within the process costs
// none. On ZooKeeper Curator shares the permits; on the other stores nobody else's semaphore is compatible.
//
// It is not reentrant: each Acquire takes more permits. A goroutine that holds some and waits for more
// can deadlock with another one that does the same: acquire all at once.
//
// A process that dies keeps its permits for the session timeout; if it was also waiting for some, it keeps
// its place, and nobody behind it gets any for as long, however many are free.
type Semaphore struct {
	registry *Registry
	at       lockKey
	permits  int
	options  *options
	store    second.Semaphore
	invalid  error // why path, number or an option cannot be used, nil if they can
}

// Semaphore returns the semaphore at path. All processes together may hold so many
// permits. It is cheap and need not be closed; all of one path share what this process has. What
// is wrong with path, number or an option is reported by its methods. Where the store has none, the
// error wraps [errors.ErrUnsupported].
//
// The number in the store counts: the one that [Semaphore.SetPermits] has set, or else the one that the first process gave
// while it has permits or waits for some. A process that gives another number follows the store's and logs one warning.
// To change the number, deploy the new one in every process, and then call SetPermits once, or run "tierlock permits -set": until
// then, or until the semaphore is idle for a moment, new processes use the old number. No process can ask for more permits at a time
// than the number that it gave itself.
//
// Of the options, [WithHandOff], [WithStrictOrder] and [WithMaxWait] go for semaphores. [WithLinger] and
// [WithRounds] do not: a permit that nobody wants goes at once.
//
// While others queue, a process takes at once its share of all permits, or twice what the largest of its
// requests wants if that is more than its share, and hands them off for three times the budget of [WithHandOff],
// which is 20 ms here if it is not set: on its way to another process a permit is idle for three round trips,
// where a lock is for one. A part of all permits that was taken at once stays for longer in proportion, half of
// them for twice as long, but for no more than three budgets for each process that queued then. So the first in
// the queue waits for so long and a section at most, whatever it wants, and where requests are alike the others
// wait for about three budgets for each process ahead.
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

// Acquire waits until it has k permits, all of them or none, ctx is done, or an error occurs that
// retrying cannot fix; every waiter of the process then gets that error. While the store cannot be
// reached it keeps trying.
//
// Requests are served whole and in order: processes in the order in which they queue, goroutines of
// a process in the order of their calls. A large request is not overtaken by small ones behind it,
// but for what another process may hand off among its goroutines, see [Registry.Semaphore].
//
// When the wait ended without permits the error is a [*WaitError] as that of [Mutex.Acquire], which says
// which process is ahead in the queue, or that nobody is and too few are free, and how many permits this
// process has itself. After any error nothing of this call is left, or it is removed in the background.
// The error wraps [ErrTooManyPermits] if k is more than this process gave to [Registry.Semaphore], or more than there are in the store,
// also if it becomes so while the call waits.
func (s *Semaphore) Acquire(ctx context.Context, k int) (*Permits, error) {
	return s.take(ctx, "acquire", k, (*pool).enter)
}

// TryAcquire is Acquire without waiting for others: it returns [ErrLocked] if fewer than k permits
// are free, or somebody waits for some, or has only just taken or given up some, or the store grants
// none: see [GracePeriodError]. While [Registry.Err] says that the store cannot be reached it fails at once. A server that has just
// fallen silent is waited for as with [Mutex.TryAcquire].
func (s *Semaphore) TryAcquire(ctx context.Context, k int) (*Permits, error) {
	permits, err := s.take(ctx, "try", k, (*pool).try)
	if q := (*GracePeriodError)(nil); errors.Is(err, ErrLocked) && !errors.As(err, &q) && !errors.Is(err, errOvertaken) {
		err = tooFew{s.at.failure("try", fmt.Errorf("fewer than %s free, or somebody waits", permitsOf(k)))}
	}
	return permits, err
}

// tooFew is [ErrLocked] in the words of a semaphore.
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

// check reports a request that can never be served.
func (s *Semaphore) check(k int) error {
	switch {
	case k < 1:
		return fmt.Errorf("%d permits: want at least one", k)
	case k > s.permits:
		return fmt.Errorf("%w: %d of %d, which this process gave to Semaphore; ask for fewer", ErrTooManyPermits, k, s.permits)
	case k > s.store.Most():
		return fmt.Errorf("%d permits: the store takes no more than %d in one write; ask for fewer", k, s.store.Most())
	}
	return nil
}

// Do calls f while it holds k permits. It is otherwise like [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, k int, f func(ctx context.Context) error) (err error) {
	permits, err := s.Acquire(ctx, k)
	if err != nil {
		return err
	}
	defer func() { err = both(err, permits.Release()) }()
	return f(permits.Context(ctx))
}

// SetPermits sets how many permits there are, for all processes and from now on, whatever they gave to [Registry.Semaphore].
// It waits for a store that cannot be reached.
//
// A smaller number interrupts no owner: permits that are taken stay taken, and no more are granted until fewer are taken than
// there are. A waiter that wants more than there are gets [ErrTooManyPermits]. A larger number lets waiters in at once. Until they
// release, [Semaphore.Contenders] may show owners above a smaller number as waiting.
//
// The store keeps the number: etcd, PostgreSQL and Redis in a key or row of its own, which stays when the semaphore is idle.
// ZooKeeper keeps it in the content of the path, which the server removes some time after the last use. Curator does not read it
// there: its clients go on with the number in their own program.
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

// Contenders returns the processes that have permits, in the order in which they took the first one that
// they still have, and then the queue of those that wait for some. One that has permits and waits for
// more is in both places. On ZooKeeper a process that has permits is there once, and its token is not known;
// elsewhere it is there for each time that it took some in the store. It is otherwise like
// [Mutex.Contenders].
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	all, err := s.store.Contenders(ctx)
	return contenders(all), err
}

// Permits are what one call of Acquire took of a semaphore. They are lost together, and must be
// released exactly once. Methods may be called concurrently.
type Permits struct {
	pool      *pool
	semaphore *Semaphore
	count     int // that are wanted
	taken     []permit
	since     time.Duration // when they came here, on the clock of the leases
	released  atomic.Bool
	lost      context.Context // ends with the loss of any of them
	endLost   context.CancelCauseFunc
	onLoss    []func() bool // stop the watching for a loss
	work      contexts
	watch     *watch // for the observer; nil if there is none
}

// begin is called when they have come.
func (p *Permits) begin(from *pool) {
	p.pool = from
	p.lost, p.endLost = context.WithCancelCause(context.Background())
	for _, one := range p.taken {
		life := one.Context()
		p.onLoss = append(p.onLoss, context.AfterFunc(life, func() { p.endLost(context.Cause(life)) }))
	}
}

// Count returns how many permits they are.
func (p *Permits) Count() int { return len(p.taken) }

// Path returns the path of the semaphore.
func (p *Permits) Path() string { return p.semaphore.at.path }

// Lost returns a channel that is closed when one of the permits is no longer certain to be ours,
// before the store can give it to anybody else; see [Hold.Lost]. After the release it stays as it is.
func (p *Permits) Lost() <-chan struct{} { return p.lost.Done() }

// Err returns nil while all permits are held, an error wrapping [ErrLost] once one is lost, and
// [ErrReleased] once they were released. It reads the clock itself, like [Hold.Err].
func (p *Permits) Err() error {
	var err error
	now := p.pool.registry.now()
	for _, one := range p.taken {
		err = cmp.Or(err, one.ErrAt(now))
	}
	if p.released.Load() { // asked last: the end of permits that were given up is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns up to when the permits are certainly ours, as [Hold.ValidUntil] does.
func (p *Permits) ValidUntil() time.Time {
	if p.Err() != nil {
		return time.Time{}
	}
	return p.taken[0].ValidUntil() // all belong to one session
}

// Token returns the fencing token of the turn in which this process took the permits from the
// store. It is positive, never lower than that of permits that were taken before, and the same for
// those that were taken together or are handed off. As several have permits at a time, a resource
// should not refuse lower ones; it may compare them with the tokens of a lock that came later.
func (p *Permits) Token() int64 { return p.taken[0].Token() }

// Context returns a context for work under the permits, derived from ctx. It is cancelled when one
// of them is lost, with an error wrapping [ErrLost] as its cause, and when they are released, with
// [ErrReleased]; if that has happened, it is done when Context returns. The same ctx gives the same context.
func (p *Permits) Context(ctx context.Context) context.Context {
	return p.work.under(ctx, p.lost, p.Err, func(ctx context.Context) context.Context { return ctx })
}

// Release gives the permits up: to goroutines of this process that wait, as far as that is fair, and
// the others in the store. It waits for an unreachable store for the time of [WithReleaseTimeout], after
// which they are removed in the background or go with the session.
//
// It returns nil if all were ours to the end, an error wrapping [ErrLost] if one was lost before,
// and [ErrReleased], without any effect, if they were released before.
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

// A pool is what this process has at stake in one semaphore: those who wait for permits, first in,
// first out, and the request to the store for them while there are any.
//
// What is released goes to whoever is first. It keeps permits only for him, and only while this
// process has enough for all that he wants.
type pool struct {
	members                  // whose mutex guards the fields below, but for given and store, which never change
	given   int              // how many permits there are, as the program said when the pool began
	permits int              // how many there are, as far as this process knows
	store   second.Semaphore // for all of them, to give permits back

	gate    gate[Permits]
	request *second.Demand     // what is under way in the store; nil while nothing is
	asked   *second.Demand     // the one that was last asked what to take, as it was first in the queue then
	quit    context.CancelFunc // abandons the request; nil if it is a try
	trying  *try               // nil unless the request is one
	taken   int                // permits that somebody here has
	moved   time.Duration      // when these last changed
	kept    []permit           // for the first one, too few for him as yet
	expiry  *time.Timer        // when the first of those has to go
	last    *second.Demand     // the request before this one
	alone   time.Duration      // when it was last looked while no other process was known to wait
}

// A permit is one of those that came from the store in one write.
type permit struct {
	second.Permit
	since   time.Duration
	budgets float64 // for how many of them it may stay while others wait
}

// enter waits until k permits have come, or ctx is done.
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

// try takes permits if enough are free and nobody waits. Whoever comes meanwhile waits for its end.
func (p *pool) try(ctx context.Context, s *Semaphore, k int, begun time.Duration) (*Permits, error) {
	p.mu.Lock()
	if p.request != nil {
		p.mu.Unlock()
		return nil, p.key.failure("try", ErrLocked)
	}
	p.request = new(second.Demand)
	p.mu.Unlock()
	t := newTry(ctx, begun) // without the mutex: ctx may be of a type of the program
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

// turnAway ends all waits, as nobody is let in any more.
func (p *pool) turnAway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.tellAll()
}

// withdraw takes a waiter out of the queue. If it was served a moment ago, others get what it had.
func (p *pool) withdraw(w *waiter[Permits]) {
	p.mu.Lock()
	first := p.gate.first == w
	served := !p.gate.leave(w) && w.refusal == nil
	if first {
		p.offerLocked(nil)
	}
	p.mu.Unlock()
	if served { // when the registry is closed they go with the session
		p.spawn(func() { p.release(&w.seat) })
	}
}

// requestLocked starts the one goroutine that goes to the store for all who wait, by way of the first
// one's semaphore. What it brings is for those who are first when it returns, and what nobody wants it
// gives back. An error that retrying cannot fix is for all whose requests are alike.
func (p *pool) requestLocked() {
	store := p.gate.first.seat.semaphore.store
	request := new(second.Demand)
	request.Take = func(free int) int { return p.want(request, store, free) }
	request.Want = func() int { // if all are free and as many others queue as last time
		p.mu.Lock()
		defer p.mu.Unlock()
		p.followLocked(store)
		if p.gate.empty() {
			return 0
		}
		return p.wantLocked(max(p.permits, p.gate.first.seat.count), p.last.Others()) // there may be more by now
	}
	// Not derived from anybody's context: it serves whoever is first when it returns.
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
		case err != nil && ctx.Err() == nil: // else it was abandoned, and somebody may have come since
			p.gate.refuse(err, func(one *Permits) bool { return one.semaphore.store.Equal(store) })
		}
		rest := p.offerLocked(p.portionOf(permits))
		p.answeredLocked()
		p.mu.Unlock()
		p.giveBack(rest)
	})
}

// answeredLocked follows the end of a request.
func (p *pool) answeredLocked() {
	p.last, p.request, p.quit = p.request, nil, nil
	if !p.gate.empty() {
		p.requestLocked()
	}
}

// want is how many permits to take of so many that are free: for those who are first, its share at most, but as many as the first one
// wants. What does not go into whole requests now does so with what the next one here releases. In strict order it is for the first
// one alone, so that each has to queue among the processes.
func (p *pool) want(request *second.Demand, store second.Semaphore, free int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.request != request { // it was abandoned
		return 0
	}
	p.followLocked(store)
	p.refuseLocked()
	p.asked = request
	return p.wantLocked(free, request.Others())
}

// refuseLocked refuses waiters at the head that want more permits than there are. The store has just said how many.
func (p *pool) refuseLocked() {
	for refused := 1; refused > 0 && !p.gate.empty() && p.gate.first.seat.count > p.permits; {
		first := &p.gate.first.seat
		refused = p.gate.refuse(fmt.Errorf("%w: %d of %d", ErrTooManyPermits, first.count, p.permits),
			func(one *Permits) bool { return one == first })
	}
}

// followLocked takes over how many permits there are, as the store has said last.
func (p *pool) followLocked(store second.Semaphore) {
	p.permits = store.Permits()
	if permits := p.permits; permits != p.given && p.registry.warnOnce(p.key) {
		p.spawn(func() {
			p.registry.second.Logger().Warn("tier: the number of permits differs from the one in the store, which applies; use SetPermits",
				"path", p.key.path, "given", p.given, "permits", permits)
		})
	}
}

func (p *pool) wantLocked(free, others int) int {
	if p.gate.empty() {
		return 0
	}
	share, wanted := (p.permits-1)/(1+others)+1, 0 // rounded up
	for w := p.gate.first; w != nil && wanted < p.permits; w = w.next {
		wanted += w.seat.count
		if w.seat.count > 1 { // in less most requests leave a gap that the next one does not fit
			share = max(share, 2*w.seat.count)
		}
		if w.seat.semaphore.options.strict {
			break
		}
	}
	if free += len(p.kept); free < p.gate.first.seat.count {
		return 0
	}
	return max(min(wanted, share, free)-len(p.kept), 0)
}

// idleTrips is for how many round trips a permit is idle on its way to another process, where a lock
// is for one: the release, the look, the exchange. For as many budgets it stays.
const idleTrips = 3

// portionOf says of what a request has brought how long it may stay. A part of all permits stays for longer in
// proportion, up to once for each process that queues. Others wait as if each of these had all
// permits in turn, but fewer have to move.
func (p *pool) portionOf(permits []second.Permit) []permit {
	parts := float64(p.permits) / float64(len(permits))
	queueing := float64(1 + p.request.Others())
	now, budgets := p.registry.now(), idleTrips*min(parts, queueing)
	all := make([]permit, len(permits))
	for i, one := range permits {
		all[i] = permit{one, now, budgets}
	}
	return all
}

// ends returns when a permit that began to be wanted elsewhere at the time alone has to go.
func (one permit) ends(alone, budget time.Duration) time.Duration {
	stay := min(one.budgets*float64(budget), math.MaxInt64/2)
	return max(alone, one.since) + time.Duration(stay)
}

// release hands off to those who wait what somebody had, as far as that is fair, and gives up the rest.
func (p *pool) release(permits *Permits) error {
	p.mu.Lock()
	p.haveLocked(-len(permits.taken), p.registry.now())
	fair, rest := p.sortLocked(permits.taken)
	rest = append(rest, p.offerLocked(fair)...)
	p.mu.Unlock()
	return p.giveBack(rest)
}

// sortLocked tells permits that may stay in the process from those that have to go. They may stay
// while nobody else waits, and else for their budgets, which run from when they came or, if that is
// later, from the last look before another process was seen. They never stay without a valid lease,
// nor while the connection is down.
func (p *pool) sortLocked(permits []permit) (fair, due []permit) {
	if p.gate.empty() || p.registry.second.Err() != nil {
		return nil, permits
	}
	now := p.registry.now()
	if !p.last.Contended() && !p.request.Contended() {
		p.alone = now
	}
	for _, one := range permits {
		if one.ErrAt(now) == nil && one.Leased() && now < one.ends(p.alone, p.budgetLocked()) {
			fair = append(fair, one)
		} else {
			due = append(due, one)
		}
	}
	return fair, due
}

// budgetLocked is that of the first who waits.
func (p *pool) budgetLocked() time.Duration { return p.gate.first.seat.semaphore.options.budget() }

// offerLocked gives permits, and those that are kept, to those who wait. It is called without any when
// somebody else is first now, or nobody. It returns those that have to go back to the store.
//
// If the first one wants more than there is, that is kept for him only if it is enough together with what
// others of this process have. Else two processes that each kept a part would wait for each other.
func (p *pool) offerLocked(permits []permit) (rest []permit) {
	kept, due := p.sortLocked(p.kept)
	left := p.serveLocked(slices.Concat(kept, permits))
	older := max(len(left)-len(permits), 0)
	fair, rest := p.sortLocked(left[older:])
	p.kept = slices.Concat(left[:older], fair)
	if p.gate.empty() || p.taken+len(p.kept) < p.gate.first.seat.count {
		rest = append(rest, fair...)
		due = append(due, left[:older]...)
		p.kept = nil
	}
	p.dropLocked(due) // apart: if one was lost, that is no loss of who releases others
	p.changedLocked()
	return rest
}

// haveLocked counts more permits, or fewer, that somebody here has.
func (p *pool) haveLocked(more int, now time.Duration) {
	p.taken += more
	p.moved = now
}

// serveLocked gives permits to those who are first, whole requests in order, and returns what is
// left.
func (p *pool) serveLocked(permits []permit) []permit {
	now := p.registry.now()
	for !p.gate.empty() && p.gate.first.seat.count <= len(permits) {
		seat := &p.gate.first.seat
		k := seat.count
		seat.taken, seat.since = permits[:k:k], now
		p.haveLocked(k, now)
		permits = permits[k:]
		p.gate.admit()
	}
	return permits
}

// dropLocked gives up what nobody has.
func (p *pool) dropLocked(permits []permit) {
	if len(permits) > 0 {
		p.spawn(func() { p.giveBack(permits) }) // when the registry is closed they go with the session
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

// changedLocked tells the request of another demand, and sees to the end of what is kept.
func (p *pool) changedLocked() {
	p.alarmLocked()
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.kept) > 0 {
		end := time.Duration(math.MaxInt64)
		for _, one := range p.kept {
			end = min(end, one.ends(p.alone, p.budgetLocked()))
		}
		p.expiry = time.AfterFunc(end-p.registry.now(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.expireLocked()
		})
	}
	switch {
	case p.quit == nil: // nothing is under way, or nobody can change it
	case p.gate.empty():
		p.quit() // nobody wants anything any more
	default:
		p.request.Changed.Set()
	}
}

// expireLocked gives up what was kept for long enough, and the rest if that is too little by itself. Since its timer has gone off there may
// be other permits, or none.
func (p *pool) expireLocked() {
	if len(p.kept) == 0 {
		return
	}
	now, budget := p.registry.now(), p.budgetLocked()
	left := slices.DeleteFunc(slices.Clone(p.kept), func(one permit) bool { return one.ends(p.alone, budget) <= now })
	if len(left) == len(p.kept) {
		return // the timer was stopped too late, and another one is set
	}
	if p.taken+len(left) < p.gate.first.seat.count {
		left = nil
	}
	p.dropLocked(slices.DeleteFunc(p.kept, func(one permit) bool { return slices.Contains(left, one) }))
	p.kept = left
	p.changedLocked()
}

// wait is what is known of the wait of w, that began then.
func (p *pool) wait(_ context.Context, w *waiter[Permits], begun time.Duration) Wait {
	wait := Wait{Path: p.key.path, Waited: p.registry.now() - begun, Permits: w.seat.count}
	p.mu.Lock()
	request, served := p.request, w.served()
	if !served { // else they may be its own
		wait.Taken, wait.First = p.taken, request != nil && request == p.asked
	}
	p.mu.Unlock()
	if request != nil && !served {
		wait.stand(request.Standing(), p.registry.second)
		wait.First = wait.First && wait.Position == 0 // since it was asked, its place may have been lost
	}
	return wait
}

// alarmLocked is called when somebody begins to wait, or waits for something else.
func (p *pool) alarmLocked() {
	if p.stuckLocked() {
		p.setAlarmLocked(p)
	}
}

// stuckLocked reports whether the first who waits gets no permits before somebody here gives some up, whatever other processes do.
func (p *pool) stuckLocked() bool {
	return !p.gate.empty() && p.gate.first.seat.count > p.permits-p.taken
}

// lookAtWait is called by the alarm.
func (p *pool) lookAtWait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alarm.set = false; p.stuckLocked() {
		first := &p.gate.first.seat
		p.judgeLocked(p.moved, first.since, p,
			"tier: a goroutine is blocked by permits of its own process; if they are its own, this is a deadlock: acquire all at once; "+
				"if their holder waits for a lock of this goroutine, acquire locks and permits in one order everywhere",
			"permits", first.count, "taken", p.taken, "of", p.permits, "waiters", p.gate.waiting)
	}
}

func (p *pool) addTo(s *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Permits += p.taken
	s.PermitWaiters += p.gate.waiting
}
