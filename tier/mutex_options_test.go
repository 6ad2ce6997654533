package tier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestHandOffGoesByTheMutexOfTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s) // strict
		generous := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		strict := locks.Mutex("/locks/a")
		first := acquire(t, generous)
		second := start(soon(t), strict).blocked(t)
		third := start(soon(t), strict).blocked(t)
		release(t, first)
		handed := second.granted(t)
		if handed.Token() != first.Token() {
			t.Error("the owner that hands on did not")
		}
		release(t, handed)
		next := third.granted(t)
		if next.Token() == handed.Token() {
			t.Error("the strict owner handed on")
		}
		release(t, next)
	})
}

func TestLingerGoesByTheMutexOfTheLastOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		long, short := locks.Mutex("/locks/a", tier.WithLinger(time.Minute)), locks.Mutex("/locks/a", tier.WithLinger(time.Second))
		gone := func(after time.Duration) bool {
			time.Sleep(after)
			synctest.Wait()
			return len(s.Queue("/locks/a")) == 0
		}
		token := func(mu *tier.Mutex) int64 {
			hold := acquire(t, mu)
			defer release(t, hold)
			return hold.Token()
		}
		first := token(short)
		if token(long) != first {
			t.Error("the node did not linger")
		}
		if gone(59 * time.Second) {
			t.Error("the node lingered for less than the last owner's mutex says")
		}
		if !gone(time.Second) {
			t.Error("the node lingers for longer than the last owner's mutex says")
		}
		token(long)
		token(short)
		if !gone(time.Second) {
			t.Error("the node lingers as the mutex of an earlier owner says")
		}
		token(short)
		token(locks.Mutex("/locks/a"))
		if !gone(0) {
			t.Error("the node lingers though the last owner's mutex does not")
		}
	})
}

func TestNodeOptionsAreForOneLock(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := zkProcess(t, srv)
		hold := acquire(t, locks.Mutex("/locks/a", zklock.NodeData([]byte("mine")), zklock.NodeACL(zk.WorldACL(zk.PermAll&^zk.PermAdmin))))
		plain := acquire(t, locks.Mutex("/locks/b"))
		node, _ := zklock.NodeOf(second.GrantOf(hold))
		if data, _, _ := srv.Get(node.Path()); string(data) != "mine" {
			t.Errorf("content %q, want that of the option", data)
		}
		look := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		if acl, _, err := look.GetACL(node.Path()); err != nil || len(acl) != 1 || acl[0].Perms != zk.PermAll&^zk.PermAdmin {
			t.Errorf("ACL %v, %v, want that of the option", acl, err)
		}
		node, _ = zklock.NodeOf(second.GrantOf(plain))
		if data, _, _ := srv.Get(node.Path()); !strings.Contains(string(data), `"pid"`) {
			t.Errorf("content of the other lock: %q, want a description", data)
		}
		release(t, hold)
		release(t, plain)
		for want, opt := range map[string]tier.MutexOption{
			"empty ACL": zklock.NodeACL(nil), "data of 524289 bytes": zklock.NodeData(make([]byte, 512<<10+1)),
		} {
			if _, err := locks.Mutex("/locks/a", opt).TryAcquire(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to say %q", err, want)
			}
		}
	})
}

type strange struct{}

func (strange) ForMutex() {}

func TestWrongOptionIsReportedByTheMethodsOfTheMutex(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		for want, opt := range map[string]tier.MutexOption{
			"wait limit -1s: negative":       tier.WithMaxWait(-time.Second),
			"hand-off budget -1s: negative":  tier.WithHandOff(-time.Second),
			"linger -1s: negative":           tier.WithLinger(-time.Second),
			"option of type tier_test.stran": strange{},
		} {
			mu := locks.Mutex("/locks/a", opt)
			_, acquired := mu.Acquire(t.Context())
			_, tried := mu.TryAcquire(t.Context())
			_, listed := mu.Contenders(t.Context())
			for _, err := range []error{acquired, tried, listed, mu.Do(t.Context(), nil)} {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/locks/a") {
					t.Errorf("got %v, want it to say %q and the path", err, want)
				}
			}
		}
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d contenders, want none", n)
		}
	})
}

func TestMaxWaitLimitsTheWaitAndNotTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a", tier.WithMaxWait(time.Second))
		if err := mu.Do(soon(t), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				t.Errorf("the work's context ended: %v", context.Cause(ctx))
			}
			began := time.Now()
			err := mu.Do(t.Context(), func(context.Context) error { t.Error("got the lock twice"); return nil })
			if !errors.Is(err, tier.ErrWaitLimit) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want ErrWaitLimit", err)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("waited for %v, want 1s", took)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d contenders left", n)
		}
	})
}
