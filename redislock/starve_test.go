package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Within a process, and from one to the next, a lock changes hands without ever being free. Who cannot be
// seen to wait gets turns all the same, also where nobody of ours waits but goroutines of one process.
func TestBusyProcessesLeaveTurnsToLocksOfOtherLibraries(t *testing.T) {
	t.Parallel()
	for _, processes := range []int{1, 4} {
		for what, seen := range map[string]bool{"seen": true, "not seen yet": false} {
			t.Run(fmt.Sprintf("%d, %s", processes, what), func(t *testing.T) {
				t.Parallel()
				path := lockPath(t) + rand.Text()
				if seen {
					if err := outside(t).Set(soon(t), path, "theirs", 50*time.Millisecond).Err(); err != nil {
						t.Fatal(err)
					}
				}
				mustRelease(t, mustAcquire(t, start(t).at(t, path)))
				ctx, cancel := context.WithCancel(soon(t))
				var all sync.WaitGroup
				defer all.Wait()
				defer cancel()
				for range processes {
					locks, err := tier.New(start(t).tier)
					if err != nil {
						t.Fatal(err)
					}
					for range 8 {
						all.Go(func() {
							for ctx.Err() == nil {
								locks.Mutex(path).Do(ctx, func(context.Context) error { time.Sleep(time.Millisecond); return nil })
							}
						})
					}
				}
				busy := func() {
					eventually(t, "one of ours has it", func() bool { return outside(t).HExists(soon(t), keysOf(path)[3], "key").Val() })
				}
				busy()
				if !seen { // as if ten seconds had gone by
					if err := outside(t).HIncrBy(ctx, keysOf(path)[3], "gap", -seldom.Microseconds()).Err(); err != nil {
						t.Fatal(err)
					}
				}
				for turns := 0; turns < 5; {
					got, err := outside(t).SetNX(ctx, path, "theirs", time.Minute).Result()
					if err != nil {
						t.Fatalf("%d turns: %v", turns, err)
					}
					if got {
						turns++
						eventually(t, "the lock is seen", func() bool { return outside(t).HExists(soon(t), keysOf(path)[3], "foreign").Val() })
						outside(t).Del(ctx, path)
						busy()
					}
				}
			})
		}
	}
}

// seldom is how often the key is left free where no lock of another library was seen.
const seldom = 10 * time.Second
