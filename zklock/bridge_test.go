package zklock_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// throttled is how a server that has too much to do refuses a request (KeeperException.Code.THROTTLEDOP).
const throttled zktest.Code = -127

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
		got, want := tr.take(), []zktest.Op{zktest.OpMulti, zktest.OpGetChildren2}
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
		if got, want := tr.take(), []zktest.Op{zktest.OpMulti}; !slices.Equal(got, want) || changes != 2 {
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

func TestBridgedAndPlainProcessesTakeTurns(t *testing.T) { // I1 I6
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var queue []*request
		for i := range 6 {
			queue = append(queue, []func(*testing.T, *zktest.Server, ...zklock.Option) process{bridge, start}[i%4/2](t, s).queue(t.Context()))
		}
		for i, r := range queue {
			n := r.granted(t)
			for _, later := range queue[i+1:] {
				if !later.waiting() {
					t.Fatal("two owners")
				}
			}
			if err := n.Release(); err != nil {
				t.Error(err)
			}
		}
		wantEmpty(t, s)
	})
}

func TestHandOverFromABridgedNodeTakesNoRead(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := bridge(t, s).acquire(t)
		r := bridge(t, s).queue(t.Context())
		tr := record(s)
		n.Release()
		r.granted(t)
		if got, want := tr.take(), []zktest.Op{zktest.OpMulti}; !slices.Equal(got, want) {
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
			if c.Kind != zklock.KindTierlock {
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
			if f.Op == zktest.OpGetData && f.Stage == zktest.Request && strings.Contains(f.Path, marker) {
				once.Do(func() {
					fate = zktest.Error(throttled)
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
