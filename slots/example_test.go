package slots_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/slots"
)

// Two processes run the same job. Each slot runs in one of them.
func Example() {
	server := memlock.NewServer()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	for range 2 { // the processes
		go func() {
			locks, err := server.Connect()
			if err != nil {
				panic(err)
			}
			defer locks.Close()
			job := slots.New(locks.Mutex("/jobs/report"), slots.Every(50*time.Millisecond, time.Time{}),
				slots.AfterCrash(slots.Retry), slots.CatchUp(slots.All))
			runs := 0
			ended <- job.Run(ctx, func(_ context.Context, slot slots.Slot) error {
				runs++
				fmt.Println("run", runs)
				if runs == 3 {
					cancel()
				}
				return nil
			})
		}()
	}
	fmt.Println(errors.Is(<-ended, context.Canceled), errors.Is(<-ended, context.Canceled))
	// Output:
	// run 1
	// run 2
	// run 3
	// true true
}
