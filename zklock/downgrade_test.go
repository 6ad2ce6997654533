package zklock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// sharing begins to share n.
func sharing(ctx context.Context, n *zklock.Node) *request {
	return submit(func() (*zklock.Node, error) { return n, n.Share(ctx) })
}

// A Curator writer that becomes a reader has two nodes with one number for a while.
func TestShareDoesNotTakeAWriterForTheReaderWithItsNumber(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		conn := raw(t, s)
		write, err := conn.Create(path+"/_c_x-__WRIT__", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "z"} { // listed before it and behind
			put(t, conn, zk.FlagEphemeral, path+"/_c_"+id+"-__READ__"+write[len(write)-10:])
		}
		d := sharing(t.Context(), n)
		if !d.waiting() {
			t.Error("shared with a writer right behind")
		}
		conn.Delete(write, -1)
		d.granted(t)
	})
}

func TestOnlyAWriterCanBeShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		if err := sharing(t.Context(), n).failed(t); err == nil {
			t.Error("a mutex was shared")
		}
		n.Release()
		wantErr(t, "Share of a reader", p.reading().acquire(t).Share(t.Context()), nil)
		other := start(t, s).writing()
		l := lockAt(t, other.Client, "/worn").Mode(second.Writing)
		put(t, raw(t, s), 0, "/worn")
		s.SetSequence("/worn", 1<<30)
		n, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := sharing(t.Context(), n).failed(t); err == nil {
			t.Error("shared on a worn path")
		}
		n.Release()
	})
}

// Whoever looked for those behind the writer is not the one who looks for those behind the reader.
func TestNobodyLooksForThoseBehindTheWriterThatIsShared(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		start(t, s).reading().queue(t.Context())
		on(s, zktest.OpGetChildren2, zktest.Request, zktest.Error(throttled))
		n.Contested() // whose look fails
		synctest.Wait()
		if err := n.Share(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := p.Watchers(path); got != 0 {
			t.Errorf("%d look at the queue", got)
		}
	})
}

// No heartbeat, check or guard asks for a node that is not there any more.
func TestASharedNodeLivesOn(t *testing.T) {
	for name, opts := range map[string][]zklock.Option{"plain": nil, "WithKazoo": {zklock.WithKazoo()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s, opts...).writing()
				n := p.acquire(t)
				r := start(t, s).reading().queue(t.Context())
				if err := n.Share(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * timeout)
				s.Cut(p.session)
				time.Sleep(3 * timeout)
				if _, err := n.Multi(t.Context(), write("/a")); err != nil || !s.Exists("/a") {
					t.Errorf("guarded write: %v", err)
				}
				again := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
				if !again.waiting() {
					t.Error("a writer was granted beside a reader")
				}
				r.granted(t).Release()
				again.granted(t).Release()
				wantEmpty(t, s)
			})
		})
	}
}

// A write that is under way holds Share up. One whose user has lost the right to it is not sent under the name of the reader.
func TestNoWriteOfTheWriterTakesEffectBesideAReader(t *testing.T) { // I1
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: 20 * time.Millisecond})
		n := start(t, s).writing().acquire(t)
		r := start(t, s).reading().queue(t.Context())
		time.Sleep(time.Second)
		written := submit(func() (*zklock.Node, error) {
			_, err := n.Multi(t.Context(), write("/a"))
			return n, err
		})
		s.OnChange(func(v zktest.View, changes []zktest.Change) {
			if changes[0].Path == "/a" && !v.Exists(n.Path()) {
				t.Error("written beside a reader")
			}
		})
		d := sharing(t.Context(), n)
		var over bool
		errOver := errors.New("the writer has left")
		late := submit(func() (*zklock.Node, error) { // counted in time, sent behind Share
			_, err := n.MultiIf(t.Context(), func() error {
				if over {
					return errOver
				}
				over = true
				return nil
			}, write("/b"))
			return n, err
		})
		d.await(t)
		time.Sleep(time.Second)
		d.granted(t)
		r.granted(t)
		written.granted(t)
		if wantErr(t, "the late write", late.failed(t), errOver); s.Exists("/b") {
			t.Error("written beside a reader")
		}
	})
}

func TestShareOverAnAttachedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		for _, opts := range [][]zklock.Option{nil, {zklock.WithKazoo()}} {
			n := attachTo(t, raw(t, s), opts...).writing().acquire(t)
			d := sharing(t.Context(), n)
			r := start(t, s).reading().queue(t.Context())
			w := start(t, s).writing().queue(t.Context())
			d.granted(t)
			r.granted(t).Release()
			if !w.waiting() || !n.Shared() || !n.Confirm() {
				t.Error("not shared")
			}
			wantErr(t, "Release", n.Release(), nil)
			w.granted(t).Release()
			wantEmpty(t, s)
		}
	})
}
