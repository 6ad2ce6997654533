// Quickstart counts in a file, from two processes at once, under one lock.
//
//	go run ./examples/quickstart                         on a private ZooKeeper
//	ZK_SERVERS=host:2181 go run ./examples/quickstart    on yours
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/tier"
)

const processes, goroutines, turns = 2, 3, 4

// serve is what a process of your service does: connect once, lock when needed.
func serve(ctx context.Context, servers, file string) error {
	locks, err := tierlock.Dial(ctx, servers)
	if err != nil {
		return err
	}
	defer locks.Close()
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for range turns {
				errs[g] = errors.Join(errs[g], increment(ctx, locks, file))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// increment adds one. Without the lock, two at a time would write the same number.
func increment(ctx context.Context, locks *tier.Registry, file string) error {
	return locks.Mutex("/quickstart/counter").Do(ctx, func(context.Context) error { // which ends if the lock is lost
		n := number(file)
		fmt.Printf("process %d has the lock: %d -> %d\n", os.Getpid(), n, n+1)
		return os.WriteFile(file, fmt.Append(nil, n+1), 0o600)
	})
}

func number(file string) (n int) {
	text, _ := os.ReadFile(file) // there is none before the first turn
	_, _ = fmt.Sscan(string(text), &n)
	return n
}

// demo starts the processes and looks at the number when they have ended.
func demo(ctx context.Context, out *os.File, servers string) error {
	file := fmt.Sprintf("%s/quickstart-%d", os.TempDir(), os.Getpid())
	defer os.Remove(file)
	if servers == "" {
		server, err := zkserver.Start(ctx, zkserver.Config{})
		if err != nil {
			return err
		}
		defer server.Stop()
		servers = server.Addr()
		fmt.Fprintln(out, "started a private ZooKeeper on", servers)
	}
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], servers, file)
			cmd.Stdout, cmd.Stderr = out, os.Stderr
			_ = cmd.Run() // if it fails, it says why, and its turns are missing below
		})
	}
	wg.Wait()
	got, want := number(file), processes*goroutines*turns
	fmt.Fprintf(out, "the number is %d after %d turns\n", got, want)
	if got != want {
		return errors.New("turns were lost")
	}
	return nil
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	run := func() error { return demo(ctx, os.Stdout, os.Getenv("ZK_SERVERS")) }
	if len(os.Args) == 3 { // started by demo
		run = func() error { return serve(ctx, os.Args[1], os.Args[2]) }
	}
	if err := run(); err != nil {
		log.Fatal("quickstart: ", err)
	}
}
