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

// Goroutines that share the context of a hold share the hold. WithoutHold makes a context for goroutines that must not share it.
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

// The limit applies to the wait. The work may take longer.
func ExampleWithMaxWait() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	const path = "/locks/report"
	impatient := locks.Mutex(path, tier.WithMaxWait(10*time.Millisecond))

	err := locks.Mutex(path).Do(ctx, func(context.Context) error {
		return impatient.Do(ctx, nil) // this is the outer ctx without the hold, so the call waits for its own process
	})
	fmt.Println(errors.Is(err, tier.ErrWaitLimit))
	var wait *tier.WaitError
	if errors.As(err, &wait) && wait.Here != nil {
		fmt.Println("holds of this process that block the wait:", wait.Here.Holds)
	}
	// Output:
	// true
	// holds of this process that block the wait: 1
}

// An option of a registry applies to all its locks. The same option of a lock overrides it for that lock. Options of the session are
// only for the registry: the compiler refuses them for a lock.
func ExampleOption() {
	ctx := context.Background()
	locks, err := memlock.NewServer().Connect(
		tier.WithLabel("billing"), tier.WithLogger(slog.New(slog.DiscardHandler)),
		tier.WithLeaseTTL(30*time.Second), tier.WithLeaseMargin(5*time.Second), tier.WithReleaseTimeout(time.Second),
		tier.WithLazyStart(), tier.WithLeakDetection(), tier.WithHandOff(50*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	for path, how := range map[string]tier.Option{
		"/invoices": tier.WithStrictOrder(),       // to another process after each release
		"/numbers":  tier.WithRounds(),            // to another process when each waiting goroutine has had a turn
		"/rates":    tier.WithLinger(time.Minute), // kept for a while when no goroutine needs it
	} {
		if err := locks.Mutex(path, how).Do(ctx, func(context.Context) error { return nil }); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("locks that linger:", locks.Stats().Lingering)
	// Output: locks that linger: 1
}

func ExampleName() {
	fmt.Println(tier.Name("/jobs", "daily report: größe/2"))
	// Output: /jobs/daily%20report:%20größe%2F2
}

// A process that exits lets its owners finish their work, but only for a limited time.
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
