package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// ours is the content of the containers that package zknode creates.
const ours = "tierlock: a container, which goes when it is empty"

// wantNoParents fails the test unless everything above the nodes of the lock is soon deleted, either by the client or by the server.
func wantNoParents(t *testing.T, s *zktest.Server) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	need.That(t, fmt.Sprintf("/locks is left, with %q below", s.Children("/locks")), !s.Exists("/locks"))
}

// The server never deletes a container that has never had a child. An acquisition that fails, at any of its frames, must leave no such
// container.
func TestNoParentIsLeftWithoutAChild(t *testing.T) {
	troubles := map[string]func(s *zktest.Server, p process, cancel func()) zktest.Action{
		"the context ends": func(_ *zktest.Server, _ process, cancel func()) zktest.Action {
			cancel()
			return zktest.Pass
		},
		"the connection breaks and the context ends": func(_ *zktest.Server, _ process, cancel func()) zktest.Action {
			cancel()
			return zktest.Cut
		},
		"the session ends and the context, too": func(s *zktest.Server, p process, cancel func()) zktest.Action {
			cancel()
			s.Expire(p.session)
			return zktest.Pass
		},
		"the client is closed": func(_ *zktest.Server, p process, _ func()) zktest.Action {
			go p.Close()
			return zktest.Delay(100 * time.Millisecond)
		},
		"the server says that the node may not be created": func(*zktest.Server, process, func()) zktest.Action {
			return zktest.Error(zk.ErrNoAuth)
		},
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			eachFrame(t, func(t *testing.T, s *zktest.Server, nth int) bool { return acquireAmid(t, s, nth, trouble) })
		})
	}
}

// acquireAmid injects a fault at the nth frame of an acquisition. It returns false if the acquisition has fewer frames.
func acquireAmid(t *testing.T, s *zktest.Server, nth int, trouble func(*zktest.Server, process, func()) zktest.Action) bool {
	t.Helper()
	p := start(t, s)
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	defer cancel()
	struck := strike(s, nth, func(f *zktest.Frame) bool { return !heartbeat(f) }, func(f *zktest.Frame) zktest.Action {
		action := trouble(s, p, cancel)
		creates := f.Op == "create" || f.First == "create"
		if refusal := action == zktest.Error(zk.ErrNoAuth); refusal && (!creates || f.Dir != zktest.Request) {
			return zktest.Pass
		}
		return action
	})
	n, err := p.lock.Acquire(ctx)
	if err == nil {
		n.Release()
	}
	time.Sleep(timeout) // time for the client to look for the result of a lost create
	need.That(t, fmt.Sprintf("reaping %d", p.Reaping()), p.Reaping() == 0 || errors.Is(p.Err(), second.ErrClosed))
	if wantNoParents(t, s); t.Failed() {
		t.Errorf("after trouble at %s, acquired with %v", struck(), err)
	}
	return struck() != ""
}

func TestParentsThatMayNotBeUsedAreNotMade(t *testing.T) {
	each(t, map[string][]zk.ACL{
		"only to be read":   zk.WorldACL(zk.PermRead),
		"for somebody else": zk.DigestACL(zk.PermAll, "somebody", "else"),
	}, func(t *testing.T, s *zktest.Server, acl []zk.ACL) {
		p := start(t, s, zknode.WithACL(acl))
		begun := time.Now()
		err := p.queue(t.Context()).failed(t)
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, "create parent /locks/x: no CREATE permission on /locks ")
		need.That(t, "/locks is there", !s.Exists("/locks"))
		need.Equal(t, "it took", time.Since(begun), 0)
	})
}

func TestParentsArePersistentWhereTheServerKnowsNoContainers(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		refused := 0
		meet(s, func(f *zktest.Frame) bool {
			makes := f.First == "create" && f.Dir == zktest.Request
			if makes {
				refused++
			}
			return makes && refused <= 2 // twice: with one missing parent, and with two
		}, zktest.Error(zk.ErrBadArguments))
		start(t, s).acquire(t).Release()
		time.Sleep(10 * time.Minute)
		data, _, ok := s.Get(path)
		need.That(t, fmt.Sprintf("the parent: %t, with %q; want an empty one", ok, data), ok && len(data) == 0)
	})
}

