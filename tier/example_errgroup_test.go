package tier_test

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// Goroutines that share the context of a hold share the hold: they are not excluded from each other.
// With WithoutHold each goroutine waits for the lock.
func ExampleHold_Context_errgroup() {
	locks, err := memlock.NewServer().Connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	mutex := locks.Mutex("/jobs/report")

	// Wrong: both goroutines work at the same time.
	err = mutex.Do(context.Background(), func(ctx context.Context) error {
		var both sync.WaitGroup
		both.Add(2)
		group, ctx := errgroup.WithContext(ctx) // this ctx carries the hold, too
		for range 2 {
			group.Go(func() error {
				return mutex.Do(ctx, func(context.Context) error {
					both.Done()
					both.Wait() // waits until the other goroutine is inside, too
					return nil
				})
			})
		}
		return group.Wait()
	})
	fmt.Println("both were inside at once:", err == nil)

	// Right: the goroutines work one after the other. The first group has ended, so the lock is free.
	total := 0
	group, ctx := errgroup.WithContext(tier.WithoutHold(context.Background()))
	for range 2 {
		group.Go(func() error {
			return mutex.Do(ctx, func(context.Context) error {
				total++ // no other goroutine is inside
				return nil
			})
		})
	}
	fmt.Println(group.Wait(), total)
	// Output:
	// both were inside at once: true
	// <nil> 2
}
