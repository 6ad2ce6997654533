package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// kazooContender is the pattern that kazoo uses by default to find contenders (kazoo 2.8, recipe/lock.py:112).
var kazooContender = regexp.MustCompile(`(?:__lock__)(-?\d{10})$`)

func bridge(t *testing.T, s *zktest.Server, opts ...zknode.Option) process {
	t.Helper()
	return start(t, s, append(opts, zknode.WithKazoo())...)
}

// The function pairs returns the queue as pairs: the first znode, and the znode for kazoo. It fails the test if the queue has any other
// children.
func pairs(t *testing.T, s *zktest.Server) (list [][2]string) {
	t.Helper()
	names := s.Children(path)
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	need.Must(t, fmt.Sprintf("queue is not in pairs: %q", names), len(names)%2 == 0)
	for pair := range slices.Chunk(names, 2) {
		mutex, kazoo := pair[0], pair[1]
		need.Must(t, fmt.Sprintf("no pair: %q", pair),
			!kazooContender.MatchString(mutex) && kazooContender.MatchString(kazoo) && mutex[:40] == kazoo[:40])
		list = append(list, [2]string{path + "/" + mutex, path + "/" + kazoo})
	}
	return list
}

func TestBridgedNodeIsTwoZnodesOfOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		p.acquire(t).Release() // creates the parents
		changes := 0
		s.OnChange(func(zktest.View, []zktest.Change) { changes++ })
		tr := record(s)
		n := p.acquire(t)
		need.List(t, "sent to acquire", tr.take(), "multi", "getChildren2")
		need.Equal(t, "transactions", changes, 1)
		pair := pairs(t, s)[0]
		for _, znode := range pair {
			_, stat, _ := s.Get(znode)
			need.Equal(t, znode+": session and czxid", [2]int64{stat.EphemeralOwner, stat.Czxid}, [2]int64{p.session, n.Token()})
		}
		need.Equal(t, "Path", n.Path(), pair[0])
		// Curator does not know this form of a name, and compares it as a whole with the numbers of other names.
		need.AtLeast(t, "the name, which sorts behind sequence numbers", pair[1][len(path)+1:], "9999999999")
		wantErr(t, "Release", n.Release(), nil)
		need.List(t, "sent to release", tr.take(), "multi")
		need.Equal(t, "transactions", changes, 2)
		wantEmpty(t, s)
		need.Equal(t, "watches, and nodes to reap", [2]int{s.Watches(), p.Reaping()}, [2]int{})
	})
}

func TestBridgedNodeIsContendedByOthersAloneAndRequeuedInOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s).acquire(t)
		need.That(t, "contended, although no other process is there", !contended(n))
		next := bridge(t, s).queue(t.Context())
		need.That(t, "not contended, although another process waits", contended(n))
		changes := 0
		s.OnChange(func(zktest.View, []zktest.Change) { changes++ })
		again := submit(func() (*zknode.Node, error) { return n.Requeue(t.Context()) })
		need.Equal(t, "transactions", changes, 1)
		need.Len(t, "pairs in the queue", pairs(t, s), 2)
		need.That(t, "the new one does not wait", again.waiting())
		next.granted(t).Release()
		need.AtLeast(t, "the next token", again.granted(t).Token(), next.node.Token()+1)
		again.node.Release()
		wantEmpty(t, s)
	})
}

// One of the two znodes is deleted before the client reads it. The lock must not be granted.
func TestBridgedLockIsNotGrantedBeforeBothZnodesAreVerified(t *testing.T) { // I7
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		p, conn := bridge(t, s), raw(t, s)
		p.acquire(t).Release()
		marker := []string{"-lock-", "-__lock__"}[i]
		looks := func(f *zktest.Frame) bool {
			return f.Op == "getData" && f.Dir == zktest.Request && strings.Contains(f.Path, marker)
		}
		strike(s, 1, looks, func(f *zktest.Frame) zktest.Action {
			time.AfterFunc(time.Millisecond, func() { conn.Delete(f.Path, -1) })
			return zktest.Throttled
		})
		n := p.acquire(t)
		time.Sleep(beat / 2)
		got := pairs(t, s)
		need.That(t, fmt.Sprintf("queue: got %q, want %s alone", got, n.Path()), len(got) == 1 && got[0][0] == n.Path())
		wantErr(t, "Err", n.Err(), nil)
		n.Release()
		wantEmpty(t, s)
	})
}

// kazoo fails if the content of a node is not UTF-8. The znode for kazoo therefore always contains a description.
func TestZnodeForKazooIsADescriptionWhateverTheData(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s, zknode.WithLabel("mine"))
		n := acquire(t, lockAt(t, p.Client, path, zknode.NodeData([]byte{0xff})))
		pair := pairs(t, s)[0]
		need.Equal(t, pair[0], content(s, pair[0]), "\xff")
		need.That(t, pair[1]+" is not UTF-8", utf8.ValidString(content(s, pair[1])))
		need.Has(t, pair[1], content(s, pair[1]), `"label":"mine"`)
		n.Release()
	})
}

// eitherZnode runs f twice: for the loss of the first znode of a pair, and for the loss of the second.
func eitherZnode(t *testing.T, f func(t *testing.T, s *zktest.Server, i int)) {
	t.Helper()
	each(t, map[string]int{"first": 0, "second": 1}, f)
}

