package zklock_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestAcquireMakesOneNodeOfTheSessionAndReleaseDeletesIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		if names := s.Children(path); len(names) != 1 || path+"/"+names[0] != n.Path() {
			t.Errorf("queue: got %q, want %s", names, n.Path())
		}
		if _, stat, _ := s.Get(n.Path()); stat.EphemeralOwner != p.session {
			t.Errorf("owner: got %#x, want %#x", stat.EphemeralOwner, p.session)
		}
		if err := n.Err(); err != nil {
			t.Errorf("Err while held: %v", err)
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		wantErr(t, "Err after Release", n.Err(), zklock.ErrReleased)
		wantEmpty(t, s)
	})
}

func TestUncontendedAcquireIsTwoRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release() // makes the parents
		tr := record(s)
		n := p.acquire(t)
		if got, want := tr.take(), []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2}; !slices.Equal(got, want) {
			t.Errorf("Acquire: got %v, want %v", got, want)
		}
		n.Release()
		if got, want := tr.take(), []zktest.Op{zktest.OpDelete}; !slices.Equal(got, want) {
			t.Errorf("Release: got %v, want %v", got, want)
		}
	})
}

func TestReleaseIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event { // it says that the node is gone, too
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := n.Release(); err != nil || p.Reaping() > 0 {
			t.Errorf("Release: %v, with %d nodes still to be deleted", err, p.Reaping())
		}
		tr := record(s)
		time.Sleep(timeout)
		if ops := tr.take(); len(ops) > 0 {
			t.Errorf("sent after the delete was answered: %v", ops)
		}
	})
}

func TestTryAcquireOfBusyLockIsOneRead(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		rival := start(t, s)
		tr := record(s)
		_, err := rival.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zklock.ErrLocked)
		if got, want := tr.take(), []zktest.Op{zktest.OpGetChildren2}; !slices.Equal(got, want) {
			t.Errorf("TryAcquire: got %v, want %v", got, want)
		}
		if names := s.Children(path); len(names) != 1 || path+"/"+names[0] != n.Path() {
			t.Errorf("queue: got %q, want %s alone", names, n.Path())
		}
	})
}

func TestTryAcquireOfFreeLockGrants(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, err := start(t, s).lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestTryAcquireOvertakenAfterItsReadLeavesNoNode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, rival := start(t, s), start(t, s)
		p.acquire(t).Release()
		var held *zklock.Node
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && f.Stage == zktest.Reply && f.Op == zktest.OpGetChildren2 && held == nil {
				held = rival.acquire(t)
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zklock.ErrLocked)
		synctest.Wait()
		if names := s.Children(path); len(names) != 1 || path+"/"+names[0] != held.Path() {
			t.Errorf("queue: got %q, want the rival's %s alone", names, held.Path())
		}
	})
}

func TestTryAcquireThatMayNotListTheQueueAgainLeavesNoNode(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		lists := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request {
				if lists++; lists == 2 {
					return zktest.Error(zktest.CodeNoAuth)
				}
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		wantEmpty(t, s)
	})
}

func TestReleaseTwiceSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		tr := record(s)
		wantErr(t, "second Release", n.Release(), zklock.ErrReleased)
		_, err := n.Requeue(t.Context())
		wantErr(t, "Requeue after Release", err, zklock.ErrReleased)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
	})
}

func TestTokenIsTheCzxidAndGrowsAcrossDeletionOfTheParent(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, processes := raw(t, s), []process{start(t, s), start(t, s)}
		var last int64
		for i := range 4 {
			n := processes[i%2].acquire(t)
			if _, stat, _ := s.Get(n.Path()); n.Token() != stat.Czxid {
				t.Errorf("token: got %d, want czxid %d", n.Token(), stat.Czxid)
			}
			if n.Token() <= last {
				t.Errorf("token %d after %d", n.Token(), last)
			}
			last = n.Token()
			n.Release()
			if err := conn.Delete(path, -1); err != nil { // sequence numbers start again
				t.Fatal(err)
			}
		}
	})
}

func TestEachAttemptHasANewPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		seen := make(map[string]bool)
		for range 3 {
			n := p.acquire(t)
			prefix := n.Path()[:strings.LastIndex(n.Path(), "lock-")]
			if seen[prefix] {
				t.Errorf("prefix %q used twice", prefix)
			}
			seen[prefix] = true
			n.Release()
		}
	})
}

func TestForeignChildrenDoNotStandInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		put(t, raw(t, s), 0, "/locks", path, path+"/leases", path+"/n_0000000000", path+"/0000000000",
			path+"/x-123-0000000000", path+"/_c_9-latch-0000000000", path+"/größer")
		p := start(t, s)
		n := p.acquire(t)
		n.Release()
		if n, err := p.lock.TryAcquire(t.Context()); err != nil {
			t.Error(err)
		} else {
			n.Release()
		}
	})
}

func TestQueuesBehindOtherLibrariesNodes(t *testing.T) {
	for _, name := range []string{
		"lock-", "_c_0123456789abcdef0123456789abcdef-lock-",
		"0123456789abcdef0123456789abcdef__lock__", "0123456789abcdef0123456789abcdef__rlock__",
		"_c_01234567-89ab-4def-8123-456789abcdef-__WRIT__", "_c_01234567-89ab-4def-8123-456789abcdef-__READ__",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				put(t, conn, 0, "/locks", path)
				other, err := conn.Create(path+"/"+name, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
				if err != nil {
					t.Fatal(err)
				}
				r := start(t, s).queue(t.Context())
				if time.Sleep(time.Minute); !r.waiting() {
					t.Fatalf("granted beside %s", other)
				}
				if err := conn.Delete(other, -1); err != nil {
					t.Fatal(err)
				}
				r.granted(t).Release()
			})
		})
	}
}
