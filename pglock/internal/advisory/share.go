package advisory

import (
	"cmp"
	"context"
	"strconv"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
)

// Share takes a share of the lock, which the server grants at once to who has it alone, and gives the
// rest up: those right behind who read then get in. It is one statement.
//
// If its answer does not come, nobody knows in which mode the session has the lock, and the session
// ends, as with any answer that does not come.
func (c *Contender) Share(ctx context.Context) error {
	if c.shared.Load() {
		return c.Err()
	}
	err := c.awaitReader(ctx)
	if err == nil {
		err = c.open()
	}
	if err != nil {
		return c.claim.failure("share", err)
	}
	return nil
}

// awaitReader waits until the one right behind reads.
func (c *Contender) awaitReader(ctx context.Context) error {
	ctx, cancel := c.claim.tier.scope(ctx)
	defer cancel()
	c.setSharing(true)
	defer c.setSharing(false)
	for {
		c.news.Clear()
		if err := cmp.Or(c.Err(), context.Cause(ctx)); err != nil {
			return c.claim.tier.explain(err)
		}
		if c.readerBehind() {
			return nil
		}
		c.lookIfIdle()
		waiting, stop := context.WithCancel(ctx)
		detach := context.AfterFunc(c.life, stop)
		c.news.Wait(waiting) // whose end is seen above
		detach()
		stop()
	}
}

func (c *Contender) setSharing(sharing bool) {
	c.mu.Lock()
	c.sharing = sharing
	c.behind = nil
	c.mu.Unlock()
	if sharing {
		c.lookSoon()
	}
}

// lookIfIdle sees to it that the looks go on.
func (c *Contender) lookIfIdle() { c.claim.tier.spawn(c.attendOnce) }

func (c *Contender) readerBehind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.behind) > 0 && c.behind[0].reads
}

func (c *Contender) open() error {
	x := c.session
	if !x.begin() {
		return cmp.Or(c.Err(), errGone)
	}
	defer x.done()
	if err := c.Err(); err != nil || c.shared.Load() {
		return err
	}
	if _, err := x.askPatiently("share", strconv.FormatInt(c.claim.key, 10)); err != nil {
		if refused(err) {
			x.broken(err)
		}
		return cmp.Or(c.Err(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared.Store(true)
	c.contested.Store(contention.New(c.lookSoon))
	c.raiseLocked()
	return nil
}

var _ second.Grant = (*Contender)(nil)
