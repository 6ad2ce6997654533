// Quickstart increments a number in a file, from several goroutines, under one lock. Run it in two terminals at once: no addition is lost,
// and each process shows which one waits for it.
//
//	go run ./examples/quickstart
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

func main() {
	turns := flag.Int("turns", 20, "how often each of three goroutines counts")
	flag.Parse()
	ctx := context.Background()
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, cmp.Or(os.Getenv("ZK_SERVERS"), "127.0.0.1:2181")) // host:port,host:port/path
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	counter := locks.Mutex("/quickstart/counter")
	var wg sync.WaitGroup
	for goroutine := range 3 {
		wg.Go(func() {
			for range *turns {
				if err := counter.Do(ctx, func(ctx context.Context) error { return turn(ctx, counter, goroutine) }); err != nil {
					log.Print(err)
				}
			}
		})
	}
	wg.Wait()
}

// turn shows the queue, and adds one to the number.
func turn(ctx context.Context, counter *tier.Mutex, goroutine int) error {
	queue, err := counter.Contenders(ctx) // one entry for this process, and one for each process that waits
	if err != nil {
		return err
	}
	n, err := increment(filepath.Join(os.TempDir(), "quickstart"))
	if err != nil {
		return err
	}
	fmt.Printf("process %d, goroutine %d has the lock, and counts to %d", os.Getpid(), goroutine, n)
	for _, c := range queue {
		if c.PID != os.Getpid() {
			fmt.Printf("; process %d waits for it", c.PID)
		}
	}
	fmt.Println()
	return nil
}

// increment adds one to the number in the file, and takes a quarter of a second. Without the lock, two processes could write the same
// number.
func increment(file string) (n int, err error) {
	if text, err := os.ReadFile(file); err == nil { // the file does not exist before the first turn
		fmt.Sscan(string(text), &n)
	}
	time.Sleep(250 * time.Millisecond)
	return n + 1, os.WriteFile(file, fmt.Append(nil, n+1), 0o600)
}
