package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A semaphore is a handle that queues for permits. A contender has its permits if its permits plus those of all contenders ahead are no
// more than the total number. Requests are therefore served in order, each as a whole. A contender can reduce its permits, but not increase
// them, so a grant is final. A process that wants more permits queues again.
//
// When the total number is reduced, holders keep their permits.
type semaphore struct{ *claim }

// Permits returns the total number of permits according to the store's newest answer. Before the first answer, it returns the number that
// the program gave.
func (s semaphore) Permits() int { return int(s.permits.Load()) }

// SetPermits sends one command.
func (s semaphore) SetPermits(ctx context.Context, n int) error {
	r := s.ref()
	r.Permits = n
	_, err := s.request(ctx, Resize, "set the permits of", r)
	if err == nil {
		s.learn(n)
	}
	return err
}

// tooMany returns the error for a request of more permits than there are.
func tooMany(wanted, of int) error {
	return fmt.Errorf("%w: %d of %d", second.ErrTooManyPermits, wanted, of)
}

// want is called before the contender enters, and sets how many permits it wants. If that is more than the total in the store's newest
// answer, the contender enters with the total that the program gave. The store then answers with the present total.
func (c *Contender) want(weight int64) error {
	if weight > c.permits.Load() {
		c.permits.Store(int64(c.claim.given))
	}
	if of := c.permits.Load(); weight > of {
		return tooMany(int(weight), int(of))
	}
	c.weight.Store(weight)
	return nil
}

// Acquire needs only one command if enough permits are free.
func (s semaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	return s.permitsOf(s.begin(ctx, "acquire", nil, &d.Wait, d, func(c, _ *Contender) error {
		if err := c.want(max(1, int64(d.Want()))); err != nil {
			return err
		}
		return c.enter(nil)
	}))
}

// TryAcquire sends one command. The command writes nothing if a process waits or fewer than k permits are free.
func (s semaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	return s.permitsOf(s.begin(ctx, try, nil, nil, nil, func(c, _ *Contender) error { return c.tryOnce(int64(k)) }))
}

// permitsOf returns the permits of a grant. Each permit is the contender itself, so all of them are lost together.
func (s semaphore) permitsOf(g second.Grant, err error) ([]second.Permit, error) {
	if err != nil {
		return nil, err
	}
	c := g.(*Contender)
	return slices.Repeat([]second.Permit{c}, int(c.weight.Load())), nil
}

// Release gives permits up. It sends one command for all permits that were acquired together.
func (s semaphore) Release(permits []second.Permit) (err error) {
	numbers := make(map[*Contender]int64)
	for _, p := range permits {
		numbers[p.(*Contender)]++
	}
	ends := make(chan error, len(numbers))
	for c, n := range numbers {
		go func() { ends <- c.releaseSome(n) }()
	}
	for range numbers {
		err = cmp.Or(err, <-ends)
	}
	return err
}

// Most returns how many permits one command can take. The limit keeps the slice of permits small.
func (s semaphore) Most() int { return 1 << 16 }

// Equal compares the claims of two semaphores; see the method alike.
func (s semaphore) Equal(other second.Semaphore) bool { return s.alike(other.(semaphore).claim) }

// bid reduces the number of permits that the contender asks for, if it is the first waiter and the process can use fewer. The contender
// then gets the free permits at once.
func (c *Contender) bid(ctx context.Context, d *second.Demand) error {
	v := c.newest()
	if !v.Known || v.Has {
		return nil
	}
	d.Contest(v.Waiting)
	if v.Ahead > 0 {
		return nil
	}
	if k := int64(d.Take(v.Free)); k > 0 && k < c.weight.Load() {
		c.weight.Store(k)
		_, err := second.Do(ctx, c.claim.tier.Spawn, c.weigh, c.claim.tier.explain)
		return err
	}
	return nil
}

// weigh sends the number of permits that the contender has or wants, and repeats that until an answer arrives.
func (c *Contender) weigh() (Answer, error) {
	return c.claim.tier.repeat(c.tenure, func() Answer {
		cmd := c.command(Weigh)
		cmd.Weight = max(cmd.Weight, 1) // at 0 all permits are given up, and the removal that follows frees the last one
		return c.send(cmd)
	})
}

// lessen tells the store that the contender has fewer permits now. If the store refuses the command, lessen returns the error, and the
// command is repeated in the background. Otherwise other processes would not get these permits while the contender exists.
func (c *Contender) lessen() (Answer, error) {
	a, err := c.weigh()
	if a.Outcome == Denied {
		c.claim.tier.Spawn(c.insist)
	}
	return a, err
}

// restate is called when the store may have lost commands that it has answered. It sends the number of permits again if some were given
// up; otherwise they would stay taken as long as the contender exists. It also repeats the command that made a writer a reader.
func (c *Contender) restate() {
	t := c.claim.tier
	if c.lessened.Load() {
		t.Spawn(c.insist)
	}
	if c.claim.mode != second.Reading && c.shared.Load() {
		t.Spawn(func() {
			t.repeat(c.tenure, func() Answer { return c.sendFor(c.tenure, c.command(Share)) })
		})
	}
}

// insist sends the number of permits until the store accepts it, or the contender is lost or given up. Each contender has at most one
// such task, for all of its refused commands.
func (c *Contender) insist() {
	if c.insists.Swap(true) {
		return
	}
	for pace := retry.New(); retry.Pause(c.tenure, pace.NextBackOff()) == nil; {
		weight := c.weight.Load()
		if a, _ := c.weigh(); a.Outcome == Denied {
			continue
		}
		c.insists.Store(false)
		// Otherwise the number has changed, and a refused lessen may have left the new one to this task.
		if c.weight.Load() == weight || c.insists.Swap(true) {
			return
		}
	}
}

// releaseSome gives up n of the contender's permits. It waits for the answer for a third of the TTL at most.
func (c *Contender) releaseSome(n int64) error {
	if c.weight.Add(-n) == 0 {
		return c.Release()
	}
	c.lessened.Store(true)
	t := c.claim.tier
	ctx, cancel := context.WithTimeout(context.Background(), c.session.ttl/3)
	defer cancel()
	_, err := second.Do(ctx, t.Spawn, c.lessen, func(error) error { return nil })
	loss := c.lossAt(t.Now())
	if err != nil && c.tenure.Err() == nil { // if tenure has ended, the contender is lost, or all of its permits are given up
		return c.claim.failure("release", err)
	}
	return loss
}
