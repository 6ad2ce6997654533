package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A mishap is a fault that the nth frame of a client meets.
type mishap struct {
	nth   int
	fault zktest.Action
}

// everyMishap runs f with each fault in each frame of a client, plain and bridged, in a server of its own, until f reports that
// there was no such frame.
func everyMishap(t *testing.T, name string, f func(t *testing.T, s *zktest.Server, m mishap, opts ...zklock.Option) (happened bool)) {
	for fault, action := range map[string]zktest.Action{"cut": zktest.Cut, "throttled": zktest.Error(throttled)} {
		for kind, opts := range map[string][]zklock.Option{"plain": nil, "bridged": {zklock.WithKazoo()}} {
			for nth, more := 1, true; more; nth++ {
				t.Run(fmt.Sprintf("%s %s%s %d", kind, fault, name, nth), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = f(t, s, mishap{nth, action}, opts...) })
				})
			}
		}
	}
}

// befall lets p meet the mishap. Over gives it the time to get over it, until no heartbeat and no look at the queue is near,
// and reports whether it happened.
func (m mishap) befall(s *zktest.Server, p process) (over func() bool) {
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session != p.session || f.Op == zktest.OpPing || f.Op == zktest.OpConnect {
			return zktest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if frames++; frames == m.nth && (m.fault != zktest.Error(throttled) || f.Stage == zktest.Request) {
			return m.fault
		}
		return zktest.Pass
	})
	return func() bool {
		time.Sleep(timeout / 10)
		mu.Lock()
		happened := frames >= m.nth
		frames = m.nth // none from now on
		mu.Unlock()
		time.Sleep(timeout/2 - timeout/10 - 100*time.Millisecond)
		return happened
	}
}
