package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tierlock/tierlock/zklock"
)

// A cohort is what this process has at stake in one lock: the goroutines in front of
// the gate, the one behind it, and the node they share.
type cohort struct {
	registry *Registry
	path     string
	members  int // guarded by registry.mu: callers, holders and couriers

	mu       sync.Mutex // guards the fields below; never held across a client call or a wait
	gate     gate
	state    state
	node     *zklock.Node       // of the owner, or that lingers; meaningful while held or lingering
	quit     context.CancelFunc // calls the courier back; nil unless fetching for waiters
	round    int64              // the last arrival before the node came: up to it they waited then
	lingerer lingerer
}

// A state says who acts for the cohort.
type state int

const (
	idle      state = iota // nobody: no node, and nobody waits
	fetching               // the courier or a TryAcquire is at ZooKeeper, for the node
	held                   // an owner is behind the gate
	lingering              // the node is kept, and nobody wants it
	leaving                // the node is being given up, and nobody has the turn
)

func (s state) String() string {
	return [...]string{"idle", "fetching", "held", "lingering", "leaving"}[s]
}

// enter waits at the gate until its turn comes with the node, or ctx is done.
func (c *cohort) enter(ctx context.Context, lock errand) (*ownership, error) {
	c.mu.Lock()
	if own := c.resumeLocked(); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	w := c.gate.join()
	w.errand = lock
	switch c.state {
	case idle:
		c.fetchLocked()
	case held:
		c.expectHandOffLocked()
	}
	c.mu.Unlock()

	defer c.registry.client.Attend()()
	select {
	case <-w.turn:
		return w.own, w.err
	case <-ctx.Done():
		return nil, c.giveUp(w, context.Cause(ctx))
	case <-c.registry.client.Done():
		return nil, c.giveUp(w, ErrClosed)
	}
}

// giveUp takes a waiter out of the queue. If it was chosen a moment ago, the turn goes
// to the next one, together with the node: nobody loses the place.
func (c *cohort) giveUp(w *waiter, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.gate.leave(w):
		if w.own != nil {
			c.passOnLocked(w.own.node)
		}
	case c.gate.empty() && c.quit != nil:
		c.quit() // nobody wants the node any more
	}
	if problem := c.registry.client.Err(); problem != nil && !errors.Is(cause, problem) {
		cause = fmt.Errorf("%w: %w", cause, problem)
	}
	return c.failure("acquire", cause)
}

// failure wraps an error that does not come from ZooKeeper and so names no path yet.
func (c *cohort) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, c.path, err)
}

// passOnLocked gives a node that was acquired but not used to the first waiter, and
// away if there is none.
func (c *cohort) passOnLocked(node *zklock.Node) {
	if !c.gate.empty() && node.Err() == nil {
		c.admitLocked(node)
		return
	}
	c.state = leaving
	if !c.registry.spawn(c, func() {
		node.Release() // if it does not go at once, that is the client's business
		c.settle()
	}) {
		c.settleLocked()
	}
}

// admitLocked lets the first waiter through with node.
func (c *cohort) admitLocked(node *zklock.Node) {
	c.gate.admit(c.ownLocked(&c.gate.first.seat, node))
	c.expectHandOffLocked()
}

// ownLocked makes own the ownership of node.
func (c *cohort) ownLocked(own *ownership, node *zklock.Node) *ownership {
	c.state, c.node = held, node
	return own.begin(c, node)
}

// settle follows the end of a node: those who wait get a new one.
func (c *cohort) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked()
}

func (c *cohort) settleLocked() {
	c.state = idle
	if !c.gate.empty() {
		c.fetchLocked()
	}
}

// try takes the lock if nobody here or elsewhere has it.
func (c *cohort) try(ctx context.Context, lock errand) (*ownership, error) {
	c.mu.Lock()
	if own := c.resumeLocked(); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	if c.state != idle {
		c.mu.Unlock()
		return nil, c.failure("try", ErrLocked)
	}
	c.state = fetching
	c.mu.Unlock()

	node, err := lock.TryAcquire(ctx)
	if err != nil {
		c.settle()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = c.gate.arrivals
	own := c.ownLocked(new(ownership), node)
	c.expectHandOffLocked() // by who came meanwhile
	return own, nil
}

// release follows the last release of an ownership. Unless the node stays, it goes
// first, and the gate opens after it.
func (c *cohort) release(own *ownership) error {
	node := own.node
	c.mu.Lock()
	switch c.decideLocked(node) {
	case handOn:
		c.admitLocked(node)
		c.mu.Unlock()
		return nil
	case linger:
		c.lingerLocked(node)
		c.mu.Unlock()
		return nil
	case requeue:
		if c.replaceLocked(node) {
			c.mu.Unlock()
			return node.AwaitRelease()
		}
	}
	c.state = leaving
	c.mu.Unlock()
	err := node.Release()
	c.settle()
	return err
}
