package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/tier"
)

// A candidate is a process that leads until it is told to end.
type candidate struct {
	*election.Election
	process *process
	terms   chan int64
	cancel  context.CancelFunc
	ended   chan error
}

// campaign starts a candidate, and returns when it is in the queue.
func campaign(t *testing.T) *candidate {
	t.Helper()
	p := start(t)
	registry, err := tier.New(p.store)
	if err != nil {
		t.Fatal(err)
	}
	c := &candidate{election.New(registry, lockPath(t)), p, make(chan int64, 1), nil, make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	before := len(left(t, lockPath(t)))
	go func() {
		c.ended <- c.Run(ctx, func(ctx context.Context, term int64) error {
			c.terms <- term
			<-ctx.Done()
			return nil
		})
	}()
	eventually(t, "another candidate", func() bool { return len(left(t, lockPath(t))) > before })
	return c
}

func next(t *testing.T, terms <-chan int64, within time.Duration) int64 {
	t.Helper()
	select {
	case term := <-terms:
		return term
	case <-time.After(within):
		t.Fatalf("nobody leads within %v", within)
		return 0
	}
}

func TestElection(t *testing.T) {
	first, second, third := campaign(t), campaign(t), campaign(t)
	observed := make(chan int64, 10)
	go func() {
		defer close(observed)
		for leader, err := range third.Observe(t.Context()) {
			if err != nil {
				t.Error(err)
			}
			observed <- leader.Token
		}
	}()
	leads := func(c *candidate, within time.Duration) {
		t.Helper()
		term := next(t, c.terms, within)
		if got := next(t, observed, 5*time.Second); got != term {
			t.Errorf("observed term %d, want %d", got, term)
		}
		wantErr(t, c.IsLeader(t.Context()), nil)
	}

	leads(first, time.Second)
	wantErr(t, second.IsLeader(t.Context()), election.ErrNotLeader)
	first.process.kill()
	wantErr(t, <-first.ended, tier.ErrClosed)
	leads(second, ttl+time.Second)
	wantErr(t, first.IsLeader(t.Context()), election.ErrNotLeader)
	second.cancel()
	wantErr(t, <-second.ended, context.Canceled)
	leads(third, time.Second)
	third.cancel()
	wantErr(t, <-third.ended, context.Canceled)
	eventually(t, "no candidate", func() bool { return len(left(t, lockPath(t))) == 0 })
}
