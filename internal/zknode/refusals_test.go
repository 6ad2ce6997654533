package zknode_test

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func setup(t *testing.T, s *zktest.Server, acl []zk.ACL) {
	t.Helper()
	conn := raw(t, s)
	put(t, conn, 0, "/locks")
	create(t, conn, path, "", 0, acl)
}

// A child with an unknown name blocks the queue, and it need not be the last one. Therefore the error names it. In a TryAcquire, the error
// has no number of its own node.
func TestAStrayChildIsNamed(t *testing.T) {
	negative := map[string]func(*zknode.Lock, context.Context) error{"Acquire": acquireOnce, "TryAcquire": tryOnce}
	for stray, c := range map[string]struct {
		takes map[string]func(*zknode.Lock, context.Context) error
		why   string
	}{
		"lock--000000005":     {negative, "negative"},
		"lock--0000000001":    {negative, "negative"},
		"__lock__-2147483648": {negative, "negative"},
		"a-lock-0000000003":   {map[string]func(*zknode.Lock, context.Context) error{"Acquire": acquireOnce}, "same number as the node"},
	} {
		t.Run(stray, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				setup(t, s, zk.WorldACL(zk.PermAll))
				put(t, raw(t, s), 0, path+"/"+stray)
				p := start(t, s)
				for what, take := range c.takes {
					s.SetSequence(path, 3)
					err := take(p.lock, within(t, time.Hour))
					wantErr(t, what, err, zknode.ErrSequenceExhausted)
					wantMention(t, err, strconv.Quote(stray), c.why, "delete it")
				}
			})
		})
	}
}

// No contender can be behind the last number. A stray child with that number blocks none.
func TestAStrayChildWithTheLastNumberIsInNobodysWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll))
		put(t, raw(t, s), 0, path+"/lock-2147483647")
		p := start(t, s)
		p.acquire(t).Release()
		n := need.Get(p.lock.TryAcquire(t.Context()))(t)
		n.Release()
	})
}

// The error names the missing permission and the node. It also names the option with which a program shows credentials.
func TestAMissingPermissionIsNamedWithItsNode(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	blind := []zknode.Option{zknode.WithACL(without(zk.PermRead))} // with it, the process may not read its own nodes
	for _, c := range []struct {
		name       string
		above, own []zk.ACL // ACLs of /locks and of /locks/x; nil: the node does not exist
		opts       []zknode.Option
		take       func(*zknode.Lock, context.Context) error
		want       string
	}{
		{"create a node", without(0), without(zk.PermCreate), nil, acquireOnce, "no CREATE permission on /locks/x "},
		{"try to create a node", without(0), without(zk.PermCreate), nil, tryOnce, "no CREATE permission on /locks/x "},
		{"list the queue", without(0), without(zk.PermRead), nil, acquireOnce, "no READ permission on /locks/x "},
		{"look at the queue", without(0), without(zk.PermRead), nil, tryOnce, "no READ permission on /locks/x "},
		{"show the queue", without(0), without(zk.PermRead), nil, contendersOnce, "no READ permission on /locks/x "},
		{"create the lock path", without(zk.PermCreate), nil, nil, acquireOnce, "no CREATE permission on /locks "},
		{"read the own node in the queue", without(0), without(0), blind, holding(acquireTwice), "no READ permission on /locks/x/_c_"},
		{"read the own node", without(0), without(0), blind, holding(awaitEnd), "no READ permission on /locks/x/_c_"},
		{"delete the node", without(0), without(zk.PermDelete), nil, holding(release), "no DELETE permission on /locks/x "},
		{"requeue", without(0), without(zk.PermDelete), nil, holding(requeue), "no CREATE or DELETE permission on /locks/x "},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				for _, n := range []struct {
					path string
					acl  []zk.ACL
				}{{"/locks", c.above}, {path, c.own}} {
					if n.acl != nil {
						create(t, conn, n.path, "", 0, n.acl)
					}
				}
				err := c.take(start(t, s, c.opts...).lock, t.Context())
				wantErr(t, c.name, err, zk.ErrNoAuth)
				wantMention(t, err, c.want, "WithAuth")
			})
		})
	}
}

// Without permission to list the queue, the client cannot find out whether its node exists. The error names that permission.
func TestALookUpThatIsNotPermittedNamesThePermission(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermRead))
		p := start(t, s)
		meet(s, is("create", zktest.Reply), zktest.Cut)
		_, err := p.lock.Acquire(t.Context())
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, "no READ permission on /locks/x ")
	})
}

