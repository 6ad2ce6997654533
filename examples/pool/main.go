// Pool is a process with 200 goroutines that work on 1,000 keys. Each key has its own lock. Start Pool in several terminals: at any time,
// at most one goroutine of all processes works on a key.
//
//	ZK_SERVERS=127.0.0.1:2181 DIR=/tmp/pool go run ./examples/pool
//	$env:ZK_SERVERS="127.0.0.1:2181"; $env:DIR="$env:TEMP/pool"; go run ./examples/pool    # PowerShell
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

const workers, keys = 200, 1000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("process %d worked on %d keys in %v\n", os.Getpid(), keys, time.Since(start))
}

// run works on each key once. One registry is enough for all goroutines and all locks.
func run(ctx context.Context) error {
	if err := os.MkdirAll(os.Getenv("DIR"), 0o700); err != nil {
		return err
	}
	connect, cancel := context.WithTimeout(ctx, 10*time.Second)
	locks, err := zklock.Dial(connect, os.Getenv("ZK_SERVERS"))
	cancel()
	if err != nil {
		return err
	}
	defer locks.Close()
	pool, ctx := errgroup.WithContext(ctx)
	pool.SetLimit(workers)
	for i := range keys {
		key := fmt.Sprint("customer ", i)
		lock := locks.Mutex(tier.Name("/pool", key)) // a Mutex is cheap, and need not be closed
		pool.Go(func() error {
			return lock.Do(ctx, func(context.Context) error { return count(key) })
		})
	}
	return pool.Wait()
}

// count adds one to the number of key. Without the lock, two goroutines could write the same number.
func count(key string) error {
	file := filepath.Join(os.Getenv("DIR"), key)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	n, _ := strconv.Atoi(string(text)) // 0 if the file does not exist
	time.Sleep(time.Millisecond)       // this stands for work
	return os.WriteFile(file, fmt.Append(nil, n+1), 0o600)
}
