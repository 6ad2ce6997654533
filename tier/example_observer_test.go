package tier_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// The observer of a registry gets the events of all its locks. Packages tierprom and tierotel are such observers.
func ExampleObserver() {
	ctx := context.Background()
	server, lost := memlock.NewServer(), make(chan tier.LossCause)
	locks, err := server.Connect(tier.WithObserver(tier.Observer{
		WaitingAfter: time.Minute,
		Waiting:      func(_ context.Context, w tier.Wait) { fmt.Println("still waiting for", w.Path) },
		Acquired: func(_ context.Context, a tier.AcquiredEvent) {
			switch a.From {
			case tier.Found, tier.HandOver:
				fmt.Println("acquired in the store:", a.From)
			case tier.HandOff, tier.Resumption, tier.Join:
				fmt.Println("acquired without a request:", a.From)
			}
		},
		Failed:   func(_ context.Context, f tier.FailedEvent) { fmt.Println("not acquired:", f.Path) },
		Released: func(_ context.Context, r tier.ReleasedEvent) { fmt.Println("released:", r.Path) },
		Lost:     func(_ context.Context, l tier.LostEvent) { lost <- l.Cause },
		Connection: func(c tier.ConnectionEvent) {
			level := slog.LevelDebug
			switch c.State {
			case tier.Connected:
			case tier.Suspended:
				level = slog.LevelWarn
			case tier.Expired:
				level = slog.LevelError
			}
			slog.Log(ctx, level, "the store", "state", c.State, "error", c.Err)
		},
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	mu := locks.Mutex("/jobs/report")

	err = mu.Do(ctx, func(context.Context) error {
		server.Expire(locks)
		switch cause := <-lost; cause {
		case tier.LossOfLease, tier.LossOfSession:
			fmt.Println("lost to the store:", cause)
		case tier.LossByDeletion:
			fmt.Println("lost to an operator")
		case tier.LossByClose, tier.LossOtherwise:
			fmt.Println("lost:", cause)
		}
		return nil
	})
	fmt.Println("the release says so:", errors.Is(err, tier.ErrLost))
	// Output:
	// acquired in the store: found
	// lost to the store: session
	// released: /jobs/report
	// the release says so: true
}

// Stats are useful for a health page, and for finding out why a process hangs.
func ExampleRegistry_Stats() {
	locks, err := memlock.NewServer().Connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Mutex("/jobs/report").Do(context.Background(), func(context.Context) error {
		stats := locks.Stats()
		fmt.Println("holds:", stats.Holds, "of", stats.Acquisitions)
		for _, held := range locks.HeldLocks() {
			fmt.Println(held.Path, "- goroutines that wait here:", held.Waiters)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// holds: 1 of 1
	// /jobs/report - goroutines that wait here: 0
	// <nil>
}