func acquireOnce(l *zknode.Lock, ctx context.Context) error {
	_, err := l.Acquire(ctx)
	return err
}

// The function holding returns a test step that acquires the lock and then calls do.
func holding(do func(l *zknode.Lock, n *zknode.Node, ctx context.Context) error) func(*zknode.Lock, context.Context) error {
	return func(l *zknode.Lock, ctx context.Context) error {
		n, err := l.Acquire(ctx)
		if err != nil {
			return err
		}
		return do(l, n, ctx)
	}
}

func acquireTwice(l *zknode.Lock, n *zknode.Node, ctx context.Context) error {
	defer n.Release()
	return acquireOnce(l, ctx)
}

func awaitEnd(_ *zknode.Lock, n *zknode.Node, _ context.Context) error {
	<-n.Lost()
	return n.Release()
}

func release(_ *zknode.Lock, n *zknode.Node, _ context.Context) error { return n.Release() }

func requeue(_ *zknode.Lock, n *zknode.Node, ctx context.Context) error {
	_, err := n.Requeue(ctx)
	return err
}

func tryOnce(l *zknode.Lock, ctx context.Context) error {
	_, err := l.TryAcquire(ctx)
	return err
}

func contendersOnce(l *zknode.Lock, ctx context.Context) error {
	_, err := l.Contenders(ctx)
	return err
}

// A process that cannot delete its old node waits behind it, as if another process had the lock. The error says that the node is its own.
func TestAProcessThatWaitsBehindItsOwnNodeSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		p, log := startLogged(t, s)
		n := p.acquire(t)
		err := n.Release()
		wantErr(t, "Release", err, zk.ErrNoAuth)
		wantMention(t, err, n.Path(), "also for this process", "no DELETE permission on /locks/x ")
		_, err = p.lock.Acquire(within(t, time.Minute))
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process", "no DELETE permission on /locks/x ")
		id := n.Path()[len("/locks/x/"):]
		wantLines(t, log, slog.LevelWarn, `cannot delete a queue entry; it blocks the lock until its session ends" path=/locks/x id=`+id, 1)
	})
}

func TestAProcessThatWaitsForItsOwnNodeToBeDeletedSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		meet(s, is("delete", zktest.Request), zktest.Throttled)
		wantErr(t, "Release", n.Release(), nil)
		_, err := p.lock.Acquire(within(t, time.Minute))
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process that is still to be deleted")
		s.Intercept(nil)
		p.acquire(t).Release()
	})
}

// A used-up quota has the code -125, for which the client library has no error. The error of the lock names it.
func TestQuotaThatIsUsedUpIsNamed(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *zktest.Server) process{
		"dialed":   func(t *testing.T, s *zktest.Server) process { return start(t, s) },
		"attached": func(t *testing.T, s *zktest.Server) process { return attachTo(t, raw(t, s)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				setup(t, s, zk.WorldACL(zk.PermAll))
				p := begin(t, s)
				n := p.acquire(t)
				meet(s, func(f *zktest.Frame) bool {
					return f.Dir == zktest.Request && (f.Op == "create" || f.Op == "multi" || f.Op == "getChildren2")
				}, zktest.Error(zknode.ErrQuotaExceeded))
				for what, ask := range map[string]func() error{
					"a guarded write": func() error { return need.ErrOf(n.Multi(t.Context(), &zk.SetDataRequest{Path: path, Version: -1})) },
					"Acquire":         func() error { return acquireOnce(p.lock, t.Context()) },
					"Contenders":      func() error { return contendersOnce(p.lock, t.Context()) },
				} {
					err := ask()
					wantErr(t, what, err, zknode.ErrQuotaExceeded)
					wantMention(t, err, "QuotaExceeded")
				}
			})
		})
	}
}

func TestErrorsThatSayThatNoServerCanBeReachedNameIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		down(s)
		time.Sleep(timeout / 4)
		for _, err := range []error{p.Err(), tryOnce(p.lock, t.Context()), acquireOnce(p.lock, within(t, time.Second))} {
			wantErr(t, "without a server", err, zk.ErrNoServer)
			wantMention(t, err, addr)
		}
	})
}

// If an answer is lost, the error also names the server that did not answer.
func TestErrorOfALostAnswerNamesTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		meet(s, is("getChildren2", zktest.Reply), zktest.Cut)
		err := tryOnce(p.lock, t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrConnectionClosed)
		wantMention(t, err, addr)
	})
}
