package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestReleaseEndsTheContextsOfItsHoldOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		outerCtx := outer.Context(t.Context())
		inner, err := mu.Acquire(outerCtx)
		if err != nil {
			t.Fatal(err)
		}
		first, second := inner.Context(t.Context()), inner.Context(t.Context())
		if first.Err() != nil || inner.Err() != nil {
			t.Errorf("while held: context %v, hold %v; want nil, nil", first.Err(), inner.Err())
		}
		release(t, inner)
		for _, ctx := range []context.Context{first, second, inner.Context(t.Context())} {
			if <-ctx.Done(); !errors.Is(context.Cause(ctx), tier.ErrReleased) {
				t.Errorf("cause after release: got %v, want ErrReleased", context.Cause(ctx))
			}
		}
		if !errors.Is(inner.Err(), tier.ErrReleased) {
			t.Errorf("Err after release: got %v, want ErrReleased", inner.Err())
		}
		if outerCtx.Err() != nil || outer.Err() != nil {
			t.Errorf("outer hold after release of the inner: context %v, hold %v; want nil, nil", outerCtx.Err(), outer.Err())
		}
		release(t, outer)
	})
}

// The context of Acquire bounds the wait, not the work.
func TestHoldOutlivesContextOfAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		ctx, cancel := context.WithCancel(t.Context())
		hold, err := mu.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		work := hold.Context(t.Context())
		cancel()
		if work.Err() != nil || hold.Err() != nil {
			t.Errorf("after the end of Acquire's context: context %v, hold %v; want nil, nil", work.Err(), hold.Err())
		}
		release(t, hold)
	})
}

func TestMultiWritesWhileTheLockIsOursOnly(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := zkProcess(t, srv).Mutex("/locks/a")
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		write := func(hold *tier.Hold, name string) error {
			_, err := tierlock.Multi(soon(t), hold, &zk.CreateRequest{Path: name, Acl: zk.WorldACL(zk.PermAll)})
			return err
		}
		hold := acquire(t, mu)
		inner, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		if err := write(inner, "/inner"); !errors.Is(err, tier.ErrReleased) || srv.Exists("/inner") {
			t.Errorf("Multi of a released hold while another lives: got %v, written %v; want ErrReleased, false", err, srv.Exists("/inner"))
		}
		if err := write(hold, "/held"); err != nil || !srv.Exists("/held") {
			t.Errorf("Multi while held: got %v, written %v; want nil, true", err, srv.Exists("/held"))
		}
		// The server decides: let no event tell the client first.
		srv.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := conn.Delete("/locks/a/"+srv.Children("/locks/a")[0], -1); err != nil {
			t.Fatal(err)
		}
		if hold.Err() != nil {
			t.Fatalf("the client knows already: %v", hold.Err())
		}
		if err := write(hold, "/lost"); !errors.Is(err, tier.ErrLost) || srv.Exists("/lost") {
			t.Errorf("Multi after the node went: got %v, written %v; want ErrLost, false", err, srv.Exists("/lost"))
		}
		srv.Intercept(nil)
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release after the node went: got %v, want ErrLost", err)
		}
		if err := write(hold, "/released"); !errors.Is(err, tier.ErrReleased) || srv.Exists("/released") {
			t.Errorf("Multi after release: got %v, written %v; want ErrReleased, false", err, srv.Exists("/released"))
		}
	})
}

// A hold that lasts may serve any number of short pieces of work.
func TestHoldForgetsContextsThatEnd(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			hold.Context(ctx)
			cancel()
		}
		synctest.Wait()
		if n := tier.Derived(hold); n != 0 {
			t.Errorf("the hold remembers %d contexts that have ended, want 0", n)
		}
		release(t, hold)
	})
}
