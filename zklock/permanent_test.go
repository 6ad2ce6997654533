package zklock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

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
			if f.Op == zktest.OpCreateContainer && f.Stage == zktest.Request {
				return zktest.Error(zktest.CodeUnimplemented)
			}
			return zktest.Pass
		})
		start(t, s).acquire(t).Release()
		if _, stat, ok := s.Get(path); !ok || stat.EphemeralOwner != 0 {
			t.Errorf("parent: there %t, owner %#x; want a persistent node", ok, stat.EphemeralOwner)
		}
	})
}
