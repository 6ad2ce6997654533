//go:build unix

package everystore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/tier"
)

// A candidate is a process that leads until it is told to end.
type candidate struct {
	*election.Election
	terms  chan int64
	lost   chan error // why a term has ended
	cut    func()
	cancel context.CancelFunc
	ended  chan error
}

// campaign starts a candidate, and returns when it is in the queue.
func campaign(t *testing.T, s site) *candidate {
	t.Helper()
	locks, cut := s.process(t)
	ctx, cancel := context.WithCancel(soon(t))
	c := &candidate{election.New(locks, pathOf(t)), make(chan int64, 1), make(chan error, 10), cut, cancel, make(chan error, 1)}
	queued := func() int {
		queue, err := locks.Mutex(pathOf(t)).Contenders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(queue)
	}
	before := queued()
	go func() {
		c.ended <- c.Run(ctx, func(ctx context.Context, term int64) error {
			c.terms <- term
			<-ctx.Done()
			c.lost <- context.Cause(ctx)
			return nil
		})
	}()
	for queued() == before {
		time.Sleep(2 * time.Millisecond)
	}
	return c
}

// Candidates lead in the order in which they came, those who watch see the same, and a leader that is
// cut off knows that it is none before there is another one.
func testElection(t *testing.T, s site) {
	first, second, third := campaign(t, s), campaign(t, s), campaign(t, s)
	watching, stop := context.WithCancel(soon(t))
	observed := make(chan int64, 10)
	go func() {
		defer close(observed)
		for leader, err := range third.Observe(watching) {
			if err != nil {
				if watching.Err() == nil {
					t.Error(err)
				}
				return
			}
			observed <- leader.Token
		}
	}()
	last := int64(0)
	leads := func(c *candidate) {
		t.Helper()
		term := next(t, c.terms)
		if got := next(t, observed); got != term {
			t.Errorf("observed term %d, want %d", got, term)
		}
		if term <= last {
			t.Errorf("term %d after %d", term, last)
		}
		last = term
		if err := c.IsLeader(t.Context()); err != nil {
			t.Errorf("the leader: %v", err)
		}
	}

	leads(first)
	if err := second.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("the second one: %v, want ErrNotLeader", err)
	}
	first.cut()
	leads(second)
	if err := first.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("the first one, cut off: %v, want ErrNotLeader", err)
	}
	if err := next(t, first.lost); !errors.Is(err, tier.ErrLost) {
		t.Errorf("the term of the first one ends with %v, want ErrLost", err)
	}
	second.cancel()
	leads(third)
	third.cancel()
	first.cancel()
	for _, c := range []*candidate{first, second, third} {
		if err := next(t, c.ended); !errors.Is(err, context.Canceled) {
			t.Errorf("a campaign ends with %v", err)
		}
	}
	stop()
	for range observed {
	}
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v, open := <-c:
		if !open {
			t.Fatal("nothing more comes")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing comes")
	}
	panic("unreachable")
}
