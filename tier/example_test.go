package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// connect stands for zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181"). It starts a ZooKeeper in memory, for one example.
func connect(ctx context.Context) (locks *tier.Registry, disconnect func()) {
	all, disconnect := connectAll(ctx, 1)
	return all[0], disconnect
}

// connectAll is like connect, for n processes that use the same ZooKeeper.
func connectAll(ctx context.Context, n int) (all []*tier.Registry, disconnect func()) {
	srv := zktest.NewServer(zktest.Config{})
	for range n {
		locks, err := zklock.Dial(ctx, "127.0.0.1:2181", zklock.WithDialContext(srv.DialContext))
		if err != nil {
			panic(err)
		}
		all = append(all, locks)
	}
	return all, func() {
		for _, locks := range all {
			locks.Close()
		}
		srv.Close()
	}
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	locks, disconnect := connect(ctx)
	defer disconnect()

	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	work := hold.Context(context.Background()) // ends if the lock is lost
	fmt.Println("working:", work.Err() == nil)
	fmt.Println("held to the end:", hold.Release() == nil)
	// Output:
	// working: true
	// held to the end: true
}

// Functions that need the same lock may call one another.
func Example_reentrancy() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/accounts")

	withdraw := func(ctx context.Context) error {
		return mu.Do(ctx, func(context.Context) error {
			fmt.Println("withdraw")
			return nil
		})
	}
	transfer := func(ctx context.Context) error {
		return mu.Do(ctx, func(ctx context.Context) error {
			fmt.Println("transfer")
			return withdraw(ctx) // enters the lock again, because ctx carries the hold
		})
	}
	fmt.Println(transfer(ctx))
	// Output:
	// transfer
	// withdraw
	// <nil>
}

func ExampleMutex_Do() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	err := locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
		fmt.Println("this process writes the report")
		return ctx.Err() // not nil if the lock was lost
	})
	fmt.Println(err)
	// Output:
	// this process writes the report
	// <nil>
}

func ExampleMutex_TryAcquire() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/cleanup")

	hold, err := mu.Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := mu.TryAcquire(ctx); errors.Is(err, tier.ErrLocked) {
		fmt.Println("somebody is at it already")
	}
	fmt.Println(hold.Release())
	// Output:
	// somebody is at it already
	// <nil>
}

// A process may be paused, lose the lock and not know that. To protect a resource from such a process, let the resource refuse each
// token that is lower than the highest one it has seen.
func ExampleHold_Token() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/store")

	var highest int64
	write := func(token int64, what string) {
		if token < highest {
			fmt.Println(what, "refused")
			return
		}
		highest = token
		fmt.Println(what, "written")
	}

	var late int64
	for _, owner := range []string{"first", "second"} {
		hold, err := mu.Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		write(hold.Token(), owner)
		if late == 0 {
			late = hold.Token()
		}
		hold.Release()
	}
	write(late, "late write of the first")
	// Output:
	// first written
	// second written
	// late write of the first refused
}

// The result lists the holder first, and then the waiters.
func ExampleMutex_Contenders() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()
	mu := locks.Mutex("/locks/report")

	err := mu.Do(ctx, func(ctx context.Context) error {
		queue, err := mu.Contenders(ctx)
		for _, c := range queue {
			fmt.Println("this process:", c.PID == os.Getpid(), "- the holder:", c.Token == tier.HoldFrom(ctx, mu).Token())
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// this process: true - the holder: true
	// <nil>
}

// Work that can be interrupted uses the context of the hold. Work that cannot be interrupted checks Err right before each step that
// others can see.
func ExampleHold_Err() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ours:", hold.Err() == nil)
	hold.Release()
	fmt.Println("released:", errors.Is(hold.Err(), tier.ErrReleased))
	// Output:
	// ours: true
	// released: true
}

// A program can decide by the kind of the error what to do next. The kinds are the same on every store.
func Example_errors() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	next := func(err error) string {
		var gracePeriod *tier.GracePeriodError
		switch {
		case err == nil:
			return "work"
		case errors.As(err, &gracePeriod):
			return "try again at " + gracePeriod.Until.String() // the store may have forgotten locks
		case errors.Is(err, tier.ErrLocked):
			return "leave it to the other process"
		case errors.Is(err, tier.ErrUnavailable):
			return "try again later" // the store cannot be reached
		case errors.Is(err, tier.ErrLost), errors.Is(err, tier.ErrReleased):
			return "stop"
		case errors.Is(err, tier.ErrTooManyPermits):
			return "want less"
		case errors.Is(err, tier.ErrClosed):
			return "end" // this process shuts down
		}
		return err.Error()
	}
	calls := locks.Semaphore("/limits/geocoder", 2)
	_, err := calls.Acquire(ctx, 3)
	fmt.Println(next(err))
	permits, err := calls.Acquire(ctx, 2)
	fmt.Println(next(err))
	_, err = calls.TryAcquire(ctx, 1)
	fmt.Println(next(err))
	fmt.Println(next(permits.Release()))
	locks.Close()
	_, err = calls.Acquire(ctx, 1)
	fmt.Println(next(err))
	// Output:
	// want less
	// work
	// leave it to the other process
	// work
	// end
}

// A guarded write takes effect only while the lock is held. Pass a hold, or a bundle, to the function that writes.
func ExampleGuard() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	write := func(ctx context.Context, guard tier.Guard) error {
		_, err := zklock.Multi(ctx, guard, &zk.CreateRequest{Path: "/report", Acl: zk.WorldACL(zk.PermAll)})
		if errors.Is(err, tier.ErrUnknown) {
			return fmt.Errorf("read whether it was written, before another try: %w", err)
		}
		return err
	}
	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("while held:", write(ctx, hold))
	hold.Release()
	fmt.Println("later:", errors.Is(write(ctx, hold), tier.ErrReleased))
	// Output:
	// while held: <nil>
	// later: true
}
