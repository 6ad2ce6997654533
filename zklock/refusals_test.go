package zklock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// wantAtOnce fails unless Acquire and TryAcquire give up with want while no time passes, and leave nothing.
func wantAtOnce(t *testing.T, s *zktest.Server, p process, want error) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := p.lock.Acquire(ctx)
	wantErr(t, "Acquire", err, want)
	_, err = p.lock.TryAcquire(ctx)
	wantErr(t, "TryAcquire", err, want)
	if d := time.Since(begun); d != 0 {
		t.Errorf("gave up after %v, want at once", d)
	}
	wantEmpty(t, s)
}

func setup(t *testing.T, s *zktest.Server, acl []zk.ACL) {
	t.Helper()
	conn := raw(t, s)
	put(t, conn, 0, "/locks")
	if _, err := conn.Create(path, nil, 0, acl); err != nil {
		t.Fatal(err)
	}
}

func TestMissingPermissionFailsAtOnce(t *testing.T) {
	for name, perms := range map[string]int32{
		"no create": zk.PermAll &^ zk.PermCreate,
		"no read":   zk.PermAll &^ zk.PermRead, // of the queue; the node it made is removed
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				setup(t, s, zk.WorldACL(perms))
				wantAtOnce(t, s, start(t, s), zk.ErrNoAuth)
			})
		})
	}
}

func TestACLThatTheServerRefusesFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll))
		wantAtOnce(t, s, start(t, s, zklock.WithACL(zk.AuthACL(zk.PermAll))), zk.ErrInvalidACL) // without credentials
	})
}

func TestCredentialsOpenAProtectedLockAlsoAfterAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s, zklock.WithAuth("digest", []byte("u:secret")), zklock.WithACL(zk.DigestACL(zk.PermAll, "u", "secret")))
		p.acquire(t).Release()
		s.Cut(p.session)
		p.acquire(t).Release()
		wantAtOnce(t, s, start(t, s), zk.ErrNoAuth)
	})
}

// One child in the way is not the end of the path, so the error tells which one it is.
func TestAStrayChildIsNamedByAcquireAndTryAcquire(t *testing.T) {
	for _, stray := range []string{"lock--000000005", "lock--0000000001", "__lock__-2147483648"} {
		t.Run(stray, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				setup(t, s, zk.WorldACL(zk.PermAll))
				put(t, raw(t, s), 0, path+"/"+stray, path+"/lock-0000000000")
				p := start(t, s)
				for what, take := range map[string]func(context.Context) (*zklock.Node, error){"Acquire": p.lock.Acquire, "TryAcquire": p.lock.TryAcquire} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					_, err := take(ctx)
					cancel()
					wantErr(t, what, err, zklock.ErrSequenceExhausted)
					wantMention(t, err, strconv.Quote(stray), "negative", "delete it")
				}
			})
		})
	}
}

func TestAStrayChildWithOurNumberIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll))
		put(t, raw(t, s), 0, path+"/a-lock-0000000003")
		s.SetSequence(path, 3)
		_, err := start(t, s).lock.Acquire(t.Context())
		wantErr(t, "Acquire", err, zklock.ErrSequenceExhausted)
		wantMention(t, err, `"a-lock-0000000003"`, "the number of our own node", "delete it")
	})
}

// It is behind everybody.
func TestAStrayChildWithTheLastNumberIsInNobodysWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll))
		put(t, raw(t, s), 0, path+"/lock-2147483647")
		p := start(t, s)
		p.acquire(t).Release()
		n, err := p.lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.Release()
	})
}

// wantMention fails unless the text of err has all the parts.
func wantMention(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want it to mention %q", err, part)
		}
	}
}

func TestParentsArePersistentWhereTheServerKnowsNoContainers(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "createContainer" && f.Dir == zktest.Request {
				return zktest.Action{Verb: fate.Error, Code: wire.CodeUnimplemented}
			}
			return zktest.Pass
		})
		start(t, s).acquire(t).Release()
		if _, stat, ok := s.Get(path); !ok || stat.EphemeralOwner != 0 {
			t.Errorf("parent: there %t, owner %#x; want a persistent node", ok, stat.EphemeralOwner)
		}
	})
}

