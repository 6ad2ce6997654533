package tier_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A function that Do calls finds its hold in its context.
func ExampleHoldFrom() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/report")

	err := mu.Do(ctx, func(ctx context.Context) error {
		hold := tier.HoldFrom(ctx, mu)
		fmt.Println("a token to write with:", hold.Token() > 0)
		fmt.Println("valid for a while:", time.Until(hold.ValidUntil()) > time.Second)
		return nil
	})
	fmt.Println(err)
	// Output:
	// a token to write with: true
	// valid for a while: true
	// <nil>
}

// Goroutines that share the context of a hold share the hold. Those that must not are started
// without it.
func ExampleWithoutHold() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/accounts")

	mu.Do(ctx, func(ctx context.Context) error {
		_, err := mu.TryAcquire(tier.WithoutHold(ctx))
		fmt.Println("another owner:", errors.Is(err, tier.ErrLocked))
		return nil
	})
	// Output: another owner: true
}

// The limit is for the wait; the work may take longer.
func ExampleWithMaxWait() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/report", tier.WithMaxWait(10*time.Millisecond))

	err := mu.Do(ctx, func(context.Context) error {
		return mu.Do(ctx, nil) // with the context from before: waits for itself
	})
	fmt.Println(errors.Is(err, tier.ErrWaitLimit))
	// Output: true
}

func ExampleName() {
	fmt.Println(tier.Name("/jobs", "daily report: größe/2"))
	// Output: /jobs/daily%20report:%20größe%2F2
}

// A process that ends lets its owners finish, for a while.
func ExampleRegistry_Shutdown() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	time.AfterFunc(10*time.Millisecond, func() { hold.Release() })

	grace, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	fmt.Println(locks.Shutdown(grace))
	// Output: <nil>
}
