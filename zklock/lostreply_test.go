package zklock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// on meets the first frame of the kind with action, and lets all others pass.
func on(s *zktest.Server, op zktest.Op, stage zktest.Stage, action zktest.Action) {
	var once sync.Once
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		fate := zktest.Pass
		if f.Op == op && f.Stage == stage {
			once.Do(func() { fate = action })
		}
		return fate
	})
}

// creations counts the lock nodes that are created from now on.
func creations(s *zktest.Server) *int {
	n := new(int)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		for _, c := range changes {
			if c.Kind == zktest.Created && len(c.Path) > len(path) {
				*n++
			}
		}
	})
	return n
}

func TestNodeOfACreateWithoutAReplyIsAdopted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		created := creations(s)
		on(s, zktest.OpCreate, zktest.Reply, zktest.Cut)
		n := p.acquire(t)
		if names := s.Children(path); *created != 1 || len(names) != 1 || path+"/"+names[0] != n.Path() {
			t.Errorf("%d nodes were created, left are %q; want %s alone", *created, names, n.Path())
		}
		n.Release()
		wantEmpty(t, s)
	})
}

func TestCreateThatNeverArrivedIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		created := creations(s)
		on(s, zktest.OpCreate, zktest.Request, zktest.Cut)
		p.acquire(t).Release()
		if *created != 1 {
			t.Errorf("%d nodes were created, want 1", *created)
		}
		wantEmpty(t, s)
	})
}

func TestNodeOfACreateWithoutAReplyIsReapedIfUnwanted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		on(s, zktest.OpCreate, zktest.Reply, zktest.Cut)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		time.Sleep(beat)
		if wantEmpty(t, s); p.Reaping() != 0 {
			t.Errorf("still reaping %d", p.Reaping())
		}
	})
}

func TestTryAcquireWithoutAReplyLeavesNoNode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		on(s, zktest.OpCreate, zktest.Reply, zktest.Cut)
		if _, err := p.lock.TryAcquire(t.Context()); err == nil {
			t.Error("granted although the reply was lost")
		}
		time.Sleep(beat)
		wantEmpty(t, s)
	})
}

// The reply is lost with a server, and the next one does not know of the create yet.
func TestAbsenceIsNotBelievedOfAServerThatLags(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const behind = "127.0.0.1:2182"
		s.Member(behind).Refuse()
		c, err := zklock.Dial(t.Context(), addr+","+behind, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		p := process{Client: c, lock: lockAt(t, c, path)}
		p.acquire(t).Release()

		s.Member(behind).Lag()
		s.Member(behind).Accept()
		s.Member(addr).Refuse()
		created := creations(s)
		on(s, zktest.OpCreate, zktest.Reply, zktest.Cut)
		n := p.acquire(t)
		if *created != 1 {
			t.Errorf("%d nodes were created, want 1", *created)
		}
		n.Release()
		wantEmpty(t, s)
	})
}

func TestDeleteWithoutAReplyIsASuccessAndTheNodeGoes(t *testing.T) {
	for _, stage := range []zktest.Stage{zktest.Request, zktest.Reply} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s)
			n := p.acquire(t)
			next := start(t, s).queue(t.Context())
			on(s, zktest.OpDelete, stage, zktest.Cut)
			if err := n.Release(); err != nil {
				t.Errorf("%v lost: %v", stage, err)
			}
			time.Sleep(beat)
			next.granted(t).Release()
			if wantEmpty(t, s); p.Reaping() != 0 {
				t.Errorf("%v lost: still reaping %d", stage, p.Reaping())
			}
		})
	}
}

func TestReleaseDoesNotWaitForAnUnreachableServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Freeze()
		begun := time.Now()
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d > timeout/3 {
			t.Errorf("returned after %v, want at most %v", d, timeout/3)
		}
		s.Unfreeze()
		wantEmpty(t, s)

		n = p.acquire(t)
		down(s)
		begun = time.Now()
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d != 0 {
			t.Errorf("disconnected: returned after %v, want at once", d)
		}
		s.Member(addr).Accept()
		time.Sleep(2 * time.Second)
		wantEmpty(t, s)
	})
}

func TestRequeueWithoutAReplyKeepsOneNode(t *testing.T) {
	for _, stage := range []zktest.Stage{zktest.Request, zktest.Reply} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s)
			n := p.acquire(t)
			on(s, zktest.OpMulti, stage, zktest.Cut)
			next, err := n.Requeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(beat)
			if names := s.Children(path); len(names) != 1 || path+"/"+names[0] != next.Path() {
				t.Errorf("%v lost: queue is %q, want %s alone", stage, names, next.Path())
			}
			next.Release()
			wantEmpty(t, s)
		})
	}
}
