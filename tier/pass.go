package tier

import (
	"slices"
	"time"
)

// release passes what a claimant had on to those who wait, as far as that is fair, and gives up the
// rest.
func (p *pool) release(c *claimant) error {
	p.mu.Lock()
	p.taken -= len(c.taken)
	fair, rest := p.sortLocked(c.taken)
	rest = append(rest, p.passLocked(fair)...)
	p.mu.Unlock()
	return giveBack(rest)
}

// sortLocked tells permits that may stay in the process from those that have to go. They may stay
// while nobody else waits, and else for their budgets, which run from when they came or, if that is
// later, from the last look before another process was seen. They never stay without a valid lease,
// nor while the connection is down.
func (p *pool) sortLocked(permits []permit) (fair, due []permit) {
	now := p.registry.now()
	first := p.first()
	if first == nil || p.registry.second.Err() != nil {
		return nil, permits
	}
	if !p.rivals && !p.trip.Contested() {
		p.alone = now
	}
	for _, one := range permits {
		if one.ErrAt(now) == nil && one.Leased() && now < one.ends(p.alone, first.semaphore.options.handOff) {
			fair = append(fair, one)
		} else {
			due = append(due, one)
		}
	}
	return fair, due
}

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
	if first := p.first(); first == nil || p.taken+len(p.kept) < first.count {
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
	for c := p.first(); c != nil && c.count <= len(permits); c = p.first() {
		p.leave(c)
		c.taken, c.served = permits[:c.count:c.count], now
		p.taken += c.count
		permits = permits[c.count:]
		close(c.turn)
	}
	return permits
}

// dropLocked gives up what nobody has.
func (p *pool) dropLocked(permits []permit) {
	if len(permits) > 0 {
		p.spawn(func() { giveBack(permits) }) // when the registry is closed they go with the session
	}
}

// changedLocked tells the courier of another demand, and sees to the end of what is kept.
func (p *pool) changedLocked() {
	if p.expiry != nil {
		p.expiry.Stop()
	}
	if len(p.kept) > 0 {
		budget := p.first().semaphore.options.handOff
		end := p.kept[0].ends(p.alone, budget)
		for _, one := range p.kept[1:] {
			end = min(end, one.ends(p.alone, budget))
		}
		p.expiry = time.AfterFunc(end-p.registry.now(), p.expire)
	}
	switch {
	case p.trip == nil:
	case p.empty():
		p.quit() // nobody wants anything any more
	default:
		p.trip.Changed.Set()
	}
}

// expire gives up what was kept for too long.
func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(p.kept)
	p.kept = nil
	p.changedLocked()
}
