package slots_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// The first process dies at each of its commands in turn: before the store executes the command, or before the answer arrives. The second
// process goes on. With Retry every slot runs, and only the slot of the crash may run twice. With Skip no slot runs twice, and only the
// slot of the crash may be left out.
func TestProcessMayDieAtEachStep(t *testing.T) {
	for _, policy := range []slots.Policy{slots.Skip, slots.Retry} {
		for _, executed := range []bool{false, true} {
			step := 1
			for dies(t, policy, executed, step) {
				step++
			}
			need.AtLeast(t, "steps", step-1, 8) // enter, load, the first ledger, two for each slot, and the release
		}
	}
}

// dies makes the first process die at a step. It returns false if that process sends fewer commands.
func dies(t *testing.T, policy slots.Policy, executed bool, step int) (died bool) {
	const minutes = 3
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		over, end := context.WithTimeout(t.Context(), minutes*time.Minute+30*time.Second) // long enough for the process that takes over
		defer end()
		life, kill := context.WithCancel(over)
		defer kill()
		var mu sync.Mutex // guards the fields below
		sent, runs := 0, make(map[int][]slots.Slot)
		crash := 0 // the minute of the first slot after the crash
		server.Script(func(process string, c queue.Command) (f memory.Fault) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case process != "first" || !died && c.Path == "": // renewals are no steps
			case died:
				f.Never = true
			default:
				if sent++; sent == step {
					died, f.Lost, f.Never = true, executed, !executed
					crash = time.Now().Minute() + 1
					kill()
				}
			}
			return f
		})
		var processes sync.WaitGroup
		begin := func(ctx context.Context, name string) {
			locks := tier.New(server.Dial(name, 10*time.Second, nil))
			job := slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{}), slots.AfterCrash(policy), slots.CatchUp(slots.All))
			processes.Go(func() {
				defer locks.Close()
				job.Run(ctx, func(_ context.Context, slot slots.Slot) error {
					mu.Lock()
					defer mu.Unlock()
					runs[slot.Time.Minute()] = append(runs[slot.Time.Minute()], slot)
					return nil
				})
			})
		}
		begin(life, "first")
		time.Sleep(time.Second)
		begin(over, "second")
		processes.Wait()
		for m := 1; m <= minutes; m++ {
			what := fmt.Sprintf("policy %d, executed %t, step %d, slot %d: runs %v", policy, executed, step, m, runs[m])
			hit := died && (m == crash || m == crash-1) // the slot that runs at the crash, or the one that begins then
			switch n := len(runs[m]); {
			case n == 1:
			case n == 0 && policy == slots.Skip && hit:
			case n == 2 && policy == slots.Retry && hit:
				need.That(t, what, runs[m][1].Attempt == 2 && runs[m][1].Token > runs[m][0].Token)
			default:
				t.Error(what)
			}
		}
	})
	return died
}
