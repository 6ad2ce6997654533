package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The function sharing starts to share the node n in a new goroutine.
func sharing(ctx context.Context, n *zknode.Node) *request {
	return submit(func() (*zknode.Node, error) { return n, n.Share(ctx) })
}

func TestOnlyAWriterCanBeShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		need.That(t, "a mutex was shared", sharing(t.Context(), n).failed(t) != nil)
		n.Release()
		wantErr(t, "Share of a reader", p.reading().acquire(t).Share(t.Context()), nil)
		other := start(t, s).writing()
		l := lockAt(t, other.Client, "/worn").Mode(second.Writing)
		put(t, raw(t, s), 0, "/worn")
		s.SetSequence("/worn", 1<<30)
		n = acquire(t, l)
		need.That(t, "shared on a worn path", sharing(t.Context(), n).failed(t) != nil)
		n.Release()
	})
}

// When a writer becomes a reader, it stops reading the queue for contenders behind the writer. It then looks for contenders behind the
// reader.
func TestNobodyLooksForThoseBehindTheWriterThatIsShared(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		start(t, s).reading().queue(t.Context())
		meetOnce(s, is("getChildren2", zktest.Request), zktest.Throttled)
		n.Contended() // this call begins to read the queue, and that read fails
		synctest.Wait()
		need.OK(t, n.Share(t.Context()))
		time.Sleep(time.Second)
		need.Equal(t, "watchers of the queue", p.Watchers(path), 0)
	})
}

// After a Share, the node of the writer no longer exists. Heartbeats, checks and guards must use the name of the reader's node.
func TestASharedNodeLivesOn(t *testing.T) {
	each(t, kinds, func(t *testing.T, s *zktest.Server, opts []zknode.Option) {
		p := start(t, s, opts...).writing()
		n := p.acquire(t)
		r := start(t, s).reading().queue(t.Context())
		need.OK(t, n.Share(t.Context()))
		time.Sleep(3 * timeout)
		s.Cut(p.session)
		time.Sleep(3 * timeout)
		wantErr(t, "guarded write", need.ErrOf(n.Multi(t.Context(), write("/a"))), nil)
		need.That(t, "not written", s.Exists("/a"))
		again := submit(func() (*zknode.Node, error) { return n.Requeue(t.Context()) })
		need.That(t, "a writer was granted beside a reader", again.waiting())
		r.granted(t).Release()
		again.granted(t).Release()
		wantEmpty(t, s)
	})
}

// Share waits for a guarded write that is under way. A write whose hold has ended by then must not be sent with the name of the reader's
// node.
func TestNoWriteOfTheWriterTakesEffectBesideAReader(t *testing.T) { // I1
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: 20 * time.Millisecond})
		n := start(t, s).writing().acquire(t)
		r := start(t, s).reading().queue(t.Context())
		time.Sleep(time.Second)
		written := submit(func() (*zknode.Node, error) {
			_, err := n.Multi(t.Context(), write("/a"))
			return n, err
		})
		s.OnChange(func(v zktest.View, changes []zktest.Change) {
			need.That(t, "written beside a reader", changes[0].Path != "/a" || v.Exists(n.Path()))
		})
		d := sharing(t.Context(), n)
		var over bool
		errOver := errors.New("the writer has left")
		late := submit(func() (*zknode.Node, error) { // begins before Share, and would be sent after it
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
		wantErr(t, "the late write", late.failed(t), errOver)
		need.That(t, "written beside a reader", !s.Exists("/b"))
	})
}

func TestShareOverAnAttachedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		for _, opts := range [][]zknode.Option{nil, {zknode.WithKazoo()}} {
			n := attachTo(t, raw(t, s), opts...).writing().acquire(t)
			d := sharing(t.Context(), n)
			r := start(t, s).reading().queue(t.Context())
			w := start(t, s).writing().queue(t.Context())
			d.granted(t)
			r.granted(t).Release()
			need.That(t, "not shared", w.waiting() && n.Shared() && n.Confirm())
			wantErr(t, "Release", n.Release(), nil)
			w.granted(t).Release()
			wantEmpty(t, s)
		}
	})
}

