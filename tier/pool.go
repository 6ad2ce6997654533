package tier

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A pool is what this process has at stake in one semaphore: those who wait for permits, first in,
// first out, and the request to the store for them while there are any.
//
// What is released goes on to whoever is first. It keeps permits only for him, and only while this
// process has enough for all that he wants.
type pool struct {
	members
	permits int // of all processes together

	mu      sync.Mutex // guards the fields below
	gate    gate[Permits]
	request *second.Demand     // what is under way in the store; nil while nothing is
	asked   *second.Demand     // the one that was last asked what to take, as it was first in the queue then
	quit    context.CancelFunc // abandons the request; nil if it is a try
	taken   int                // permits that somebody here has
	kept    []permit           // for the first one, too few for him as yet
	expiry  *time.Timer        // when the first of those has to go
	rivals  bool               // the last request saw others in the queue
	others  int                // how many
	alone   time.Duration      // when it was last looked while no other process was known to wait
}

// A permit is one of a portion.
type permit struct {
	second.Permit
	*portion
}

// A portion is what came from the store in one write.
type portion struct {
	store   second.Semaphore // to give it back to
	since   time.Duration
	budgets float64 // for how many of them it may stay while others wait
}

// enter waits until k permits have come, or ctx is done.
func (p *pool) enter(ctx context.Context, s *Semaphore, k int, begun time.Duration) (*Permits, error) {
	p.mu.Lock()
	if p.registry.draining.Load() {
		p.mu.Unlock()
		return nil, p.key.failure("acquire", ErrClosed)
	}
	w := p.gate.join()
	w.seat.semaphore, w.seat.count = s, k
	if p.request == nil {
		p.requestLocked()
	}
	p.mu.Unlock()
	if err := await(ctx, p.registry, p, w, s.options.maxWait, begun); err != nil {
		return nil, err
	}
	return &w.seat, nil
}

// try takes permits if enough are free and nobody waits. Whoever comes meanwhile waits for its end.
func (p *pool) try(ctx context.Context, s *Semaphore, k int, _ time.Duration) (*Permits, error) {
	p.mu.Lock()
	switch {
	case p.registry.draining.Load():
		p.mu.Unlock()
		return nil, p.key.failure("try", ErrClosed)
	case p.request != nil:
		p.mu.Unlock()
		return nil, p.key.failure("try", ErrLocked)
	}
	p.request = new(second.Demand)
	p.mu.Unlock()
	permits, err := s.store.TryAcquire(ctx, k)
	p.mu.Lock()
	defer p.mu.Unlock()
	own := &Permits{semaphore: s, taken: p.portionOf(permits, s.store), since: p.registry.now()}
	p.taken += len(permits)
	p.answeredLocked()
	return own, err
}

// withdraw takes a waiter out of the queue. If it was served a moment ago, others get what it had.
func (p *pool) withdraw(w *waiter[Permits]) {
	p.mu.Lock()
	first := p.gate.first == w
	served := !p.gate.leave(w) && w.refusal == nil
	if first {
		p.passLocked(nil)
	}
	p.mu.Unlock()
	if served { // when the registry is closed they go with the session
		p.spawn(func() { p.release(&w.seat) })
	}
}

// drain turns away those who wait.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.refuse(ErrClosed, nil)
	p.passLocked(nil)
}

// requestLocked starts the one goroutine that goes to the store for all who wait, by way of the first
// one's semaphore. What it brings is for those who are first when it returns, and what nobody wants it
// gives back. An error that retrying cannot fix is for all whose requests are alike.
func (p *pool) requestLocked() {
	store := p.gate.first.seat.semaphore.store
	request := new(second.Demand)
	request.Take = func(free int) int { return p.want(request, free) }
	request.Want = func() int { // if all are free and as many others queue as last time
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.wantLocked(p.permits, p.others)
	}
	// Not derived from anybody's context: it serves whoever is first when it returns.
	ctx, quit := context.WithCancel(context.Background())
	p.request, p.quit = request, quit
	if p.spawn(func() {
		defer quit()
		permits, err := store.Acquire(ctx, request)
		p.mu.Lock()
		if err != nil && ctx.Err() == nil { // else it was abandoned, and somebody may have come since
			p.gate.refuse(err, func(one *Permits) bool { return one.semaphore.store.Equal(store) })
		}
		rest := p.passLocked(p.portionOf(permits, store))
		p.answeredLocked()
		p.mu.Unlock()
		giveBack(rest)
	}) {
		return
	}
	quit()
	p.request, p.quit = nil, nil
	p.gate.refuse(ErrClosed, nil)
}

// answeredLocked follows the end of a request.
func (p *pool) answeredLocked() {
	p.rivals, p.others = p.request.Contested(), p.request.Others()
	p.request, p.quit = nil, nil
	if !p.gate.empty() {
		p.requestLocked()
	}
}

