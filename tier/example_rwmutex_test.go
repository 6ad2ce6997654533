package tier_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/tier"
)

// A writer can become a reader, so that no other writer comes in between. A reader that wants to become a writer gets an error.
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
		read, err := prices.Reader().Acquire(write.Context(ctx)) // enters again, beside the hold to write
		if err != nil {
			return errors.Join(err, write.Release())
		}
		if err := write.Release(); err != nil {
			return errors.Join(err, read.Release()) // it was lost while prices were written
		}
		work := read.Context(ctx) // not that of the writer, which has ended
		fmt.Println("others may read them:", read.Shared(), work.Err() == nil)

		_, err = prices.Writer().Acquire(work)
		fmt.Println("back to writing:", errors.Is(err, tier.ErrCannotUpgrade))
		return read.Release() // an error if it was lost while prices were read
	}
	fmt.Println(publish(ctx))
	// Output:
	// new prices
	// others may read them: true true
	// back to writing: true
	// <nil>
}