// eachZnode runs f for the znode of a plain node, and for each of the two znodes of a pair.
func eachZnode(t *testing.T, f func(t *testing.T, s *zktest.Server, p process, i int)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *zktest.Server) { f(t, s, start(t, s), 0) })
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) { f(t, s, bridge(t, s), i) })
}

func TestDeletionOfEitherZnodeIsALossAndTheOtherGoesSoon(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		awaitWatch()
		conn, tr := raw(t, s), record(s) // tr records what the operator sends and what the processes send
		remove(t, conn, znodesOf(s, n)[i])
		time.Sleep(100 * time.Millisecond)
		need.List(t, "sent, by the operator and of the other znode", tr.take(), "delete", "delete")
		wantErr(t, "Err", n.Err(), second.ErrLost)
		next.granted(t).Release()
		wantErr(t, "Release", n.Release(), second.ErrLost)
		wantEmpty(t, s)
	})
}

// znodesOf returns the znodes that the node n consists of.
func znodesOf(s *zktest.Server, n *zknode.Node) (znodes []string) {
	for _, name := range s.Children(path) {
		if znode := path + "/" + name; znode[:len(path)+41] == n.Path()[:len(path)+41] {
			znodes = append(znodes, znode)
		}
	}
	return znodes
}

func TestBothZnodesDeletedTogetherAreNotDeletedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := bridge(t, s)
		n := p.acquire(t)
		awaitWatch()
		conn, tr, znodes := raw(t, s), record(s), znodesOf(s, n)
		_, err := conn.Multi(&zk.DeleteRequest{Path: znodes[0], Version: -1}, &zk.DeleteRequest{Path: znodes[1], Version: -1})
		wantErr(t, "the deletion", err, nil)
		time.Sleep(100 * time.Millisecond)
		wantErr(t, "Release", n.Release(), second.ErrLost)
		need.List(t, "sent, by the operator alone", tr.take(), "multi")
	})
}

// A waiter that leaves deletes both of its znodes in one transaction. It does not read one of them when it learns that the other one is
// gone.
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
		need.List(t, "sent, to come and to go", sent, "multi", "multi")
	})
}

// The holder does not know yet that a znode is gone. The server has to refuse the guarded write and report the loss at the release.
func TestGuardAndReleaseNoticeThatAZnodeIsGone(t *testing.T) {
	eachZnode(t, func(t *testing.T, s *zktest.Server, p process, i int) {
		n := p.acquire(t)
		if results, err := n.Multi(t.Context(), write("/a")); err != nil || len(results) != 1 || results[0].String != "/a" {
			t.Errorf("Multi while held: got %+v, %v", results, err)
		}
		conn := raw(t, s)
		meet(s, pushed, zktest.Drop)
		remove(t, conn, znodesOf(s, n)[i])
		wantErr(t, "knows already", n.Err(), nil)
		_, err := n.Multi(t.Context(), write("/b"))
		wantErr(t, "Multi", err, second.ErrLost)
		need.That(t, fmt.Sprintf("written, or perhaps, without the lock: %v", err), !s.Exists("/b") && !errors.Is(err, second.ErrUnknown))
		wantErr(t, "Release", n.Release(), second.ErrLost)
		time.Sleep(time.Second)
		wantEmpty(t, s)
		need.Equal(t, "nodes still to be deleted", p.Reaping(), 0)
	})
}

// If the watches are lost, the read in a heartbeat still finds the deletion.
func TestHeartbeatNoticesThatAZnodeIsGone(t *testing.T) {
	eachZnode(t, func(t *testing.T, s *zktest.Server, p process, i int) {
		n, conn := p.acquire(t), raw(t, s)
		meet(s, pushed, zktest.Drop)
		remove(t, conn, znodesOf(s, n)[i])
		deleted := time.Now()
		awaitLoss(t, n)
		wantWithin(t, beat, "to notice", deleted)
	})
}

func TestRequeueOfAPairWithoutOneOfItsZnodesLeavesNothing(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		n := bridge(t, s).acquire(t)
		conn, znode := raw(t, s), znodesOf(s, n)[i]
		strike(s, 1, is("multi", zktest.Request), func(*zktest.Frame) zktest.Action {
			remove(t, conn, znode)
			return zktest.Pass
		})
		next := need.Get(n.Requeue(within(t, time.Hour)))(t)
		time.Sleep(time.Second)
		got := pairs(t, s)
		need.That(t, fmt.Sprintf("queue: got %q, want %s alone", got, next.Path()), len(got) == 1 && got[0][0] == next.Path())
		next.Release()
		wantEmpty(t, s)
	})
}

// The answer to a create is lost, and an operator deletes one of the two znodes before the client looks for them. The client must not adopt
// the other one.
func TestHalfAPairIsNotAdopted(t *testing.T) {
	eitherZnode(t, func(t *testing.T, s *zktest.Server, i int) {
		p, conn := bridge(t, s), raw(t, s)
		p.acquire(t).Release()
		meetOnce(s, is("multi", zktest.Reply), zktest.Cut)
		var once sync.Once
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			if len(changes) == 2 && changes[i].Op == "create" {
				once.Do(func() { go conn.Delete(changes[i].Path, -1) })
			}
		})
		n := p.acquire(t)
		time.Sleep(time.Second)
		got := pairs(t, s)
		need.That(t, fmt.Sprintf("queue: got %q, want %s alone", got, n.Path()), len(got) == 1 && got[0][0] == n.Path())
		wantErr(t, "Release", n.Release(), nil)
		wantEmpty(t, s)
	})
}
