package zklock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func write(path string) any {
	return &zk.CreateRequest{Path: path, Data: []byte("data"), Acl: zk.WorldACL(zk.PermAll)}
}

func TestMultiWritesWhileHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		results, err := n.Multi(t.Context(), write("/a"), write("/b"))
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 2 || results[0].String != "/a" || results[1].String != "/b" {
			t.Errorf("results: got %+v, want those of the two writes", results)
		}
		if !s.Exists("/a") || !s.Exists("/b") {
			t.Error("not written")
		}
	})
}

// The holder has not heard yet that its node is gone: only the server can refuse.
func TestMultiOfAHolderWhoDoesNotKnowOfItsLossWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		if err := n.Err(); err != nil {
			t.Fatalf("knows already: %v", err)
		}
		_, err := n.Multi(t.Context(), write("/a"))
		wantErr(t, "Multi", err, zklock.ErrLost)
		if s.Exists("/a") {
			t.Error("written without the lock")
		}
	})
}

func TestMultiOfAHolderWhoKnowsSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		released, lost := p.acquire(t), p.queue(t.Context())
		released.Release()
		if err := raw(t, s).Delete(lost.granted(t).Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, lost.node)
		time.Sleep(time.Second)
		tr := record(s)
		_, err := released.Multi(t.Context(), write("/a"))
		wantErr(t, "Multi after Release", err, zklock.ErrReleased)
		_, err = lost.node.Multi(t.Context(), write("/a"))
		wantErr(t, "Multi after the loss", err, zklock.ErrLost)
		if got := tr.take(); slices.Contains(got, zktest.OpMulti) {
			t.Errorf("sent: %v", got)
		}
	})
}

func TestMultiFailsWithTheErrorOfItsOperationAndWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		for _, tt := range []struct {
			op   any
			want error
		}{
			{&zk.SetDataRequest{Path: "/missing", Version: -1}, zk.ErrNoNode},
			{write("/locks"), zk.ErrNodeExists},
		} {
			_, err := n.Multi(t.Context(), write("/a"), tt.op)
			if wantErr(t, "Multi", err, tt.want); s.Exists("/a") {
				t.Error("written in part")
			}
		}
		if err := n.Release(); err != nil {
			t.Errorf("lost by a failed write: %v", err)
		}
	})
}

func TestMultiEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		s.Freeze()
		defer s.Unfreeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Multi(ctx, write("/a"))
		wantErr(t, "Multi", err, context.DeadlineExceeded)
	})
}

// Whoever takes the right to the node away and then finds nobody writing relies on it.
func TestMultiCountsAsWritingBeforeItLooksWhetherItMay(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		refusal := errors.New("no more")
		tr := record(s)
		_, err := n.MultiIf(t.Context(), func() error {
			if !n.Writing() {
				t.Error("not writing yet")
			}
			return refusal
		}, write("/a"))
		wantErr(t, "MultiIf", err, refusal)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
		if n.Writing() {
			t.Error("writing although it was refused")
		}
	})
}

func TestMultiWithAnEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tr := record(s)
		_, err := n.Multi(ctx, write("/a"))
		wantErr(t, "Multi", err, context.Canceled)
		if got := tr.take(); len(got) > 0 || n.Writing() {
			t.Errorf("sent: %v; writing: %t", got, n.Writing())
		}
	})
}

func TestMultiOfAClientThatIsClosedMeanwhileIsNotWriting(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		_, err := n.MultiIf(t.Context(), p.Close, write("/a"))
		wantErr(t, "Multi", err, zklock.ErrClosed)
		if n.Writing() {
			t.Error("writing although nothing was sent")
		}
	})
}
