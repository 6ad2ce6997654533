package zklock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Only what the server sends gets lost. The session could delete its node at once; and each handshake that would resume
// it keeps the node in the queue.
func TestLostNodeLeavesItsOwnerTheMarginToStop(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		mute(s, p, zktest.ToClient)
		awaitLoss(t, n)
		lost := time.Now()
		next.await(t)
		if d := time.Since(lost); d < timeout-lease {
			t.Errorf("the next owner came %v after the loss, want at least the margin %v", d, timeout-lease)
		} else if d > 3*timeout {
			t.Errorf("the next owner came %v after the loss, want a session that is not resumed to end", d)
		}
	})
}

// lapse makes the lease of n run out while the connection stands.
func lapse(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
	t.Helper()
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session == p.session && f.Stage == zktest.Request && f.Op == zktest.OpMulti {
			return zktest.Error(zktest.CodeThrottled)
		}
		return zktest.Pass
	})
	awaitLoss(t, n)
	s.Intercept(nil)
}

func TestLostNodeGoesWhenItsMarginIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		gone := deleted(s, n)
		lapse(t, s, p, n)
		lost := time.Now()
		if d := (<-gone).Sub(lost); d != timeout-lease {
			t.Errorf("gone %v after the loss, want the margin %v", d, timeout-lease)
		}
	})
}

func TestRequeueOfALostNodeDeletesItBeforeTheNewOneIsCreated(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		lapse(t, s, p, n)
		tr, begun := record(s), time.Now()
		next, err := n.Requeue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("took %v, want no more than the requests", d)
		}
		if ops := tr.take(); len(ops) < 2 || ops[0] != zktest.OpDelete || ops[1] != zktest.OpCreate {
			t.Errorf("requests: %v, want the delete before the create", ops)
		}
		next.Release()
		wantEmpty(t, s)
	})
}

func TestTimeoutThatMayBeTooShortForTheTickIsToldAtWarn(t *testing.T) {
	for _, tt := range []struct {
		asked, least time.Duration
		want         bool
	}{
		{15 * time.Second, 4 * time.Second, false},
		{8 * time.Second, 4 * time.Second, false},
		{7 * time.Second, 4 * time.Second, true},   // four ticks of 2 s are more
		{10 * time.Second, 12 * time.Second, true}, // raised to two ticks, which must be of 6 s
	} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t, zktest.Config{MinSessionTimeout: tt.least})
			var log bytes.Buffer
			p := start(t, s, zklock.WithSessionTimeout(tt.asked), zklock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			p.Close()
			if got := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "tick"); got != tt.want {
				t.Errorf("asked for %v, granted at least %v: warned %t, log %q", tt.asked, tt.least, got, &log)
			}
		})
	}
}

func TestIdleClientResumesItsSessionAfterAShortAbsence(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		time.Sleep(time.Hour)
		s.Cut(p.session)
		time.Sleep(timeout)
		if got := s.Sessions(); len(got) != 1 || got[0].ID != p.session {
			t.Errorf("sessions: %+v, want %#x", got, p.session)
		}
	})
}
