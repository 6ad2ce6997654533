package tier_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestUnreachableServerEndsAcquireWithBothCausesAtItsDeadline(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := zkProcess(t, srv).Mutex("/locks/a")
		member := srv.Member("127.0.0.1:2181")
		member.Refuse()
		member.Cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := mu.Acquire(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, zk.ErrNoServer) {
			t.Errorf("Acquire: got %v, want DeadlineExceeded and ErrNoServer", err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("Acquire took %v, want 5s", took)
		}
		synctest.Wait()
		began = time.Now()
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, zk.ErrNoServer) || time.Since(began) != 0 {
			t.Errorf("TryAcquire: got %v after %v, want ErrNoServer at once", err, time.Since(began))
		}

		waiters := []*acquisition{start(soon(t), mu).blocked(t), start(soon(t), mu).blocked(t)}
		time.Sleep(2 * sessionTimeout) // virtual; the session expires
		for _, w := range waiters {
			w.blocked(t)
		}
		member.Accept()
		for _, w := range waiters {
			release(t, w.granted(t))
		}
		if nodes := srv.Children("/locks/a"); len(nodes) != 0 {
			t.Errorf("left behind: %v", nodes)
		}
	})
}

// Whoever forgets the context of its hold waits for itself, and has to find out why.
func TestWaitThatEndsSaysWhetherThisProcessHasTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		here, elsewhere := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		hold := acquire(t, here)
		for mu, want := range map[*tier.Mutex]bool{here: true, elsewhere: false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := mu.Acquire(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "this process has the lock") != want {
				t.Errorf("got %v, want DeadlineExceeded; in this process %v", err, want)
			}
		}
		release(t, hold)
	})
}

// An error that retrying cannot fix reaches everybody who waits, of one attempt.
func TestPermanentErrorReachesEveryWaiterAtOnce(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		mustCreate(t, conn, "/readonly", 0, zk.PermRead)
		mustCreate(t, conn, "/ephemeral", zk.FlagEphemeral, zk.PermAll)
		locks := zkProcess(t, srv)
		for path, want := range map[string]error{
			"/readonly":       zk.ErrNoAuth,
			"/readonly/lock":  zk.ErrNoAuth,
			"/ephemeral":      zk.ErrNoChildrenForEphemerals,
			"/ephemeral/lock": zk.ErrNoChildrenForEphemerals,
		} {
			zkAnswerLate(srv, zktest.OpCreate, time.Second)
			answers := time.Second
			if strings.HasSuffix(path, "/lock") { // first of all it is found to be missing
				answers *= 2
			}
			began := time.Now()
			waiters := make([]*acquisition, 5)
			for i := range waiters {
				waiters[i] = start(soon(t), locks.Mutex(path)).blocked(t)
			}
			for i, w := range waiters {
				if <-w.done; !errors.Is(w.err, want) {
					t.Errorf("waiter %d for %s: got %v, want %v", i, path, w.err, want)
				}
			}
			if took := time.Since(began); took != answers {
				t.Errorf("%s: the waiters were turned away after %v, want with the first answer that says why", path, took)
			}
		}
	})
}

func TestPermanentErrorsOfTheRealServer(t *testing.T) {
	addr := realServer(t)
	conn := outsider(t, addr, net.DialTimeout)
	mustCreate(t, conn, "/real-readonly", 0, zk.PermRead)
	mustCreate(t, conn, "/real-ephemeral", zk.FlagEphemeral, zk.PermAll)
	locks := zkDial(t, addr)
	for path, want := range map[string]error{
		"/real-readonly":       zk.ErrNoAuth,
		"/real-ephemeral":      zk.ErrNoChildrenForEphemerals,
		"/real-ephemeral/lock": zk.ErrNoChildrenForEphemerals,
	} {
		for range 3 {
			if _, err := locks.Mutex(path).Acquire(soon(t)); !errors.Is(err, want) {
				t.Errorf("Acquire %s: got %v, want %v", path, err, want)
			}
		}
	}
}

func TestBadPathSendsNothing(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := zkProcess(t, srv)
		var m zkMeter
		srv.Intercept(m.note)
		for _, path := range []string{"", "/", "relative", "/a//b", "/a/", "/zookeeper/x"} {
			mu := locks.Mutex(path)
			_, acquire := mu.Acquire(soon(t))
			_, try := mu.TryAcquire(soon(t))
			_, contenders := mu.Contenders(soon(t))
			do := mu.Do(soon(t), func(context.Context) error { t.Error("called"); return nil })
			for name, err := range map[string]error{"Acquire": acquire, "TryAcquire": try, "Contenders": contenders, "Do": do} {
				if !errors.Is(err, zk.ErrInvalidPath) {
					t.Errorf("%s of %q: got %v, want ErrInvalidPath", name, path, err)
				}
			}
		}
		synctest.Wait()
		if ops := m.take(); len(ops) != 0 {
			t.Errorf("sent %v, want nothing", ops)
		}
		if n := tier.Stakes(locks); n != 0 {
			t.Errorf("%d entries in the registry, want 0", n)
		}
	})
}

func mustCreate(t *testing.T, conn *zk.Conn, path string, flags, perms int32) {
	t.Helper()
	if _, err := conn.Create(path, nil, flags, zk.WorldACL(perms)); err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := conn.Delete(path, -1); err != nil {
			t.Errorf("delete %s: %v", path, err)
		}
	})
}
