package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// ours is the content of the containers that the package makes.
const ours = "tierlock: a container, which goes when it is empty"

// wantNoParents fails unless everything above the lock nodes goes, be it by the server's hand, and soon.
func wantNoParents(t *testing.T, s *zktest.Server) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	need.That(t, fmt.Sprintf("/locks is left, with %q below", s.Children("/locks")), !s.Exists("/locks"))
}

// The server never deletes a container that had no child. Whatever befalls the acquisition, at whatever frame, none of
// ours is left.
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
		for usable, acl := range map[string][]zk.ACL{
			"": zk.WorldACL(zk.PermAll), ", of a parent not to be used": zk.WorldACL(zk.PermRead),
		} {
			t.Run(name+usable, func(t *testing.T) {
				eachFrame(t, func(t *testing.T, s *zktest.Server, nth int) bool { return acquireAmid(t, s, nth, acl, trouble) })
			})
		}
	}
}

// acquireAmid makes trouble at a frame that comes for an acquisition or goes back. It reports false if there are fewer.
func acquireAmid(t *testing.T, s *zktest.Server, nth int, acl []zk.ACL, trouble func(*zktest.Server, process, func()) zktest.Action) bool {
	t.Helper()
	p := start(t, s, zklock.WithACL(acl))
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	defer cancel()
	struck := strike(s, nth, func(f *zktest.Frame) bool { return !heartbeat(f) }, func(f *zktest.Frame) zktest.Action {
		action := trouble(s, p, cancel)
		creates := f.Op == "create" || f.Op == "createContainer"
		if refusal := action == zktest.Error(zk.ErrNoAuth); refusal && (!creates || f.Dir != zktest.Request) {
			return zktest.Pass
		}
		return action
	})
	n, err := p.lock.Acquire(ctx)
	if err == nil {
		n.Release()
	}
	time.Sleep(timeout) // for a lost create to be looked up
	need.That(t, fmt.Sprintf("reaping %d", p.Reaping()), p.Reaping() == 0 || errors.Is(p.Err(), zklock.ErrClosed))
	if wantNoParents(t, s); t.Failed() {
		t.Errorf("after trouble at %s, acquired with %v", struck(), err)
	}
	return struck() != ""
}

func TestParentsThatMayNotBeUsedGoAtOnce(t *testing.T) {
	each(t, map[string][]zk.ACL{
		"only to be read":   zk.WorldACL(zk.PermRead),
		"for somebody else": zk.DigestACL(zk.PermAll, "somebody", "else"),
		"all but the last":  zk.WorldACL(zk.PermAll),
	}, func(t *testing.T, s *zktest.Server, acl []zk.ACL) {
		meet(s, func(f *zktest.Frame) bool {
			return f.Op == "create" && f.Dir == zktest.Request && s.Exists(path)
		}, zktest.Error(zk.ErrNoAuth))
		p, log := startLogged(t, s, zklock.WithACL(acl))
		begun := time.Now()
		wantErr(t, "Acquire", p.queue(t.Context()).failed(t), zk.ErrNoAuth)
		need.That(t, "/locks is there", !s.Exists("/locks"))
		need.Equal(t, "it took", time.Since(begun), 0)
		need.That(t, "logged "+log.String(), !strings.Contains(log.String(), "cannot delete"))
	})
}

// Somebody is faster than the client to create the parent, and what the client is told of its own create gets lost.
func TestParentOfSomebodyElseIsNeverDeleted(t *testing.T) {
	all, theirs := zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermAll, "somebody", "else")
	plain := func(data string, acl []zk.ACL) func(*zk.Conn) error {
		return func(conn *zk.Conn) error {
			_, err := conn.Create(path, []byte(data), 0, acl)
			return err
		}
	}
	container := func(data string, change func(*zk.Conn) error) func(*zk.Conn) error {
		return func(conn *zk.Conn) error {
			_, err := conn.CreateContainer(path, []byte(data), zk.FlagContainer, all)
			return errors.Join(err, change(conn))
		}
	}
	type row struct {
		create  func(*zk.Conn) error
		unknown int // whether a node is left below, which cannot be found out without permission
	}
	each(t, map[string]row{
		"a plain node":                      {create: plain("", all)},
		"a plain node with content":         {create: plain("mine", all)},
		"a plain node that may not be read": {create: plain("", theirs), unknown: 1},
		"a container":                       {create: container("", func(*zk.Conn) error { return nil })},
		"a container of ours that has got content": {create: container("", func(conn *zk.Conn) error {
			_, err := conn.Set(path, []byte(ours), -1)
			return err
		})},
		"a container of ours that has got an ACL": {create: container(ours, func(conn *zk.Conn) error {
			_, err := conn.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermAdmin), -1)
			return err
		})},
	}, func(t *testing.T, s *zktest.Server, c row) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/locks")
		ctx, cancel := context.WithCancel(t.Context())
		asked := func(f *zktest.Frame) bool {
			return f.Op == "createContainer" && f.Session == p.session && f.Dir == zktest.Request
		}
		strike(s, 1, asked, func(*zktest.Frame) zktest.Action {
			wantErr(t, "create", c.create(conn), nil)
			cancel()
			return zktest.Cut
		})
		p.queue(ctx).failed(t)
		time.Sleep(10 * time.Minute)
		need.That(t, fmt.Sprintf("the parent is there: %t; reaping %d", s.Exists(path), p.Reaping()), s.Exists(path) && p.Reaping() <= c.unknown)
	})
}

