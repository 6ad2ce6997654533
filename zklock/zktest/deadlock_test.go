package zktest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const deadlockEnv = "ZKTEST_DEADLOCK"

// A goroutine acquires the lock again, and its context does not carry the hold. Without the check for deadlocks, the bubble would never
// end, because sessions keep sending heartbeats. The session is long, because the heartbeats of a day take the time of the test.
func TestDeadlockOfLocksEndsTheTest(t *testing.T) {
	if os.Getenv(deadlockEnv) != "" {
		synctest.Test(t, func(t *testing.T) {
			srv := zktest.Start(t, zktest.Config{MaxSessionTimeout: time.Hour})
			mu := locktest.Dial(t, srv, tier.WithLeaseTTL(time.Hour)).Mutex("/locks/a")
			need.Get(mu.Acquire(t.Context()))(t)
			mu.Acquire(t.Context())
		})
		return
	}
	again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	again.Env = append(os.Environ(), deadlockEnv+"=1")
	out, err := again.CombinedOutput()
	need.Has(t, fmt.Sprintf("a test that ended with %v", err), string(out),
		"panic: zktest: deadlock: ", "pass the context of the hold to Acquire", "path=/locks/a", "waited=24h0m0s",
		"tier.(*Mutex).Acquire", // among other stacks, that of the waiting goroutine
		"level=WARN")            // the warning before the panic
}

// Outside of a bubble, a wait of a day is only a long wait.
func TestDeadlockInRealTimeEndsNothing(*testing.T) { second.Deadlock("of a test") }
