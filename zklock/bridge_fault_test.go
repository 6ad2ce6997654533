package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// eitherZnode runs f for the loss of the one znode of a pair and of the other.
func eitherZnode(t *testing.T, f func(t *testing.T, s *zktest.Server, i int)) {
	t.Helper()
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) { f(t, s, i) })
		})
	}
}

func TestDeletionOfEitherZnodeIsALossAndTheOtherGoesSoon(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		awaitWatch()
		conn, tr := raw(t, s), record(s) // what is sent by the operator, and otherwise
		if err := conn.Delete(pairsOf(t, s, n)[i], -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if got, want := tr.take(), []zktest.Op{zktest.OpDelete, zktest.OpDelete}; !slices.Equal(got, want) {
			t.Errorf("sent: %v, want one delete by the operator and one of the other znode", got)
		}
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		next.granted(t).Release()
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		wantEmpty(t, s)
	})
}

// pairsOf returns the znodes of a node.
func pairsOf(t *testing.T, s *zktest.Server, n *zklock.Node) []string {
	t.Helper()
	var znodes []string
	for _, name := range s.Children(path) {
		if znode := path + "/" + name; znode[:len(path)+41] == n.Path()[:len(path)+41] {
			znodes = append(znodes, znode)
		}
	}
	if len(znodes) != 2 {
		t.Fatalf("%s has the znodes %q", n.Path(), znodes)
	}
	return znodes
}

func TestBothZnodesDeletedTogetherAreNotDeletedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		n := p.acquire(t)
		awaitWatch()
		conn, tr, znodes := raw(t, s), record(s), pairsOf(t, s, n)
		if _, err := conn.Multi(&zk.DeleteRequest{Path: znodes[0], Version: -1}, &zk.DeleteRequest{Path: znodes[1], Version: -1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		if got, want := tr.take(), []zktest.Op{zktest.OpMulti}; !slices.Equal(got, want) {
			t.Errorf("sent: %v, want the operator's %v alone", got, want)
		}
	})
}

// Whoever leaves knows that both znodes go. The end of the one is no reason to look after the other.
func TestBridgedWaiterLeavesWithOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		start(t, s).acquire(t)
		p := bridge(t, s)
		var mu sync.Mutex
		var sent []zktest.Op
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			if f.Stage == zktest.Event && strings.Contains(f.Path, "__lock__") {
				return zktest.Drop
			}
			if f.Stage == zktest.Request && !heartbeat(f) && (f.Op == zktest.OpMulti || f.Op == zktest.OpDelete) {
				sent = append(sent, f.Op)
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithCancel(t.Context())
		r := p.queue(ctx)
		cancel()
		r.failed(t)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []zktest.Op{zktest.OpMulti, zktest.OpMulti}; !slices.Equal(sent, want) {
			t.Errorf("sent: %v, want one transaction to come and one to go", sent)
		}
	})
}

func TestDeletionOfEitherZnodeSendsAWaiterToTheTail(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := start(t, s).acquire(t)
		waiter := bridge(t, s)
		r := waiter.queue(t.Context())
		queue, err := waiter.lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := start(t, s).queue(t.Context())
		var znodes []string
		for _, name := range s.Children(path) {
			if name[:40] == queue[1].Node[:40] {
				znodes = append(znodes, path+"/"+name)
			}
		}
		if err := raw(t, s).Delete(znodes[i], -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if queue, _ := waiter.lock.Contenders(t.Context()); len(queue) != 3 {
			t.Errorf("got %+v, want 3 contenders", queue)
		}
		n.Release()
		last.granted(t).Release()
		r.granted(t).Release()
		wantEmpty(t, s)
	})
}

// The holder has not heard yet that a znode is gone.
func TestGuardAndReleaseNoticeThatEitherZnodeIsGone(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		p := bridge(t, s)
		n := p.acquire(t)
		if results, err := n.Multi(t.Context(), write("/a")); err != nil || len(results) != 1 || results[0].String != "/a" {
			t.Errorf("Multi while held: got %+v, %v", results, err)
		}
		conn := raw(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := conn.Delete(pairsOf(t, s, n)[i], -1); err != nil {
			t.Fatal(err)
		}
		if err := n.Err(); err != nil {
			t.Fatalf("knows already: %v", err)
		}
		_, err := n.Multi(t.Context(), write("/b"))
		if wantErr(t, "Multi", err, zklock.ErrLost); s.Exists("/b") {
			t.Error("written without the lock")
		}
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		time.Sleep(time.Second)
		if wantEmpty(t, s); p.Reaping() != 0 {
			t.Errorf("still reaping %d", p.Reaping())
		}
	})
}

