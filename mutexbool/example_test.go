package mutexbool_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tierlock/tierlock/mutexbool"
)

// A callback stores what it saw and sets the Bool; the waiting goroutine clears the Bool, reads what was stored, and waits.
func Example() {
	var (
		children atomic.Int32
		changed  mutexbool.Bool
	)
	children.Store(1)
	onEvent := func() { // runs on some other goroutine and must not block
		children.Add(-1)
		changed.Set()
	}
	go onEvent()

	for {
		changed.Clear()
		if children.Load() == 0 {
			break
		}
		if err := changed.Wait(context.Background()); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("no children left")
	// Output: no children left
}
