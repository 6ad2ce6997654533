// Quickstart counts in a file, from several goroutines, under one lock. Run it in two
// terminals at once: no turn is lost.
//
//	ZK_SERVERS=127.0.0.1:2181 go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tierlock/tierlock/zklock"
)

func main() {
	ctx := context.Background()
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, os.Getenv("ZK_SERVERS")) // host:port,host:port/path
	cancel()
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	counter := locks.Mutex("/quickstart/counter")
	file := filepath.Join(os.TempDir(), "quickstart")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 4 {
				if err := counter.Do(ctx, func(context.Context) error { return increment(file) }); err != nil {
					log.Print(err)
				}
			}
		})
	}
	wg.Wait()
}

// increment adds one. Without the lock, two at a time would write the same number.
func increment(file string) error {
	var n int
	if text, err := os.ReadFile(file); err == nil { // there is none before the first turn
		fmt.Sscan(string(text), &n)
	}
	fmt.Printf("process %d has the lock: %d -> %d\n", os.Getpid(), n, n+1)
	return os.WriteFile(file, fmt.Append(nil, n+1), 0o600)
}
