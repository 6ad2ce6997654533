package tier_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Several processes start a job at the same time of day, but their clocks differ. Only one of them runs the job.
func ExampleHold_ReleaseAt() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	job := func() error {
		hold, err := locks.Mutex("/jobs/report").TryAcquire(ctx)
		if err != nil {
			return err
		}
		defer hold.ReleaseAt(time.Now().Add(time.Minute)) // the lock is released a minute from now; the job does not wait for that
		fmt.Println("report")
		return nil
	}
	fmt.Println(job())
	fmt.Println(errors.Is(job(), tier.ErrLocked)) // another process whose clock is late
	// Output:
	// report
	// <nil>
	// true
}