// A watch reports a new reader. The client reads the queue only rarely, in case the watch was lost.
func TestWhoSharesWithNobodyLooksSeldom(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		tr := record(s)
		wantErr(t, "Share", n.Share(within(t, 10*timeout)), context.DeadlineExceeded)
		looks := 0
		for _, op := range tr.take() {
			if strings.HasPrefix(op, "getChildren") {
				looks++
			}
		}
		need.Between(t, "looks, one at the begin, and each after half of the timeout or more", looks, 2, 20)
	})
}

// The function shares reports whether a frame belongs to the transaction of a Share.
func shares(f *zktest.Frame) bool { return f.Op == "multi" && f.First == "delete" }

func answersShare(f *zktest.Frame) bool { return shares(f) && f.Dir == zktest.Reply }

// Another process may write a request for the lock to the node while Share replaces the node. If Share fails, the client reads the request
// again.
func TestARequestDuringShareIsNotMissed(t *testing.T) {
	type row struct {
		begin    func(*testing.T, *zktest.Server) process
		fate     zktest.Action // what happens to the transaction
		patience time.Duration
	}
	each(t, map[string]row{
		"asked for again": {
			begin: func(t *testing.T, s *zktest.Server) process { return start(t, s) },
			fate:  zktest.Delay(time.Second), patience: 2 * time.Second,
		},
		"given up": {
			begin: func(t *testing.T, s *zktest.Server) process { p, _ := attach(t, s); return p },
			fate:  zktest.Cut, patience: time.Millisecond,
		},
	}, func(t *testing.T, s *zktest.Server, c row) {
		n := c.begin(t, s).writing().acquire(t)
		conn := raw(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		start(t, s).reading().queue(ctx)
		awaitWatch()
		told := n.RevokeRequested()
		synctest.Wait() // now the read of the queue with which it begins is done
		asked := func(f *zktest.Frame) bool { return shares(f) && f.Dir == zktest.Request }
		strike(s, 1, asked, func(*zktest.Frame) zktest.Action {
			go func() {
				conn.Set(n.Path(), []byte("__REVOKE__"), -1)
				cancel()
			}()
			return c.fate
		})
		wantErr(t, "Share", n.Share(within(t, c.patience)), context.DeadlineExceeded)
		synctest.Wait()
		need.That(t, "the holder does not know of the request", closed(told))
		conn.Delete(n.Path(), -1)
		synctest.Wait()
		wantErr(t, "after the deletion", n.Err(), second.ErrLost)
	})
}

// The node of a short hold is not watched. The writer learns of the request because the server refuses the transaction of Share. The
// reader's node has the request, and still says who the reader is.
func TestAWriterThatHasJustBeenAskedIsSharedAtOnceAndStillAsked(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s, zknode.WithKazoo()).writing().acquire(t)
		need.Get(raw(t, s).Set(n.Path(), []byte("__REVOKE__"), -1))(t)
		names := s.Children(path)
		start(t, s).reading().queue(t.Context())
		begun := time.Now()
		need.OK(t, n.Share(t.Context()))
		wantWithin(t, timeout/12, "Share", begun)
		for i, name := range names {
			data, _, _ := s.Get(path + "/" + zkqueue.AsReader(name, i))
			need.Equal(t, name+" says "+string(data), zkqueue.Asked(data), i == 0)
			var reader zkqueue.Contender
			reader.Take(data, new(zk.Stat))
			need.Equal(t, "process", reader.PID, os.Getpid())
		}
	})
}

