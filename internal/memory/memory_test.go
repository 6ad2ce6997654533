package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// inBubble runs a test of the suite in virtual time, with a new server.
func inBubble(t *testing.T, test func(*testing.T, tiertest.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, harness(memory.NewServer())) })
}

func TestTier(t *testing.T) { tiertest.Run(t, inBubble) }

func TestUnknownCommandIsDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, h tiertest.Harness) {
		p := h.Dial(t, tierTimeout)
		defer p.Close()
		claim := need.Get(p.Claim("/a", second.Options{}))(t)
		grant := need.Get(claim.Acquire(t.Context(), new(second.Wait)))(t)
		c := grant.(*queue.Contender)
		a := c.Store().Do(t.Context(), queue.Command{Op: "unknown", Ref: c.Ref(), Session: "1/1"})
		need.Equal(t, "the outcome", a.Outcome, queue.Denied)
		need.WantErr(t, "the answer", a.Err, errors.ErrUnsupported)
	})
}

const tierTimeout = 3 * time.Second // the length of the leases

func harness(s *memory.Server) tiertest.Harness {
	n := 0
	return tiertest.Harness{
		Lease:   tierTimeout,
		Virtual: true,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			n++
			p := s.Dial(fmt.Sprint("process ", n), lease, nil)
			synctest.Wait() // until the process is connected
			return &tiertest.Process{
				Tier: p.Tier, Cut: p.Cut, Kill: func() { p.Cut(); p.Close() },
				Messages: func(hook func() bool) { p.Deliver(func(queue.Record) bool { return hook != nil && hook() }) },
				Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
				Sleep:    func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
			}
		},
		Left:        func(path string) int { return len(s.Queue(path)) },
		LeftPermits: func(path string) int { return len(s.Queue("permits of " + path)) },
		Writes:      s.Writes,
		Remove:      s.Remove,
		Freeze:      s.Freeze,
	}
}
