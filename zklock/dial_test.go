package zklock_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The gate works with all stores. Therefore its packages must not import any of them.
func TestEngineKnowsNoStore(t *testing.T) {
	out := need.Get(exec.Command("go", "list", "-deps", "../tier", "../election").Output())(t)
	for _, pkg := range strings.Fields(string(out)) {
		need.That(t, "tier or election imports "+pkg, !strings.Contains(pkg, "/zk"))
	}
}

func TestDialRefusesBadArgumentsByName(t *testing.T) {
	for name, c := range map[string]struct {
		connect string
		option  tier.RegistryOption
	}{
		"it is empty; want host:port": {"", tier.WithStrictOrder()},
		"hand-off budget 0s":          {"127.0.0.1", tier.WithHandOff(0)},
		"release timeout -1s":         {"127.0.0.1", tier.WithReleaseTimeout(-time.Second)},
		"linger -1ns":                 {"127.0.0.1", tier.WithLinger(-1)},
		"nil dial":                    {"127.0.0.1", zklock.WithDialContext(nil)},
		"option of type <nil>":        {"127.0.0.1", nil},
	} {
		locks, err := zklock.Dial(need.Within(t, 3*time.Second), c.connect, c.option)
		need.That(t, fmt.Sprintf("got %v, %v; want an error with %q", locks, err, name),
			err != nil && strings.Contains(err.Error(), name) && locks == nil)
	}
}

func dial(t *testing.T, srv *zktest.Server, connect string, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	locks := need.Get(zklock.Dial(t.Context(), connect, append(opts, zklock.WithDialContext(srv.DialContext))...))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func hold(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	return need.Get(mu.Acquire(need.Within(t, time.Minute)))(t)
}

// If the server does not answer, Release waits no longer than the release timeout.
func TestReleaseTimeoutBoundsARelease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := hold(t, dial(t, srv, "127.0.0.1:2181", tier.WithReleaseTimeout(time.Second/2)).Mutex("/locks/a"))
		srv.Freeze()
		begun := time.Now()
		h.Release()
		need.Equal(t, "Release took", time.Since(begun), time.Second/2)
		srv.Unfreeze()
	})
}

// The path in the connect string is put in front of each lock path. Two processes with different connect strings may therefore use the same
// lock under different paths.
func TestPathOfTheConnectStringIsAboveAllOthers(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		below, whole := dial(t, srv, "127.0.0.1:2181/app/a"), dial(t, srv, "127.0.0.1:2181/")
		h := hold(t, below.Mutex("/lock"))
		locktest.WantErr(t, "TryAcquire of the same path", need.ErrOf(whole.Mutex("/app/a/lock").TryAcquire(t.Context())), tier.ErrLocked)
		queue := need.Get(below.Mutex("/lock").Contenders(t.Context()))(t)
		need.That(t, fmt.Sprintf("contenders: %v, want the holder", queue), len(queue) == 1 && queue[0].Token == h.Token())
		node := waittest.Grant(h).(interface{ Path() string })
		need.That(t, node.Path()+" is not below", strings.HasPrefix(node.Path(), "/lock/"))
		need.Equal(t, "the path of the hold", h.Path(), "/lock")
		results, err := zklock.Multi(t.Context(), h,
			&zk.CreateRequest{Path: "/data", Data: []byte("a"), Acl: zk.WorldACL(zk.PermAll)},
			&zk.CheckVersionRequest{Path: "/data", Version: 0},
			&zk.SetDataRequest{Path: "/data", Data: []byte("b"), Version: 0},
			&zk.CreateRequest{Path: "/gone", Acl: zk.WorldACL(zk.PermAll)},
			&zk.DeleteRequest{Path: "/gone", Version: -1})
		need.That(t, fmt.Sprintf("Multi: got %+v, %v", results, err), err == nil && len(results) == 5 && results[0].String == "/data")
		data, _, _ := srv.Get("/app/a/data")
		need.Equal(t, "/app/a/data", string(data), "b")
		locktest.WantErr(t, "Release", h.Release(), nil)
		need.List(t, "left", srv.Children("/app/a"), "data", "lock")
	})
}

func TestGuardedWritesStayBelowThePathOfTheConnectString(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		h := hold(t, dial(t, srv, "127.0.0.1:2181/app").Mutex("/lock"))
		for _, path := range []string{"", "lication"} { // a path without a leading slash must not get around that
			_, err := zklock.Multi(t.Context(), h, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
			need.That(t, "created "+path, err != nil)
			_, err = zklock.Multi(t.Context(), h, &zk.SetDataRequest{Path: path, Data: []byte("x"), Version: -1})
			need.That(t, "set "+path, err != nil)
		}
		need.That(t, "written outside", !srv.Exists("/application"))
		need.Get(zklock.Multi(t.Context(), h, &zk.SetDataRequest{Path: "/", Data: []byte("top"), Version: -1}))(t)
		data, _, _ := srv.Get("/app")
		need.Equal(t, "/app", string(data), "top")
		results, err := zklock.Multi(t.Context(), h,
			&zk.CreateRequest{Path: "/", Flags: zk.FlagSequence, Acl: zk.WorldACL(zk.PermAll)})
		need.That(t, fmt.Sprintf("create a numbered child of /: got %+v, %v", results, err),
			err == nil && strings.HasPrefix(results[0].String, "/0") && len(results[0].String) == len("/0000000001"))
	})
}

func TestMultiChecksAllLocksOfABundle(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks, other := dial(t, srv, "127.0.0.1:2181"), dial(t, srv, "127.0.0.1:2181")
		operator := hold(t, other.Mutex("/operator"))
		need.Get(zklock.Multi(t.Context(), operator, &zk.CreateRequest{Path: "/data", Acl: zk.WorldACL(zk.PermAll)}))(t)
		waittest.Guarded{
			Write: func(g tier.Guard) error {
				_, err := zklock.Multi(t.Context(), g, &zk.SetDataRequest{Path: "/data", Version: -1})
				return err
			},
			Count: func() int {
				_, stat, _ := srv.Get("/data")
				return int(stat.Version)
			},
			Break: func(path string) {
				need.Get(zklock.Multi(t.Context(), operator, &zk.DeleteRequest{Path: path + "/" + srv.Children(path)[0], Version: -1}))(t)
			},
		}.ChecksAllLocks(t, locks, other)
	})
}

func TestLockPathMayNotBeTooLongTogetherWithThatOfTheConnectString(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := dial(t, srv, "127.0.0.1:2181/app")
		need.WantErr(t, "Acquire", need.ErrOf(locks.Mutex("/"+strings.Repeat("x", 1020)).Acquire(t.Context())), zk.ErrInvalidPath)
	})
}

func TestMultiRefusesALockOfAnotherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := tier.New(memory.NewServer().Dial("p", time.Minute, nil))
		defer locks.Close()
		h := hold(t, locks.Mutex("/a"))
		need.WantMention(t, need.ErrOf(zklock.Multi(t.Context(), h)), "/a: this lock is not on ZooKeeper")
		locktest.WantErr(t, "Release", h.Release(), nil)
	})
}
