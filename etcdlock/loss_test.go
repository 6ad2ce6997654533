package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
	"github.com/tierlock/tierlock/internal/second"
)

func TestWhoHoldsKeepsTheLockOverAShortOutage(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	for range 3 {
		p.wire.sever()()
		time.Sleep(ttl / 2)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, c)
}

func TestRevokedLeaseLosesAllAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t)
	held, path := mustAcquire(t, p.at(t, lockPath(t)+"1")), lockPath(t)+"2"
	other := mustAcquire(t, start(t).at(t, path))
	w := queueAt(t, p.at(t, path))
	if _, err := outside(t).Revoke(soon(t), p.lease()); err != nil {
		t.Fatal(err)
	}
	ended(t, "the hold", held.Context().Done(), ttl/2)
	wantErr(t, held.Release(), second.ErrLost)
	mustRelease(t, other)
	mustRelease(t, w.must(t)) // with a key under another lease
	if w.err != nil {
		t.Error(w.err)
	}
}

func TestWhoseLeaseIsGoneGetsAnotherAtOnce(t *testing.T) {
	p := start(t)
	if _, err := outside(t).Revoke(soon(t), p.lease()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if d, n := time.Since(began), p.calls.count("Txn"); d > ttl/8 || n > 2 {
		t.Errorf("it took %v and %d transactions", d, n)
	}
}

func TestWhoseKeyIsDeletedQueuesAgain(t *testing.T) {
	t.Parallel()
	p := start(t)
	holder := mustAcquire(t, start(t).at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	keys := left(t, lockPath(t))
	removeKey(t, keys[1])
	eventually(t, "another key", func() bool {
		now := left(t, lockPath(t))
		return len(now) == 2 && now[1] != keys[1]
	})
	mustRelease(t, holder)
	mustRelease(t, w.must(t))
}

func TestLossComesFirstWhoeverFails(t *testing.T) {
	t.Parallel()
	e := etcdservertest.StartEnsemble(t, 3, etcdserver.Config{NoSync: true})
	for name, fail := range map[string]func(leader *etcdserver.Server) (undo func()){
		"leader killed": func(leader *etcdserver.Server) func() {
			leader.Kill()
			return func() { leader.Restart(context.Background()) }
		},
		"leader stopped": func(leader *etcdserver.Server) func() {
			leader.Pause()
			return func() { leader.Resume() }
		},
		"leader isolated": func(leader *etcdserver.Server) func() {
			e.Isolate(leader)
			return e.Heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			leader, err := e.Leader(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			holder, waiter := startAt(t, []string{leader.Addr()}), startAt(t, e.Addrs())
			c := mustAcquire(t, holder.at(t, lockPath(t)))
			lost := make(chan time.Time, 1)
			stop := context.AfterFunc(c.Context(), func() { lost <- time.Now() })
			defer stop()
			w := begin(t, waiter.at(t, lockPath(t)).Acquire)
			w.pending(t)
			undo := fail(leader)
			next := w.must(t)
			granted := time.Now()
			ended(t, "the hold", c.Context().Done(), time.Second)
			if at := <-lost; at.After(granted) {
				t.Errorf("lost %v after it was given away", at.Sub(granted))
			}
			mustRelease(t, next) // before a stopped leader resumes, which may revoke any lease: see the package's documentation
			undo()
		})
	}
}