func TestEmptyParentThatMayNotBeDeletedIsToldAndLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		create(t, raw(t, s), "/locks", "", 0, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		p, log := startLogged(t, s, zklock.WithACL(zk.WorldACL(zk.PermRead)))
		wantErr(t, "Acquire", p.queue(t.Context()).failed(t), zk.ErrNoAuth)
		line := strings.Join(wantLines(t, log, slog.LevelWarn, "cannot delete an empty parent", 1), "")
		need.Has(t, "the line", line, "path="+path+" ")
		need.Equal(t, "nodes still to be deleted", p.Reaping(), 0)
	})
}

func TestParentsArePersistentWhereTheServerKnowsNoContainers(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		meet(s, is("createContainer", zktest.Request), zktest.Action{Verb: fate.Error, Code: wire.CodeUnimplemented})
		start(t, s).acquire(t).Release()
		_, stat, ok := s.Get(path)
		need.That(t, fmt.Sprintf("the parent: %t, of %#x; want a persistent node", ok, stat.EphemeralOwner), ok && stat.EphemeralOwner == 0)
	})
}

// A parent that is there is neither changed nor taken away.
func TestOnlyMissingParentsAreMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		put(t, raw(t, s), 0, "/locks")
		_, before, _ := s.Get("/locks")
		p := start(t, s)
		p.acquire(t).Release()
		time.Sleep(10 * time.Minute) // the container is taken away by the server
		_, after, _ := s.Get("/locks")
		after.Cversion, after.Pzxid = before.Cversion, before.Pzxid // these are of its children
		need.Equal(t, "the parent", after, before)
		need.That(t, "the container is there", !s.Exists(path))
	})
}

func TestParentThatOthersTakeAwayIsMadeAnewAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		times := 4
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			below := f.Op == "create" || f.Op == "createContainer" && f.Path == path
			if below && f.Dir == zktest.Request && s.Exists("/locks") && times > 0 {
				times--
				conn.Delete(path, -1)
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

// The reply is lost with a server, and the next one does not know of the parent yet.
func TestAbsenceOfAParentIsNotBelievedOfAServerThatLags(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const behind = "127.0.0.1:2182"
		put(t, raw(t, s), 0, "/locks")
		s.Member(behind).Refuse()
		c := dialTo(t, s, addr+","+behind)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Op == "createContainer" && f.Dir == zktest.Request:
				s.Member(behind).Lag()
				s.Member(behind).Accept()
				s.Member(addr).Refuse()
			case f.Op == "createContainer":
				return zktest.Drop
			case f.Op == "create" && s.Exists(path):
				return zktest.Cut
			}
			return zktest.Pass
		})
		wantErr(t, "Acquire", need.ErrOf(lockAt(t, c, path).Acquire(within(t, time.Millisecond))), context.DeadlineExceeded)
		time.Sleep(timeout)
		need.That(t, fmt.Sprintf("reaping %d, the parent is there: %t", c.Reaping(), s.Exists(path)), c.Reaping() == 0 && !s.Exists(path))
	})
}

// Somebody deletes the parents as fast as they are made.
func TestParentsThatDoNotStayEndATryAndHoldUpAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var creates atomic.Int64
		meet(s, func(f *zktest.Frame) bool {
			return f.Op == "create" && f.Dir == zktest.Request && creates.Add(1) < 1000
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
		for _, take := range []func(context.Context) (*zklock.Node, error){l.TryAcquire, l.Acquire} {
			wantErr(t, "Release", need.Get(take(t.Context()))(t).Release(), nil)
			time.Sleep(10 * time.Minute)
			need.That(t, "/app is left", !s.Exists("/app"))
		}
	})
}

// dialTo returns a client with this connect string.
func dialTo(t *testing.T, s *zktest.Server, connect string) *zklock.Client {
	t.Helper()
	c := need.Get(zklock.Dial(within(t, time.Minute), connect, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext)))(t)
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
			for what, take := range map[string]func(*zklock.Lock, context.Context) error{"Acquire": acquireOnce, "TryAcquire": tryOnce} {
				err := take(l, t.Context())
				wantErr(t, what, err, zk.ErrNoAuth)
				wantMention(t, err, want, "WithAuth")
			}
		}
	})
}