// want is how many permits to take of so many that are free: for those who are first, as far as these
// go, until the process has its share. In strict order it is for the first one alone, so that each
// has to queue among the processes.
func (p *pool) want(request *second.Demand, free int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.request != request { // it was abandoned
		return 0
	}
	p.asked = request
	return p.wantLocked(free, request.Others())
}

func (p *pool) wantLocked(free, others int) (k int) {
	queueing := 1 + others
	share := (p.permits-1)/queueing + 1 // rounded up
	k = -len(p.kept)
	for w := p.gate.first; w != nil && k < share && k+w.seat.count <= free; w = w.next {
		k += w.seat.count
		if w.seat.semaphore.options.handOff == 0 {
			break
		}
	}
	return max(k, 0)
}

// idleTrips is for how many round trips a permit is idle on its way to another process, where a lock
// is for one: the release, the look, the exchange. For as many budgets it stays.
const idleTrips = 3

// portionOf makes a portion of what a request has brought. A part of all permits stays for longer in
// proportion, up to once for each process that queues. Others wait as if each of these had all
// permits in turn, but fewer have to move.
func (p *pool) portionOf(permits []second.Permit, store second.Semaphore) []permit {
	parts := float64(p.permits) / float64(len(permits))
	queueing := float64(1 + p.request.Others())
	from := &portion{store, p.registry.now(), idleTrips * min(parts, queueing)}
	all := make([]permit, len(permits))
	for i, one := range permits {
		all[i] = permit{one, from}
	}
	return all
}

// ends returns when a permit that began to be wanted elsewhere at the time alone has to go.
func (one permit) ends(alone, budget time.Duration) time.Duration {
	stay := min(one.budgets*float64(budget), math.MaxInt64/2)
	return max(alone, one.since) + time.Duration(stay)
}

// release passes on to those who wait what somebody had, as far as that is fair, and gives up the rest.
func (p *pool) release(permits *Permits) error {
	p.mu.Lock()
	p.taken -= len(permits.taken)
	fair, rest := p.sortLocked(permits.taken)
	rest = append(rest, p.passLocked(fair)...)
	p.mu.Unlock()
	return giveBack(rest)
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
	if !p.rivals && !p.request.Contested() {
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
func (p *pool) budgetLocked() time.Duration { return p.gate.first.seat.semaphore.options.handOff }

// passLocked is called with permits that may be for those who wait, and with none when others are
// first, or nobody. It returns those that have to go.
//
// What is too little for the first one is kept for him, if with what others here have it is enough.
// Without that, two processes that each kept a part would wait for each other.
func (p *pool) passLocked(permits []permit) (rest []permit) {
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
	p.dropLocked(due)
	p.changedLocked()
	return rest
}

// serveLocked gives permits to those who are first, whole requests in order, and returns what is
// left.
func (p *pool) serveLocked(permits []permit) []permit {
	now := p.registry.now()
	for !p.gate.empty() && p.gate.first.seat.count <= len(permits) {
		seat := &p.gate.first.seat
		k := seat.count
		seat.taken, seat.since = permits[:k:k], now
		p.taken += k
		permits = permits[k:]
		p.gate.admit()
	}
	return permits
}

// dropLocked gives up what nobody has.
func (p *pool) dropLocked(permits []permit) {
	if len(permits) > 0 {
		p.spawn(func() { giveBack(permits) }) // when the registry is closed they go with the session
	}
}

// giveBack releases permits in the store.
func giveBack(permits []permit) error {
	if len(permits) == 0 {
		return nil
	}
	all := make([]second.Permit, len(permits))
	for i, one := range permits {
		all[i] = one.Permit
	}
	return permits[0].store.Release(all)
}

// changedLocked tells the request of another demand, and sees to the end of what is kept.
func (p *pool) changedLocked() {
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.kept) > 0 {
		end := p.kept[0].ends(p.alone, p.budgetLocked())
		for _, one := range p.kept[1:] {
			end = min(end, one.ends(p.alone, p.budgetLocked()))
		}
		p.expiry = time.AfterFunc(end-p.registry.now(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.dropLocked(p.kept)
			p.kept = nil
			p.changedLocked()
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

// wait is what is known of the wait of w, that began then.
func (p *pool) wait(_ context.Context, w *waiter[Permits], begun time.Duration) Wait {
	wait := Wait{Path: p.key.path, Waited: p.registry.now() - begun, Permits: w.seat.count}
	p.mu.Lock()
	request := p.request
	wait.Taken, wait.First = p.taken, request != nil && request == p.asked
	p.mu.Unlock()
	if request != nil {
		wait.stand(request.Standing(), p.registry.second)
	}
	return wait
}

func (p *pool) addTo(s *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Permits += p.taken
	s.PermitWaiters += p.gate.waiting
}
