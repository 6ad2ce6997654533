package zknode_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The function leftovers starts a process, and creates znodes that the process will have to delete.
func leftovers(t *testing.T, s *zktest.Server, names ...string) (p process, other *zk.Conn) {
	t.Helper()
	p, other = start(t, s), raw(t, s)
	put(t, other, 0, "/old", "/new")
	for _, name := range names {
		put(t, other, 0, name)
	}
	return p, other
}

// The function deletes counts the requests to delete a znode.
func deletes(s *zktest.Server, path string) *atomic.Int64 {
	n := new(atomic.Int64)
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Dir == zktest.Request && f.Op == "delete" && f.Path == path {
			n.Add(1)
		}
		return zktest.Pass
	})
	return n
}

func TestWhatIsLeftIsTriedUntilItIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := leftovers(t, s, "/old/a", "/old/b")
		p.Leave("/old/b")
		synctest.Wait()
		need.That(t, "one that can be deleted is there", !s.Exists("/old/b") && p.Reaping() == 0)
		protect(t, other, "/old", zk.PermAll&^zk.PermDelete)
		tries := deletes(s, "/old/a")
		p.Leave("/old/a")
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 50 || n > 80 || p.Reaping() != 1 || !errors.Is(p.Stuck("/old/a"), zk.ErrNoAuth) {
			t.Errorf("%d tries in a minute, reaping %d, stuck: %v; want some sixty tries", n, p.Reaping(), p.Stuck("/old/a"))
		}
		protect(t, other, "/old", zk.PermAll)
		if time.Sleep(2 * time.Second); s.Exists("/old/a") || p.Reaping() > 0 || p.Stuck("/old/a") != nil {
			t.Errorf("there: %t, reaping %d, stuck: %v", s.Exists("/old/a"), p.Reaping(), p.Stuck("/old/a"))
		}
		n := tries.Load()
		time.Sleep(time.Minute)
		need.Equal(t, "tries after it was gone", tries.Load()-n, 0)
	})
}

// If one node cannot be deleted, the deletion of a later one must not wait for it, because that later node may block all contenders.
func TestWhatIsLeftNowDoesNotWaitForAsLongAsWhatWasLeftBefore(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := leftovers(t, s, "/old/a", "/new/a")
		protect(t, other, "/old", zk.PermAll&^zk.PermDelete)
		protect(t, other, "/new", zk.PermAll&^zk.PermDelete)
		p.Leave("/old/a")
		time.Sleep(time.Minute)
		tries := deletes(s, "/new/a")
		p.Leave("/new/a")
		time.Sleep(3 * time.Second)
		need.AtLeast(t, "tries in 3 s, whose pace begins anew", tries.Load(), 10)
	})
}

func TestReaperEndsWithItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := leftovers(t, s, "/old/a")
		protect(t, other, "/old", zk.PermAll&^zk.PermDelete)
		p.Leave("/old/a")
		time.Sleep(time.Second)
		began := time.Now()
		p.Close()
		need.Equal(t, "Close took", time.Since(began), 0)
		tries := deletes(s, "/old/a")
		p.Leave("/old/a")
		time.Sleep(time.Minute)
		need.Equal(t, "tries on a closed client", tries.Load(), 0)
	})
}

func TestNewNodesWaitWhileTheReaperIsOverwhelmed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := leftovers(t, s, "/old/a")
		protect(t, other, "/old", zk.PermAll&^zk.PermDelete)
		for range 1023 {
			p.Leave("/old/a")
		}
		need.OK(t, p.Room(t.Context()))
		p.Leave("/old/a")
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(left) })
		wantErr(t, "Acquire", need.ErrOf(p.lock.Acquire(ctx)), left)
		need.That(t, "a node was made", !s.Exists(path))
		time.AfterFunc(time.Second, func() { protect(t, other, "/old", zk.PermAll) })
		n := need.Get(p.lock.Acquire(within(t, time.Minute)))(t)
		n.Release()
		need.AtMost(t, "items when it is granted", p.Reaping(), 1023)
	})
}

// A refused release has to be repeated until it succeeds. Otherwise a permit would stay taken, or a lock held, that the process has
// forgotten.
func TestReleaseThatIsRefusedIsSentUntilItIsDone(t *testing.T) {
	permits := func(release int) func(t *testing.T, s *zktest.Server, p process) error {
		return func(t *testing.T, s *zktest.Server, p process) error {
			sem := need.Get(zknode.Tier(p.Client).Semaphore(path, 5, second.Options{}))(t)
			taken := need.Get(sem.TryAcquire(t.Context(), 4))(t)
			refuseDeletes(s)
			err := sem.Release(taken[:release])
			need.Len(t, "permits that are taken when the release is refused", s.Children(path+"/leases"), 4)
			time.AfterFunc(time.Second, func() { s.Intercept(nil) })
			time.Sleep(5 * time.Second)
			need.Len(t, "permits that are taken in the end", s.Children(path+"/leases"), 4-release)
			need.Len(t, "permits that can be had", need.Get(sem.TryAcquire(t.Context(), 1+release))(t), 1+release)
			return err
		}
	}
	each(t, map[string]func(t *testing.T, s *zktest.Server, p process) error{
		"a lock": func(t *testing.T, s *zktest.Server, p process) error {
			n := p.acquire(t)
			refuseDeletes(s)
			time.AfterFunc(time.Second, func() { s.Intercept(nil) })
			err := n.Release()
			need.OK(t, p.acquire(t).Release())
			return err
		},
		"all permits":  permits(4),
		"some permits": permits(2),
		"one permit":   permits(1),
	}, func(t *testing.T, s *zktest.Server, release func(t *testing.T, s *zktest.Server, p process) error) {
		p := start(t, s)
		wantErr(t, "Release", release(t, s, p), zk.ErrNoAuth)
		synctest.Wait() // until the reaper has the answer to its last delete
		need.Equal(t, "left to the reaper in the end", p.Reaping(), 0)
	})
}

// refuseDeletes makes the server refuse transactions that delete. All others pass.
func refuseDeletes(s *zktest.Server) {
	meet(s, func(f *zktest.Frame) bool {
		return f.Dir == zktest.Request && (f.Op == "delete" || f.First == "delete")
	}, zktest.Error(zk.ErrNoAuth))
}
