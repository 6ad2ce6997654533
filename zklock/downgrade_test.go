package zklock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

func TestShareLetsTheReadersRightBehindInInOneWrite(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *zktest.Server, ...zklock.Option) process{"plain": start, "WithKazoo": bridge} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				n := begin(t, s).writing().acquire(t)
				readers := []*request{begin(t, s).reading().queue(t.Context()), start(t, s).reading().queue(t.Context())}
				w := begin(t, s).writing().queue(t.Context())
				last := begin(t, s).reading().queue(t.Context())
				before, token := n.Path(), n.Token()
				if !contested(n) {
					t.Fatal("not contested")
				}
				tr := record(s)
				if err := n.Share(t.Context()); err != nil {
					t.Fatal(err)
				}
				writes := slices.DeleteFunc(tr.take(), func(op zktest.Op) bool { return op == zktest.OpGetChildren2 || op == zktest.OpGetData })
				if !slices.Equal(writes, []zktest.Op{zktest.OpMulti}) {
					t.Errorf("written: %v, want one transaction", writes)
				}
				if want := strings.Replace(before, "__WRIT__", "__READ__", 1); n.Path() != want || !s.Exists(want) || s.Exists(before) {
					t.Errorf("the node is %s, want %s", n.Path(), want)
				}
				if _, stat, _ := s.Get(n.Path()); stat.EphemeralOwner == 0 {
					t.Error("the node outlives its session")
				}
				if !n.Shared() || n.Token() != token || n.Err() != nil {
					t.Errorf("shared %t, token %d, %v; want it to be shared with the token %d", n.Shared(), n.Token(), n.Err(), token)
				}
				for _, r := range readers {
					r.granted(t).Release()
				}
				if !w.waiting() || !last.waiting() {
					t.Fatal("granted beside a reader")
				}
				wantErr(t, "Release", n.Release(), nil)
				w.granted(t).Release()
				last.granted(t).Release()
				wantEmpty(t, s)
			})
		})
	}
}

func TestShareWaitsUntilAReaderIsRightBehind(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		d := sharing(t.Context(), n)
		if time.Sleep(3 * timeout); !d.waiting() {
			t.Fatal("shared with nobody")
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := start(t, s).writing().queue(ctx)
		r := start(t, s).reading().queue(t.Context())
		if !d.waiting() || !r.waiting() {
			t.Fatal("shared with a writer in between")
		}
		cancel()
		w.await(t)
		d.granted(t)
		r.granted(t)
	})
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

func TestShareEndsWithItsContextAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		before := n.Path()
		ctx, cancel := context.WithCancel(t.Context())
		d := sharing(ctx, n)
		cancel()
		wantErr(t, "Share", d.failed(t), context.Canceled)
		r := start(t, s).reading().queue(t.Context())
		time.Sleep(3 * timeout)
		if n.Shared() || n.Path() != before || n.Err() != nil || !r.waiting() {
			t.Error("shared after all")
		}
		wantErr(t, "Share of one that has ended", sharing(ctx, n).failed(t), context.Canceled)
		n.Release()
		r.granted(t)
	})
}

func TestShareEndsWithTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		d := sharing(t.Context(), n)
		n.Release()
		wantErr(t, "Share of a node that is released", d.failed(t), zklock.ErrReleased)
		wantErr(t, "and again", sharing(t.Context(), n).failed(t), zklock.ErrReleased)

		n = p.acquire(t)
		d = sharing(t.Context(), n)
		raw(t, s).Delete(n.Path(), -1)
		wantErr(t, "Share of a node that is deleted", d.failed(t), zklock.ErrLost)
		n.Release()

		n = p.acquire(t)
		d = sharing(t.Context(), n)
		s.Expire(p.session)
		wantErr(t, "Share after the end of the session", d.failed(t), zklock.ErrLost)
		n.Release()

		n = p.acquire(t)
		d = sharing(t.Context(), n)
		p.Close()
		wantErr(t, "Share after Close", d.failed(t), zklock.ErrClosed)
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

func TestASharedNodeIsContestedByThoseThatWaitForIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		start(t, s).reading().queue(t.Context())
		old := n.Contested()
		if err := n.Share(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.Contested() == old || contested(n) {
			t.Fatal("contested by readers")
		}
		start(t, s).reading().queue(t.Context()).granted(t)
		if contested(n) {
			t.Fatal("contested by readers")
		}
		start(t, s).writing().queue(t.Context())
		if !contested(n) {
			t.Error("not contested by a writer")
		}
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

func TestTheEndOfASharedNodeIsHeardOf(t *testing.T) { // I7
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).writing().acquire(t)
		r := start(t, s).reading().queue(t.Context())
		if err := n.Share(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.granted(t)
		if err := raw(t, s).Delete(pairsOf(t, s, n)[i], -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		time.Sleep(time.Second)
		r.node.Release()
		wantEmpty(t, s)
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