// Share waits for a guarded write. If the node was given up in that time, Share fails and changes nothing.
func TestNothingIsSharedThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: 100 * time.Millisecond})
		n := start(t, s).writing().acquire(t)
		r := start(t, s).reading().queue(t.Context())
		time.Sleep(time.Second)
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				need.That(t, c.Path+" was made", c.Op != "create" || !strings.Contains(c.Path, "__READ__"))
			}
		})
		go n.Share(t.Context())
		time.Sleep(150 * time.Millisecond) // now the answer to the read of Share is on its way
		go n.Multi(t.Context(), write("/a"))
		time.Sleep(100 * time.Millisecond)
		n.Release()
		r.await(t)
		r.granted(t)
		time.Sleep(time.Second)
	})
}

func TestNothingIsSharedForACallerWhoHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		start(t, s).reading().queue(t.Context())
		synctest.Wait()
		for _, name := range s.Children(path) {
			n.ShareForNobody(name)
		}
		need.That(t, "shared", !n.Shared() && s.Exists(n.Path()))
	})
}

// The client may not know for a long time whether Share has replaced the node. Heartbeats do not wait for that.
func TestTheHeartbeatGoesOnWhileSomebodyShares(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		r := start(t, s).reading().queue(t.Context())
		var mu sync.Mutex
		lost, beats, lifted := false, 0, false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case f.Session != p.session || lifted:
			case shares(f) && f.Dir == zktest.Reply && !lost:
				lost = true
				return zktest.Cut
			case f.Op == "getChildren2" && f.Dir == zktest.Request && lost:
				return zktest.Throttled
			case f.Op == "sync" && f.Dir == zktest.Request && f.Path == "/":
				beats++
			}
			return zktest.Pass
		})
		d := sharing(t.Context(), n)
		time.Sleep(3 * timeout)
		mu.Lock()
		need.That(t, fmt.Sprintf("%d heartbeats in %v", beats, 3*timeout), beats >= 20 && lost)
		lifted = true
		mu.Unlock()
		wantErr(t, "Err", n.Err(), nil)
		need.That(t, "shared before the answer is known", d.waiting())
		time.Sleep(2 * time.Second)
		d.granted(t)
		r.granted(t)
		need.That(t, "not shared", n.Shared())
	})
}

// A downgrade gives the node a new name. If the client does not know which name a lost node has, Release sends no request for it.
func TestReleaseOfALostNodeAsksForNothingUnlessItsNameIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		r := start(t, s).reading().queue(t.Context())
		directions := []zktest.Direction{zktest.Request, zktest.Reply}
		strike(s, 1, answersShare, func(*zktest.Frame) zktest.Action {
			mute(s, p, directions...)
			return zktest.Cut
		})
		wantErr(t, "Share", n.Share(t.Context()), second.ErrLost)
		for _, d := range directions {
			s.Unmute(p.session, d)
		}
		for end := time.Now().Add(timeout); p.Err() != nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		wantErr(t, "the connection", p.Err(), nil)
		s.Freeze()
		begun := time.Now()
		wantErr(t, "Release", n.Release(), second.ErrLost)
		wantWithin(t, 0, "Release, which has nothing to ask the server for,", begun)
		s.Unfreeze()
		r.granted(t).Release()
		time.Sleep(timeout)
		wantEmpty(t, s)
	})
}

// If a node was given up and its removal waits for the result of a Share, only Close can end that Share.
func TestCloseEndsAShareWhoseAnswerIsLookedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		start(t, s).reading().queue(t.Context())
		strike(s, 1, answersShare, func(*zktest.Frame) zktest.Action {
			go n.Release()
			time.Sleep(time.Millisecond)
			s.Member(addr).Refuse()
			return zktest.Cut
		})
		d := sharing(t.Context(), n)
		time.Sleep(time.Second)
		begun := time.Now()
		wantErr(t, "Close", p.Close(), nil)
		wantWithin(t, 3*time.Second, "Close", begun)
		wantErr(t, "Share", d.failed(t), second.ErrReleased)
	})
}
