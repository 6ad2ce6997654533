package tier_test

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A sweep takes hours. It yields to any other process, but only after it has done some work. If all processes do the same, each hold does
// enough work to be worth the transfer of the lock.
func ExampleHold_Contended() {
	ctx := context.Background()
	both, disconnect := connectAll(ctx, 2)
	defer disconnect()
	here, there := both[0], both[1]

	hold, err := here.Mutex("/locks/rows").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error)
	go func() {
		done <- there.Mutex("/locks/rows").Do(ctx, func(context.Context) error {
			fmt.Println("the other process has its turn")
			return nil
		})
	}()

	enough := time.After(20 * time.Millisecond)
	var contended <-chan struct{} // nil at first: the sweep does not look for waiters yet
	for more := true; more; {
		select {
		case <-enough:
			contended = hold.Contended()
		case <-contended:
			fmt.Println("the rest can wait")
			more = false
		case <-hold.Lost():
			more = false
		default:
			time.Sleep(time.Millisecond) // one step of the work
		}
	}
	hold.Release() // after that, Acquire again for the rest
	fmt.Println(<-done)
	// Output:
	// the rest can wait
	// the other process has its turn
	// <nil>
}

// An operator asks for a lock whose holder is idle. The holder sees the request and releases the lock.
func ExampleHold_RevokeRequested() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/printer")

	hold, err := mu.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	revoked := hold.RevokeRequested()
	if err := mu.Revoke(ctx); err != nil { // in any process, or on the command line: tierlock revoke /locks/printer
		fmt.Println(errors.Join(err, hold.Release()))
		return
	}
	for jobs := make(chan string); ; {
		select {
		case job := <-jobs:
			fmt.Println("printing", job)
		case <-revoked:
			fmt.Println("somebody else may have it:", hold.Release())
			return
		case <-hold.Lost():
			fmt.Println(hold.Release())
			return
		}
	}
	// Output: somebody else may have it: <nil>
}
