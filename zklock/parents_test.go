package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// ours is the content of the containers that the package makes.
const ours = "tierlock: a container, which goes when it is empty"

// wantNoParents fails unless everything above the lock nodes goes, be it by the server's hand, and soon.
func wantNoParents(t *testing.T, s *zktest.Server) {
	t.Helper()
	if time.Sleep(10 * time.Minute); s.Exists("/locks") {
		t.Errorf("/locks is left, with %q below", s.Children("/locks"))
	}
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
		for usable, acl := range map[string][]zk.ACL{"": zk.WorldACL(zk.PermAll), ", of a parent not to be used": zk.WorldACL(zk.PermRead)} {
			t.Run(name+usable, func(t *testing.T) {
				for nth := 1; atFrame(t, nth, acl, trouble); nth++ {
				}
			})
		}
	}
}

// atFrame makes trouble at the nth frame that comes for an acquisition or goes back. It reports false if there are less.
func atFrame(t *testing.T, nth int, acl []zk.ACL, trouble func(*zktest.Server, process, func()) zktest.Action) (struck bool) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s, zklock.WithACL(acl))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var (
			mu     sync.Mutex // guards the fields below
			at     string
			frames int
		)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			if heartbeat(f) || at != "" {
				return zktest.Pass
			}
			if frames++; frames < nth {
				return zktest.Pass
			}
			at = fmt.Sprintf("%v %v %s", f.Op, f.Dir, f.Path)
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
		if n := p.Reaping(); n > 0 && !errors.Is(p.Err(), zklock.ErrClosed) {
			t.Errorf("after trouble at %s: reaping %d", at, n)
		}
		wantNoParents(t, s)
		if struck = at != ""; t.Failed() {
			t.Fatalf("after trouble at %s, acquired with %v", at, err)
		}
	})
	return struck && !t.Failed()
}

func TestParentsThatAreUsedAreLeftToTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, tr := start(t, s), record(s)
		p.acquire(t)
		container, create := "createContainer", "create"
		list := "getChildren2"
		if got, want := tr.take(), []string{create, list, container, container, create, list}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestParentsThatMayNotBeUsedGoAtOnce(t *testing.T) {
	for name, acl := range map[string][]zk.ACL{
		"only to be read":   zk.WorldACL(zk.PermRead),
		"for somebody else": zk.DigestACL(zk.PermAll, "somebody", "else"),
		"all but the last":  zk.WorldACL(zk.PermAll),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Op == "create" && f.Dir == zktest.Request && s.Exists(path) {
						return zktest.Error(zk.ErrNoAuth)
					}
					return zktest.Pass
				})
				option, log := logged()
				begun := time.Now()
				wantErr(t, "Acquire", start(t, s, zklock.WithACL(acl), option).queue(t.Context()).failed(t), zk.ErrNoAuth)
				if s.Exists("/locks") || time.Since(begun) > 0 {
					t.Errorf("/locks is there: %t, after %v", s.Exists("/locks"), time.Since(begun))
				}
				if got := log.String(); strings.Contains(got, "cannot delete") {
					t.Errorf("logged %s", got)
				}
			})
		})
	}
}

// Somebody is faster than the client to create the parent, and what the client is told of its own create gets lost.
func TestParentOfSomebodyElseIsNeverDeleted(t *testing.T) {
	for name, create := range map[string]func(t *testing.T, conn *zk.Conn) error{
		"a plain node": func(_ *testing.T, conn *zk.Conn) error {
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			return err
		},
		"a plain node with content": func(_ *testing.T, conn *zk.Conn) error {
			_, err := conn.Create(path, []byte("mine"), 0, zk.WorldACL(zk.PermAll))
			return err
		},
		"a plain node that may not be read": func(_ *testing.T, conn *zk.Conn) error {
			_, err := conn.Create(path, nil, 0, zk.DigestACL(zk.PermAll, "somebody", "else"))
			return err
		},
		"a container": func(_ *testing.T, conn *zk.Conn) error {
			_, err := conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			return err
		},
		"a container of ours that has got content": func(_ *testing.T, conn *zk.Conn) error {
			conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			_, err := conn.Set(path, []byte(ours), -1)
			return err
		},
		"a container of ours that has got an ACL": func(_ *testing.T, conn *zk.Conn) error {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			_, err := conn.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermAdmin), -1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn, p := raw(t, s), start(t, s)
				put(t, conn, 0, "/locks")
				ctx, cancel := context.WithCancel(t.Context())
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Op == "createContainer" && f.Session == p.session && f.Dir == zktest.Request {
						if err := create(t, conn); err != nil {
							t.Error(err)
						}
						cancel()
						return zktest.Cut
					}
					return zktest.Pass
				})
				p.queue(ctx).failed(t)
				// Whether a node is left below cannot be found out without permission.
				unknown := 0
				if name == "a plain node that may not be read" {
					unknown = 1
				}
				if time.Sleep(10 * time.Minute); !s.Exists(path) || p.Reaping() > unknown {
					t.Errorf("the parent is there: %t; reaping %d", s.Exists(path), p.Reaping())
				}
			})
		})
	}
}

