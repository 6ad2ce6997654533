package mutexbool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/mutexbool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestZeroBoolIsFalse(t *testing.T) {
	var b mutexbool.Bool
	need.That(t, "the zero Bool is set", !b.IsSet())
	need.That(t, "the channel of the zero Bool is closed", !need.Closed(b.C()))
}

func TestSetWakesEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b mutexbool.Bool
		var woken sync.WaitGroup
		for range 100 {
			woken.Go(func() { need.WantErr(t, "Wait", b.Wait(t.Context()), nil) })
		}
		synctest.Wait() // now all waiters are blocked
		b.Set()
		woken.Wait()
	})
}

func TestBoolIsALevelUntilClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b mutexbool.Bool
		b.Set()
		b.Set()
		for range 2 {
			if err := b.Wait(t.Context()); err != nil || !b.IsSet() || !need.Closed(b.C()) {
				t.Fatalf("true Bool: Wait %v, IsSet %t, C is closed: %t", err, b.IsSet(), need.Closed(b.C()))
			}
		}
		b.Clear()
		need.That(t, "set after Clear", !b.IsSet())
		ctx := need.Within(t, time.Hour)
		start := time.Now()
		need.WantErr(t, "Wait after Clear", b.Wait(ctx), context.DeadlineExceeded)
		need.Equal(t, "Wait after Clear took", time.Since(start), time.Hour)
	})
}

// A channel taken before Set must be closed even if Clear follows.
func TestChannelTakenBeforeSetStaysClosed(t *testing.T) {
	var b mutexbool.Bool
	before := b.C()
	b.Set()
	b.Clear()
	need.That(t, "a channel taken before Set is open after Set and Clear", need.Closed(before))
}

func TestWaitReturnsCause(t *testing.T) {
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	var b mutexbool.Bool
	need.WantErr(t, "Wait with a cancelled ctx", b.Wait(ctx), reason)
	b.Set()
	need.WantErr(t, "Wait on a true Bool with a cancelled ctx", b.Wait(ctx), nil)
}

// The loop of the package comment has to see every change, in any order of its steps and of Set. A lost wake-up would block the bubble.
func TestClearLookWaitLosesNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changes = 1000
		var (
			mu      sync.Mutex
			value   int
			changed mutexbool.Bool
		)
		go func() {
			for range changes {
				mu.Lock()
				value++
				mu.Unlock()
				changed.Set()
			}
		}()
		for {
			changed.Clear()
			mu.Lock()
			seen := value
			mu.Unlock()
			if seen == changes {
				return
			}
			need.OK(t, changed.Wait(t.Context()))
		}
	})
}
