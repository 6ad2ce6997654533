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
			if f.Op == "event" {
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
		if got := tr.take(); slices.Contains(got, "multi") {
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
		wantErr(t, "Multi", err, zklock.ErrUnknown)
	})
}

func TestMultiWhoseAnswerIsLostIsUnknown(t *testing.T) {
	for stage, there := range map[zktest.Direction]bool{zktest.Request: false, zktest.Reply: true} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == stage && f.Op == "multi" {
					return zktest.Cut
				}
				return zktest.Pass
			})
			_, err := n.Multi(t.Context(), write("/a"))
			wantErr(t, "Multi", err, zklock.ErrUnknown)
			wantErr(t, "Multi", err, zk.ErrConnectionClosed)
			if errors.Is(err, zklock.ErrLost) || s.Exists("/a") != there {
				t.Errorf("%v; written: %t, want %t", err, s.Exists("/a"), there)
			}
		})
	}
}

func TestMultiThatIsRefusedIsNotUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		var refusal zktest.Action
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Dir == zktest.Request && f.Op == "multi" {
				return refusal
			}
			return zktest.Pass
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for what, call := range map[string]func() error{
			"no node":     func() error { _, err := n.Multi(t.Context(), &zk.SetDataRequest{Path: "/no"}); return err },
			"exists":      func() error { _, err := n.Multi(t.Context(), write("/locks")); return err },
			"ended":       func() error { _, err := n.Multi(ended, write("/a")); return err },
			"throttled":   func() error { refusal = zktest.Throttled; _, err := n.Multi(t.Context(), write("/a")); return err },
			"no such op":  func() error { _, err := n.Multi(t.Context(), write("/a"), 7); return err },
			"operation 0": func() error { _, err := n.Multi(t.Context(), (*zk.DeleteRequest)(nil)); return err },
		} {
			refusal = zktest.Pass
			if err := call(); err == nil || errors.Is(err, zklock.ErrUnknown) || errors.Is(err, zklock.ErrLost) {
				t.Errorf("%s: %v, want its own error", what, err)
			}
		}
		if s.Exists("/a") {
			t.Error("written")
		}
		refusal = zktest.Pass
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		_, err := n.Multi(t.Context(), write("/a"))
		wantErr(t, "Multi", err, zklock.ErrLost)
		if errors.Is(err, zklock.ErrUnknown) {
			t.Errorf("unknown although the lock was lost: %v", err)
		}
		p.Close()
		_, err = n.MultiIf(t.Context(), func() error { return nil }, write("/a"))
		wantErr(t, "Multi of a closed client", err, zklock.ErrClosed)
	})
}

func TestOperationThatIsNilIsRefusedAsByTheLibrary(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		for _, chroot := range []string{"", "/app"} {
			c, err := zklock.Dial(t.Context(), addr+chroot, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			n, err := lockAt(t, c, path).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range []any{(*zk.CreateRequest)(nil), (*zk.DeleteRequest)(nil), (*zk.SetDataRequest)(nil), (*zk.CheckVersionRequest)(nil)} {
				_, library := raw(t, s).Multi(op)
				_, err := n.Multi(t.Context(), write("/a"), op)
				wantErr(t, "Multi", err, library)
			}
			n.Release()
		}
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
