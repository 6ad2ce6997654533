package tier

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// fetchLocked sends the courier for all who wait, by way of the first one's semaphore.
func (p *pool) fetchLocked() {
	store := p.first().semaphore.store
	trip := &second.Demand{Want: p.wantAtFirst}
	trip.Take = func(free int) int { return p.want(trip, free) }
	p.sendLocked(trip, func(ctx context.Context) ([]second.Permit, error) {
		return store.Acquire(ctx, trip)
	}, store, func(c *claimant) bool { return c.semaphore.store.Equal(store) })
}

// tryLocked sends the courier for one claimant. Whoever comes meanwhile waits for its return.
func (p *pool) tryLocked(c *claimant) {
	store := c.semaphore.store
	p.sendLocked(new(second.Demand), func(ctx context.Context) ([]second.Permit, error) {
		return store.TryAcquire(ctx, c.count)
	}, store, func(other *claimant) bool { return other == c })
}

// sendLocked starts the one goroutine that goes to the store, to take permits. What it brings is for
// those who are first when it returns, and what nobody wants it gives back. An error that retrying
// cannot fix is for those who are concerned.
func (p *pool) sendLocked(trip *second.Demand, take func(context.Context) ([]second.Permit, error),
	store second.Semaphore, concerned func(*claimant) bool,
) {
	// Not derived from anybody's context: it serves whoever is first when it returns.
	ctx, quit := context.WithCancel(context.Background())
	p.trip, p.quit = trip, quit
	if p.spawn(func() {
		defer quit()
		permits, err := take(ctx)
		p.mu.Lock()
		if err != nil && ctx.Err() == nil { // else it was called back, and somebody may have come since
			p.refuse(err, concerned)
		}
		rest := p.passLocked(p.portionOf(permits, store))
		p.rivals, p.others = trip.Contested(), trip.Others()
		p.trip, p.quit = nil, nil
		if !p.empty() {
			p.fetchLocked()
		}
		p.mu.Unlock()
		giveBack(rest)
	}) {
		return
	}
	quit()
	p.trip, p.quit = nil, nil
	p.refuse(ErrClosed, everybody)
}

// want is how many permits to take of so many that are free: for those who are first, as far as these
// go, until the process has its share. In strict order it is for the first one alone, so that each
// has to queue among the processes.
func (p *pool) want(trip *second.Demand, free int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trip != trip { // it was called back
		return 0
	}
	p.asked = trip
	return p.wantLocked(free, trip.Others())
}

// wantAtFirst is how many permits to take if all are free and as many others queue as last time.
func (p *pool) wantAtFirst() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wantLocked(p.permits, p.others)
}

func (p *pool) wantLocked(free, others int) (k int) {
	queueing := 1 + others
	share := (p.permits-1)/queueing + 1 // rounded up
	k = -len(p.kept)
	for e := p.queue.Front(); e != nil && k < share; e = e.Next() {
		c := e.Value.(*claimant)
		if k+c.count > free {
			break
		}
		k += c.count
		if c.semaphore.options.handOff == 0 {
			break
		}
	}
	return max(k, 0)
}