func TestEmptyParentThatMayNotBeDeletedIsToldAndLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		if _, err := raw(t, s).Create("/locks", nil, 0, zk.WorldACL(zk.PermAll&^zk.PermDelete)); err != nil {
			t.Fatal(err)
		}
		option, log := logged()
		p := start(t, s, zklock.WithACL(zk.WorldACL(zk.PermRead)), option)
		wantErr(t, "Acquire", p.queue(t.Context()).failed(t), zk.ErrNoAuth)
		if got := log.String(); strings.Count(got, "cannot delete an empty parent") != 1 || !strings.Contains(got, "path="+path+" ") || p.Reaping() > 0 {
			t.Errorf("reaping %d, logged:\n%s", p.Reaping(), got)
		}
	})
}

func TestRealServerKeepsNoParentWithoutAChild(t *testing.T) {
	s := sharedServer(t)
	conn, _, err := zk.Connect([]string{s.Addr()}, 4*time.Second, zk.WithLogger(silent{}), zk.WithDialer(net.DialTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, tt := range map[string]struct {
		acl   []zk.ACL
		stage zktest.Direction // of the last container's create, at which the connection breaks and the context ends
		err   error
	}{
		"the request is lost":                {zk.WorldACL(zk.PermAll), zktest.Request, context.Canceled},
		"the reply is lost":                  {zk.WorldACL(zk.PermAll), zktest.Reply, context.Canceled},
		"the node may not be created":        {zk.WorldACL(zk.PermRead), 0, zk.ErrNoAuth},
		"the parent may not even be read":    {zk.DigestACL(zk.PermAll, "somebody", "else"), 0, zk.ErrNoAuth},
		"the node is made, and the lock had": {zk.WorldACL(zk.PermAll), 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			proxy, err := faultproxy.Start(s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			p := connect(ctx, t, proxy.Addr(), zklock.WithACL(tt.acl))
			waiting, give := context.WithCancel(ctx)
			defer give()
			var once sync.Once
			proxy.Intercept(func(f *zktest.Frame) zktest.Action {
				fate := zktest.Pass
				if f.Op == "createContainer" && f.Dir == tt.stage && f.Path == "/locks" {
					once.Do(func() { give(); fate = zktest.Cut })
				}
				return fate
			})
			n, err := p.lock.Acquire(waiting)
			if wantErr(t, "Acquire", err, tt.err); err == nil {
				n.Release()
			}
			awaitGone(ctx, t, conn, "/locks")
		})
	}
}

func awaitGone(ctx context.Context, t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	for {
		exists, _, events, err := conn.ExistsW(path)
		if err == nil && !exists {
			return
		}
		select {
		case <-events:
		case <-ctx.Done():
			t.Fatalf("%s is left: %v", path, err)
		}
	}
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
		if after != before || s.Exists(path) {
			t.Errorf("the parent was %+v, is %+v; the container is there: %t", before, after, s.Exists(path))
		}
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
		if d := time.Since(begun); d > 0 || times > 0 {
			t.Errorf("took %v, with %d times to go", d, times)
		}
	})
}

func TestParentsThatAreNeverThereAreNotTriedInAHurry(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		tries, begun := 0, time.Now()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Request && tries < 1000 && time.Since(begun) < time.Second {
				tries++
				return zktest.Error(zk.ErrNoNode)
			}
			return zktest.Pass
		})
		if p.acquire(t).Release(); tries > 30 {
			t.Errorf("tried %d times within %v", tries, time.Since(begun))
		}
	})
}

// The reply is lost with a server, and the next one does not know of the parent yet.
func TestAbsenceOfAParentIsNotBelievedOfAServerThatLags(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const behind = "127.0.0.1:2182"
		put(t, raw(t, s), 0, "/locks")
		s.Member(behind).Refuse()
		c, err := zklock.Dial(t.Context(), addr+","+behind, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = lockAt(t, c, path).Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		if time.Sleep(timeout); c.Reaping() > 0 || s.Exists(path) {
			t.Errorf("reaping %d, the parent is there: %t", c.Reaping(), s.Exists(path))
		}
	})
}

// Somebody deletes the parents as fast as they are made.
func TestParentsThatDoNotStayEndATryAndHoldUpAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var creates atomic.Int64
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Request && creates.Add(1) < 1000 {
				return zktest.Error(zk.ErrNoNode)
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoNode)
		wantMention(t, err, path, "deleted again")
		wantNoParents(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, path, "deleted again")
	})
}
