package tier_test

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A sweep that takes hours yields to any other process, but not before it has done some work. If the others do the same, each hold is
// worth its transfer.
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
	var contended <-chan struct{} // no look for waiters before that
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
			time.Sleep(time.Millisecond) // a step of work
		}
	}
	hold.Release() // then Acquire, for the rest
	fmt.Println(<-done)
	// Output:
	// the rest can wait
	// the other process has its turn
	// <nil>
}

// An operator asks for a lock whose holder has nothing to do at the moment.
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
	if err := mu.Revoke(ctx); err != nil { // anywhere; also: tierlock revoke /locks/printer
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