// The error says what is missing where, and what presents credentials.
func TestAMissingPermissionIsNamedWithItsNode(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name       string
		above, own []zk.ACL // of /locks and /locks/x; nil for none
		opts       []zklock.Option
		take       func(*zklock.Lock, context.Context) error
		want       string
	}{
		{"create a node", without(0), without(zk.PermCreate), nil, acquireOnce, "no CREATE permission on /locks/x "},
		{"try to create a node", without(0), without(zk.PermCreate), nil, tryOnce, "no CREATE permission on /locks/x "},
		{"list the queue", without(0), without(zk.PermRead), nil, acquireOnce, "no READ permission on /locks/x "},
		{"look at the queue", without(0), without(zk.PermRead), nil, tryOnce, "no READ permission on /locks/x "},
		{"show the queue", without(0), without(zk.PermRead), nil, contendersOnce, "no READ permission on /locks/x "},
		{"create the lock path", without(zk.PermCreate), nil, nil, acquireOnce, "no CREATE permission on /locks "},
		{"read the own node in the queue", without(0), without(0), []zklock.Option{zklock.WithACL(without(zk.PermRead))}, acquireTwice, "no READ permission on /locks/x/_c_"},
		{"read the own node", without(0), without(0), []zklock.Option{zklock.WithACL(without(zk.PermRead))}, holdOnce, "no READ permission on /locks/x/_c_"},
		{"delete the node", without(0), without(zk.PermDelete), nil, releaseOnce, "no DELETE permission on /locks/x "},
		{"requeue", without(0), without(zk.PermDelete), nil, requeueOnce, "no CREATE or DELETE permission on /locks/x "},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				for _, n := range []struct {
					path string
					acl  []zk.ACL
				}{{"/locks", c.above}, {path, c.own}} {
					if n.acl == nil {
						continue
					}
					if _, err := conn.Create(n.path, nil, 0, n.acl); err != nil {
						t.Fatal(err)
					}
				}
				err := c.take(start(t, s, c.opts...).lock, t.Context())
				wantErr(t, c.name, err, zk.ErrNoAuth)
				wantMention(t, err, c.want, "WithAuth")
			})
		})
	}
}

// Whether there is a node cannot be found out where its queue may not be listed.
func TestALookUpThatIsNotPermittedNamesThePermission(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermRead))
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Reply {
				return zktest.Cut
			}
			return zktest.Pass
		})
		_, err := p.lock.Acquire(t.Context())
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, "no READ permission on /locks/x ")
	})
}

func acquireOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.Acquire(ctx)
	return err
}

func acquireTwice(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer n.Release()
	_, err = l.Acquire(ctx)
	return err
}

func holdOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	<-n.Lost()
	return n.Release()
}

func tryOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.TryAcquire(ctx)
	return err
}

func contendersOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.Contenders(ctx)
	return err
}

func releaseOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return n.Release()
}

func requeueOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	_, err = n.Requeue(ctx)
	return err
}

// It looks like a lock that somebody else has, and is not.
func TestAProcessThatWaitsBehindItsOwnNodeSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		var log bytes.Buffer
		p := start(t, s, zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		n := p.acquire(t)
		err := n.Release()
		wantErr(t, "Release", err, zk.ErrNoAuth)
		wantMention(t, err, n.Path(), "in the way of this process", "no DELETE permission on /locks/x ")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process", "no DELETE permission on /locks/x ")
		if got := log.String(); !bytes.Contains(log.Bytes(), []byte("in the way of this process")) {
			t.Errorf("logged: %q", got)
		}
	})
}

func TestAProcessThatWaitsForItsOwnNodeToBeDeletedSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "delete" && f.Dir == zktest.Request {
				return zktest.Throttled
			}
			return zktest.Pass
		})
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process that is still to be deleted")
		s.Intercept(nil)
		p.acquire(t).Release()
	})
}
