package tier_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// An operator knows that the process which holds a lock will never run again. The operator looks up the token of that hold in the queue,
// and takes the lock away from it.
func ExampleMutex_Break() {
	ctx := context.Background()
	server := memlock.NewServer()
	var both []*tier.Registry
	for _, label := range []string{"stopped", "operator"} {
		locks, err := server.Connect(tier.WithLabel(label))
		if err != nil {
			fmt.Println(err)
			return
		}
		defer locks.Close()
		both = append(both, locks)
	}
	hold, err := both[0].Mutex("/jobs/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}

	mu := both[1].Mutex("/jobs/report")
	queue, err := mu.Contenders(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(queue[0].Label, mu.Break(ctx, queue[0].Token))
	fmt.Println("again:", errors.Is(mu.Break(ctx, queue[0].Token), tier.ErrReleased))
	<-hold.Lost()
	fmt.Println("lost:", errors.Is(hold.Err(), tier.ErrLost))
	// Output:
	// stopped <nil>
	// again: true
	// lost: true
}