// A parent that already exists is neither changed nor deleted.
func TestOnlyMissingParentsAreMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		put(t, raw(t, s), 0, "/locks")
		_, before, _ := s.Get("/locks")
		p := start(t, s)
		p.acquire(t).Release()
		time.Sleep(10 * time.Minute) // by then, the server has deleted the container
		_, after, _ := s.Get("/locks")
		after.Cversion, after.Pzxid = before.Cversion, before.Pzxid // these two fields depend on the children
		need.Equal(t, "the parent", after, before)
		need.That(t, "the container is there", !s.Exists(path))
	})
}

func TestParentsThatOthersMakeAndTakeAwayAreMadeAnewAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		times := 4
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Session != p.session || f.Dir != zktest.Request || times == 0:
			case f.First == "create" && f.Path == "/locks": // the last way of creating the path
				put(t, conn, 0, "/locks")
				times--
			case f.Op == "create" || f.First == "create":
				conn.Delete("/locks", -1)
			}
			return zktest.Pass
		})
		begun := time.Now()
		p.acquire(t).Release()
		need.Equal(t, "it took", time.Since(begun), 0)
		need.Equal(t, "times to go", times, 0)
	})
}

// The server refuses the first way of creating the path. After the second way the connection breaks, and the client has to find out whether
// the path was created.
func TestWayThatMayHaveBeenTakenIsLookedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.First == "create" && f.Path == path && f.Dir == zktest.Request:
				return zktest.Throttled
			case f.First == "create" && f.Path == "/locks" && f.Dir == zktest.Reply:
				return zktest.Cut
			}
			return zktest.Pass
		})
		p.acquire(t).Release()
	})
}

// Another process deletes the parents as soon as they are created. A TryAcquire then fails, and an Acquire keeps trying.
func TestParentsThatDoNotStayEndATryAndHoldUpAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var creates atomic.Int64
		meet(s, func(f *zktest.Frame) bool {
			return (f.Op == "create" || f.First == "create") && f.Dir == zktest.Request && creates.Add(1) < 1000
		}, zktest.Error(zk.ErrNoNode))
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoNode)
		wantMention(t, err, path, "deleted again")
		wantNoParents(t, s)
		_, err = p.lock.Acquire(within(t, time.Minute))
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, path, "deleted again")
		need.AtMost(t, "tries within a minute", creates.Load(), 300)
	})
}

func TestChrootThatIsMissingComesWithTheFirstLockAndGoesWithTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := lockAt(t, dialTo(t, s, addr+"/app/team"), path)
		need.Empty(t, "contenders before the first lock", need.Get(l.Contenders(t.Context()))(t))
		need.That(t, "/app is there before the first lock", !s.Exists("/app"))
		for _, take := range []func(context.Context) (*zknode.Node, error){l.TryAcquire, l.Acquire} {
			wantErr(t, "Release", need.Get(take(t.Context()))(t).Release(), nil)
			time.Sleep(10 * time.Minute)
			need.That(t, "/app is left", !s.Exists("/app"))
		}
	})
}

// dialTo returns a client with the given connect string.
func dialTo(t *testing.T, s *zktest.Server, connect string) *zknode.Client {
	t.Helper()
	c := need.Get(zknode.Dial(within(t, time.Minute), connect, zknode.WithSessionTimeout(timeout), zknode.WithDialContext(s.DialContext)))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestChrootThatMayNotBeMadeIsNamedWithThePermission(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/theirs")
		for _, node := range []string{"/theirs", "/"} {
			protect(t, conn, node, zk.PermAll&^zk.PermCreate)
		}
		for chroot, want := range map[string]string{
			"/app/team":    "create parent /app: no CREATE permission on / ",
			"/theirs":      "create parent /theirs/locks: no CREATE permission on /theirs ",
			"/theirs/team": "create parent /theirs/team: no CREATE permission on /theirs ",
		} {
			l := lockAt(t, dialTo(t, s, addr+chroot), path)
			for what, take := range map[string]func(*zknode.Lock, context.Context) error{"Acquire": acquireOnce, "TryAcquire": tryOnce} {
				err := take(l, t.Context())
				wantErr(t, what, err, zk.ErrNoAuth)
				wantMention(t, err, want, "WithAuth")
			}
		}
	})
}
