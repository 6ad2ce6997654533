package interop_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
)

func TestCuratorGivesUpWhenOursAsk(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	holder := launch(t, e, sessionTimeout, "curator-revocable")[0]
	mu := e.tier(t)
	for range 2 {
		holder.acquire(t)
		holder.order(t, "yield")
		a := start(waittest.Soon(t), mu)
		e.awaitChildren(t, 2)
		select {
		case <-a.done:
			t.Fatal("tier did not wait for Curator")
		case <-holder.answers:
			t.Fatal("Curator gives up although nobody has asked")
		case <-time.After(100 * time.Millisecond):
		}
		need.OK(t, mu.Revoke(waittest.Soon(t)))
		holder.answer(t)
		waittest.Release(t, a.granted(t))
	}
	e.awaitChildren(t, 0)
}

func TestOursAreToldWhenCuratorAsks(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	curator := launch(t, e, sessionTimeout, "curator-revocable")[0]
	hold := acquire(t, e.tier(t))
	select {
	case <-hold.RevokeRequested():
		t.Error("revoked, although no process has asked for the lock")
	case <-time.After(100 * time.Millisecond):
	}
	curator.do(t, "revoke %s", e.path+"/"+e.children(t)[0])
	waittest.Ended(t, "the holder hears of it", hold.RevokeRequested())
	need.WantErr(t, "the lock", hold.Err(), nil)
	curator.order(t, "acquire")
	e.awaitChildren(t, 2)
	waittest.Release(t, hold)
	curator.answer(t)
	curator.release(t)
	e.awaitChildren(t, 0)
}
