package tier_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/tier"
)

// All processes together make at most ten calls to a service at the same time. A large call counts as four.
func ExampleSemaphore() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	calls := locks.Semaphore("/limits/geocoder", 10)

	large, err := calls.Acquire(ctx, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = calls.TryAcquire(ctx, 7)
	fmt.Println("seven more:", errors.Is(err, tier.ErrLocked))
	err = calls.Do(ctx, 6, func(ctx context.Context) error { // ctx ends if a permit is lost
		fmt.Println("six more")
		return nil
	})
	fmt.Println(errors.Join(err, large.Release()))
	// Output:
	// seven more: true
	// six more
	// <nil>
}
