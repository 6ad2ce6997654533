package tier

import (
	"sync/atomic"
	"time"
)

// A budget is for how long a node may be handed on while another process waits for it.
//
// Unless it is fixed it follows the price of giving the node to another process: in
// that time nobody works, so a process stays for so many times as long. The factor is
// measured, see DESIGN.md; the bounds keep a single odd measurement from mattering.
type budget struct {
	fixed    bool
	duration time.Duration // if fixed
	price    atomic.Int64  // of giving the node up, smoothed, in nanoseconds; 0 before the first time
}

const (
	pricesPerBudget = 20
	minBudget       = 2 * time.Millisecond
	maxBudget       = 100 * time.Millisecond
	firstBudget     = 10 * time.Millisecond // before the price is known
)

func (b *budget) current() time.Duration {
	if b.fixed {
		return b.duration
	}
	price := b.price.Load()
	if price == 0 {
		return firstBudget
	}
	return min(max(pricesPerBudget*time.Duration(price), minBudget), maxBudget)
}

// strict reports whether a node is never handed on.
func (b *budget) strict() bool { return b.fixed && b.duration == 0 }

// give runs the giving up of a node, and learns what that costs.
func (b *budget) give(release func() error) error {
	if b.fixed {
		return release()
	}
	start := time.Now()
	err := release()
	if err == nil {
		b.learn(time.Since(start))
	}
	return err
}

// learn smooths like the round-trip estimate of TCP (RFC 6298). Concurrent calls may
// lose a measurement, which does not matter.
func (b *budget) learn(price time.Duration) {
	price = min(max(price, 1), maxBudget)
	if old := time.Duration(b.price.Load()); old != 0 {
		price = old + (price-old)/8
	}
	b.price.Store(int64(price))
}
