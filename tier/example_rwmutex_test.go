package tier_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/tier"
)

// A writer can become a reader, and no other writer gets the lock in between. A reader that wants to become a writer gets an error.
func ExampleRWMutex() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	prices := locks.RWMutex("/locks/prices")

	publish := func(ctx context.Context) error {
		write, err := prices.Writer().Acquire(ctx)
		if err != nil {
			return err
		}
		fmt.Println("new prices")
		read, err := prices.Reader().Acquire(write.Context(ctx)) // acquires again, within the hold of the writer
		if err != nil {
			return errors.Join(err, write.Release())
		}
		if err := write.Release(); err != nil {
			return errors.Join(err, read.Release()) // the lock was lost while the prices were written
		}
		work := read.Context(ctx) // the context of the writer has ended
		fmt.Println("others may read them:", read.Shared(), work.Err() == nil)

		_, err = prices.Writer().Acquire(work)
		fmt.Println("back to writing:", errors.Is(err, tier.ErrCannotUpgrade))
		return read.Release() // an error if the lock was lost while the prices were read
	}
	fmt.Println(publish(ctx))
	// Output:
	// new prices
	// others may read them: true true
	// back to writing: true
	// <nil>
}
