package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A fault is what happens to a session when a certain frame of it passes.
type fault func(s *zktest.Server, session int64) zktest.Action

func muteFor(d time.Duration) fault {
	return func(s *zktest.Server, session int64) zktest.Action {
		for _, direction := range []zktest.Direction{zktest.ToServer, zktest.ToClient} {
			s.Mute(session, direction)
			time.AfterFunc(d, func() { s.Unmute(session, direction) })
		}
		return zktest.Pass
	}
}

// Each frame of a life with one turn of waiting and one requeue meets each fault, one in each run.
func TestI5NoOrphanWhereverTheConnectionFails(t *testing.T) {
	for name, fault := range map[string]fault{
		"cut":              func(*zktest.Server, int64) zktest.Action { return zktest.Cut },
		"slow":             func(*zktest.Server, int64) zktest.Action { return zktest.Delay(3 * time.Second) },
		"muted":            muteFor(timeout - time.Second),
		"muted to the end": muteFor(2 * timeout),
		"expired": func(s *zktest.Server, session int64) zktest.Action {
			s.Expire(session)
			return zktest.Pass
		},
	} {
		for kind, opts := range kinds(name) {
			for at, more := 1, true; more; at++ {
				t.Run(fmt.Sprintf("%s %s %d", kind, name, at), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = live(t, s, at, fault, opts...) })
				})
			}
		}
	}
}

// kinds are the options of nodes that are to meet a fault. What delays an answer is nothing else to a pair of znodes.
func kinds(fault string) map[string][]zklock.Option {
	all := map[string][]zklock.Option{"plain": nil}
	if !strings.Contains(fault, "slow") && !strings.Contains(fault, "muted") {
		all["bridged"] = []zklock.Option{zklock.WithKazoo()}
	}
	return all
}

// live reports whether the fault happened.
func live(t *testing.T, s *zktest.Server, at int, fault fault, opts ...zklock.Option) bool {
	t.Helper()
	other, p := start(t, s), start(t, s, opts...)
	held := other.acquire(t)
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session == other.session || f.Op == zktest.OpPing || f.Op == zktest.OpConnect {
			return zktest.Pass
		}
		mu.Lock()
		frames++
		hit := frames == at
		mu.Unlock()
		if hit {
			return fault(s, f.Session)
		}
		return zktest.Pass
	})
	r := p.queue(t.Context())
	held.Release()
	r.await(t)
	n := r.granted(t)
	if err := n.Err(); err != nil {
		t.Errorf("granted: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if next, err := n.Requeue(ctx); err == nil {
		next.Release()
	} else {
		wantErr(t, "Requeue", err, context.DeadlineExceeded)
	}
	time.Sleep(5 * timeout)
	synctest.Wait()
	if wantEmpty(t, s); p.Reaping() != 0 {
		t.Errorf("still reaping %d", p.Reaping())
	}
	mu.Lock()
	defer mu.Unlock()
	return frames >= at
}
