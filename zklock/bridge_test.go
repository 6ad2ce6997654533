package zklock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// kazooContender is how default kazoo finds its contenders (kazoo 2.8, recipe/lock.py:112).
var kazooContender = regexp.MustCompile(`(?:__lock__)(-?\d{10})$`)

func bridge(t *testing.T, s *zktest.Server, opts ...zklock.Option) process {
	t.Helper()
	return start(t, s, append(opts, zklock.WithKazoo())...)
}

// pairs returns the queue as (znode for all, znode for kazoo), and fails if it has anything else.
func pairs(t *testing.T, s *zktest.Server) (list [][2]string) {
	t.Helper()
	names := s.Children(path)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	if len(names)%2 != 0 {
		t.Fatalf("queue is not in pairs: %q", names)
	}
	for pair := range slices.Chunk(names, 2) {
		mutex, kazoo := pair[0], pair[1]
		if kazooContender.MatchString(mutex) || !kazooContender.MatchString(kazoo) || mutex[:40] != kazoo[:40] {
			t.Fatalf("no pair: %q", pair)
		}
		list = append(list, [2]string{path + "/" + mutex, path + "/" + kazoo})
	}
	return list
}

func TestBridgedNodeIsTwoZnodesOfOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		p.acquire(t).Release() // makes the parents
		changes := 0
		s.OnChange(func(zktest.View, []zktest.Change) { changes++ })
		tr := record(s)
		n := p.acquire(t)
		got, want := tr.take(), []string{"multi", "getChildren2"}
		if !slices.Equal(got, want) || changes != 1 {
			t.Errorf("Acquire: got %v and %d transactions, want %v and 1", got, changes, want)
		}
		pair := pairs(t, s)[0]
		for _, znode := range pair {
			if _, stat, _ := s.Get(znode); stat.EphemeralOwner != p.session || stat.Czxid != n.Token() {
				t.Errorf("%s: got %+v, want session %#x, czxid %d", znode, stat, p.session, n.Token())
			}
		}
		if n.Path() != pair[0] {
			t.Errorf("Path: got %s, want %s", n.Path(), pair[0])
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		if got, want := tr.take(), []string{"multi"}; !slices.Equal(got, want) || changes != 2 {
			t.Errorf("Release: got %v and %d transactions, want %v and 1", got, changes-1, want)
		}
		if wantEmpty(t, s); s.Watches() != 0 || p.Reaping() != 0 {
			t.Errorf("left: %d watches, %d nodes to reap", s.Watches(), p.Reaping())
		}
	})
}

// Curator compares the whole of a name that it does not know with the numbers of those it knows.
func TestCuratorDoesNotTakeTheZnodeForKazooForAPredecessor(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		p.acquire(t)
		if name := pairs(t, s)[0][1][len(path)+1:]; name < "9999999999" {
			t.Errorf("%s sorts before a sequence number", name)
		}
	})
}

func TestHandOverFromABridgedNodeTakesNoRead(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s).acquire(t)
		r := bridge(t, s).queue(t.Context())
		tr := record(s)
		n.Release()
		r.granted(t)
		if got, want := tr.take(), []string{"multi"}; !slices.Equal(got, want) {
			t.Errorf("sent: %v, want %v", got, want)
		}
	})
}

func TestBridgedNodeIsNotContestedByItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s).acquire(t)
		contested := n.Contested()
		time.Sleep(timeout)
		select {
		case <-contested:
			t.Error("contested, though nobody else is there")
		default:
		}
		bridge(t, s).queue(t.Context())
		select {
		case <-contested:
		default:
			t.Error("not contested, though somebody waits")
		}
	})
}

func TestTryAcquireOfABridgedLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		n, err := p.lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, rival := range []process{start(t, s), bridge(t, s)} {
			_, err := rival.lock.TryAcquire(t.Context())
			wantErr(t, "TryAcquire", err, zklock.ErrLocked)
		}
		if got := len(pairs(t, s)); got != 1 {
			t.Errorf("%d pairs in the queue, want the holder's alone", got)
		}
		n.Release()
		wantEmpty(t, s)
	})
}

func TestContendersShowAPairAsOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s, zklock.WithLabel("0")).acquire(t)
		start(t, s, zklock.WithLabel("1")).queue(t.Context())
		bridge(t, s, zklock.WithLabel("2")).queue(t.Context())
		queue, err := start(t, s).lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var labels string
		for _, c := range queue {
			labels += c.Label
			if c.Kind != zkqueue.KindTierlock {
				t.Errorf("got a %q: %+v", c.Kind, c)
			}
		}
		if labels != "012" || path+"/"+queue[0].Node != n.Path() || queue[0].Token != n.Token() {
			t.Errorf("got %+v, want one each of 0, 1 and 2", queue)
		}
	})
}

func TestBridgedRequeueIsOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s).acquire(t)
		next := bridge(t, s).queue(t.Context())
		changes := 0
		s.OnChange(func(zktest.View, []zktest.Change) { changes++ })
		again := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
		if changes != 1 {
			t.Errorf("%d transactions, want 1", changes)
		}
		if got := len(pairs(t, s)); got != 2 || !again.waiting() {
			t.Fatalf("%d pairs in the queue, want 2 with the new one waiting", got)
		}
		next.granted(t).Release()
		if m := again.granted(t); m.Token() <= next.node.Token() {
			t.Errorf("token %d after %d", m.Token(), next.node.Token())
		}
		again.node.Release()
		wantEmpty(t, s)
	})
}

// The look at one of the two comes late, and then it is gone.
func TestBridgedLockIsNotGrantedBeforeBothZnodesAreVerified(t *testing.T) { // I7
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		p, conn := bridge(t, s), raw(t, s)
		p.acquire(t).Release()
		marker := []string{"-lock-", "-__lock__"}[i]
		var once sync.Once
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			fate := zktest.Pass
			if f.Op == "getData" && f.Dir == zktest.Request && strings.Contains(f.Path, marker) {
				once.Do(func() {
					fate = zktest.Throttled
					time.AfterFunc(time.Millisecond, func() { conn.Delete(f.Path, -1) })
				})
			}
			return fate
		})
		n := p.acquire(t)
		time.Sleep(beat / 2)
		if got := pairs(t, s); len(got) != 1 || got[0][0] != n.Path() {
			t.Errorf("queue: got %q, want %s alone", got, n.Path())
		}
		if err := n.Err(); err != nil {
			t.Error(err)
		}
		n.Release()
		wantEmpty(t, s)
	})
}

// kazoo cannot live with content that is not UTF-8.
func TestZnodeForKazooIsADescriptionWhateverTheData(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s, zklock.WithLabel("mine"))
		lock, err := p.Client.Lock(p.lock.Path(), zklock.NodeData([]byte{0xff}))
		if err != nil {
			t.Fatal(err)
		}
		n, err := lock.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pair := pairs(t, s)[0]
		if data, _, _ := s.Get(pair[0]); string(data) != "\xff" {
			t.Errorf("%s: got %q, want the data", pair[0], data)
		}
		if data, _, _ := s.Get(pair[1]); !utf8.Valid(data) || !strings.Contains(string(data), `"label":"mine"`) {
			t.Errorf("%s: got %q, want a description", pair[1], data)
		}
		n.Release()
	})
}

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
		if got, want := tr.take(), []string{"delete", "delete"}; !slices.Equal(got, want) {
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
		if got, want := tr.take(), []string{"multi"}; !slices.Equal(got, want) {
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
		var sent []string
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			if f.Op == "event" && strings.Contains(f.Path, "__lock__") {
				return zktest.Drop
			}
			if f.Dir == zktest.Request && !heartbeat(f) && (f.Op == "multi" || f.Op == "delete") {
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
		if want := []string{"multi", "multi"}; !slices.Equal(sent, want) {
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
			if f.Op == "event" {
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
			if f.Op == "event" {
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
			if f.Op == "multi" && f.Dir == zktest.Request && !deleted {
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

func TestPairOfACreateWithoutAReplyIsReapedIfUnwanted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		p.acquire(t).Release()
		on(s, "multi", zktest.Reply, zktest.Cut)
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
		on(s, "multi", zktest.Reply, zktest.Cut)
		var once sync.Once
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			if len(changes) == 2 && changes[i].Op == "create" {
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
			if f.Session == p.session && f.Dir == zktest.Reply && f.First == "create" && !lost.Swap(true) {
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
