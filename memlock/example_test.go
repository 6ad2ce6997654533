package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// Two registries of one server act as two processes.
func Example_twoProcesses() {
	ctx := context.Background()
	server := memlock.NewServer()
	one, _ := server.Connect(tier.WithLabel("one"))
	defer one.Close()
	two, _ := server.Connect(tier.WithLabel("two"))
	defer two.Close()

	hold, err := one.Mutex("/jobs/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := two.Mutex("/jobs/report").TryAcquire(ctx); errors.Is(err, tier.ErrLocked) {
		fmt.Println("two: locked")
	}
	if err := hold.Release(); err != nil {
		fmt.Println(err)
	}
	if err := two.Mutex("/jobs/report").Do(ctx, func(context.Context) error { fmt.Println("two: at work"); return nil }); err != nil {
		fmt.Println(err)
	}
	// Output:
	// two: locked
	// two: at work
}

// A test can end a session to see what a job does when its lock is lost.
func ExampleServer_Expire() {
	server := memlock.NewServer()
	locks, _ := server.Connect()
	defer locks.Close()

	err := locks.Mutex("/jobs/report").Do(context.Background(), func(ctx context.Context) error {
		server.Expire(locks)
		select {
		case <-ctx.Done(): // the job stops
			return context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return errors.New("the context has not ended")
		}
	})
	fmt.Println(errors.Is(err, tier.ErrLost))
	// Output: true
}

// Another process holds the lock here, so that the example shows an acquisition that gets no lock in time.
func ExampleServer_Connect_timeout() {
	server := memlock.NewServer()
	busy, _ := server.Connect(tier.WithLabel("busy"))
	defer busy.Close()
	locks, _ := server.Connect()
	defer locks.Close()
	if _, err := busy.Mutex("/jobs/report").Acquire(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := locks.Mutex("/jobs/report").Acquire(ctx)
	var wait *tier.WaitError
	if errors.As(err, &wait) {
		fmt.Println(wait.Ahead.Label, "has the lock:", errors.Is(err, context.DeadlineExceeded))
	}
	// Output: busy has the lock: true
}
