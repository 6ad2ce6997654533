package tier_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Several processes start a job by their clocks, which differ. Only one of them runs it.
func ExampleHold_ReleaseAt() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	job := func() error {
		hold, err := locks.Mutex("/jobs/report").TryAcquire(ctx)
		if err != nil {
			return err
		}
		defer hold.ReleaseAt(time.Now().Add(time.Minute)) // a minute from now; the job does not wait for it
		fmt.Println("report")
		return nil
	}
	fmt.Println(job())
	fmt.Println(errors.Is(job(), tier.ErrLocked)) // by a clock that is late
	// Output:
	// report
	// <nil>
	// true
}
