package tier_test

import (
	"context"
	"fmt"

	"github.com/tierlock/tierlock/tier"
)

// A transfer needs the locks of both accounts. At the same time, another transfer may go in the opposite direction.
func ExampleAcquireAll() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	transfer := func(ctx context.Context, from, to string) error {
		both, err := tier.AcquireAll(ctx, locks.Mutex("/accounts/"+from), locks.Mutex("/accounts/"+to))
		if err != nil {
			return err // no lock is held
		}
		work := both.Context(ctx) // ends if either lock is lost
		fmt.Println("transferring:", work.Err() == nil)
		return both.Release() // an error if either lock was lost
	}
	results := make(chan error)
	go func() { results <- transfer(ctx, "alice", "bob") }()
	go func() { results <- transfer(ctx, "bob", "alice") }()
	fmt.Println(<-results, <-results)
	// Output:
	// transferring: true
	// transferring: true
	// <nil> <nil>
}