// The watches are lost: the heartbeat looks.
func TestHeartbeatNoticesThatEitherZnodeIsGone(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).acquire(t)
		conn := raw(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := conn.Delete(pairsOf(t, s, n)[i], -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * beat)
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
	})
}

func TestRequeueOfAPairWithoutOneOfItsZnodesLeavesNothing(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).acquire(t)
		conn, znode := raw(t, s), pairsOf(t, s, n)[i]
		deleted := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpMulti && f.Stage == zktest.Request && !deleted {
				deleted = true
				if err := conn.Delete(znode, -1); err != nil {
					t.Error(err)
				}
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		next, err := n.Requeue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := pairs(t, s); len(got) != 1 || got[0][0] != next.Path() {
			t.Errorf("queue: got %q, want %s alone", got, next.Path())
		}
		next.Release()
		wantEmpty(t, s)
	})
}

func TestBridgedNodeSurvivesLostReplies(t *testing.T) {
	steps := map[string]func(t *testing.T, s *zktest.Server, p process, lose func()) *zklock.Node{
		"create": func(t *testing.T, _ *zktest.Server, p process, lose func()) *zklock.Node {
			lose()
			return p.acquire(t)
		},
		"requeue": func(t *testing.T, _ *zktest.Server, p process, lose func()) *zklock.Node {
			n := p.acquire(t)
			lose()
			next, err := n.Requeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(beat)
			return next
		},
		"release": func(t *testing.T, s *zktest.Server, p process, lose func()) *zklock.Node {
			n := p.acquire(t)
			lose()
			if err := n.Release(); err != nil {
				t.Error(err)
			}
			time.Sleep(beat)
			wantEmpty(t, s)
			return p.acquire(t)
		},
	}
	for name, step := range steps {
		for _, stage := range []zktest.Stage{zktest.Request, zktest.Reply} {
			t.Run(fmt.Sprintf("%s, %v lost", name, stage), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *zktest.Server) {
					p := bridge(t, s)
					p.acquire(t).Release()
					n := step(t, s, p, func() { on(s, zktest.OpMulti, stage, zktest.Cut) })
					if got := pairs(t, s); len(got) != 1 || got[0][0] != n.Path() {
						t.Errorf("queue: got %q, want %s alone", got, n.Path())
					}
					if err := n.Release(); err != nil {
						t.Error(err)
					}
					if wantEmpty(t, s); p.Reaping() != 0 {
						t.Errorf("still reaping %d", p.Reaping())
					}
				})
			})
		}
	}
}

func TestPairOfACreateWithoutAReplyIsReapedIfUnwanted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		p.acquire(t).Release()
		on(s, zktest.OpMulti, zktest.Reply, zktest.Cut)
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

// The reply to the create is lost, and somebody deletes one of two before they are found again.
func TestHalfAPairIsNotAdopted(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		p, conn := bridge(t, s), raw(t, s)
		p.acquire(t).Release()
		on(s, zktest.OpMulti, zktest.Reply, zktest.Cut)
		var once sync.Once
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			if len(changes) == 2 && changes[i].Kind == zktest.Created {
				once.Do(func() { go conn.Delete(changes[i].Path, -1) })
			}
		})
		n := p.acquire(t)
		time.Sleep(time.Second)
		if got := pairs(t, s); len(got) != 1 || got[0][0] != n.Path() {
			t.Errorf("queue: got %q, want %s alone", got, n.Path())
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		wantEmpty(t, s)
	})
}

func TestBridgedLockOverAnAttachedConnection(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		conn := raw(t, s)
		p := attachTo(t, conn, zklock.WithKazoo())
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		if err := conn.Delete(pairsOf(t, s, n)[i], -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		next.await(t)
		next.granted(t).Release()
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		p.acquire(t).Release()
		wantEmpty(t, s)
	})
}

// Of a pair that was looked up, one has been deleted meanwhile: the other one alone keeps nobody out.
func TestHalfOfAPairIsNotTakenForANode(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := start(t, s, zklock.WithKazoo()), raw(t, s)
		p.acquire(t).Release() // makes the parents
		var lost atomic.Bool
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && f.Stage == zktest.Reply && f.First == zktest.OpCreate && !lost.Swap(true) {
				if err := conn.Delete(path+"/"+s.Children(path)[1], -1); err != nil {
					t.Error(err)
				}
				return zktest.Cut
			}
			return zktest.Pass
		})
		n := p.acquire(t)
		if pair := s.Children(path); len(pair) != 2 {
			t.Errorf("the node is %v, want a pair", pair)
		}
		n.Release()
		wantEmpty(t, s)
	})
}
