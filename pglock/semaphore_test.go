package pglock

import (
	"errors"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// taker is one that is yet to enter the queue for so many permits at the path of the test.
func (p *process) taker(t *testing.T, of int) queue.Ref {
	return queue.Ref{Path: lockPath(t), ID: p.store.Name(""), Permits: of}
}

func (p *process) sends(t *testing.T, op queue.Op, c queue.Ref, weight int) queue.Answer {
	t.Helper()
	return p.store.Do(soon(t), queue.Command{Op: op, Session: p.session(t), Ref: c, Weight: weight})
}

// permits are those of each in the queue at the path of the test, who waits has none.
func (p *process) permits(t *testing.T, of int) (permits []int) {
	t.Helper()
	a := p.sends(t, queue.List, queue.Ref{Path: lockPath(t), Permits: of}, 0)
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	for _, c := range a.Queue {
		permits = append(permits, c.Permits)
	}
	return permits
}

// The answer may be lost, and a request be late.
func TestCommandsAboutPermitsMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := start(t)
	a, b := p.taker(t, 5), p.taker(t, 5)
	for range 2 {
		if v := p.sends(t, queue.Try, a, 4).View; !v.Has {
			t.Errorf("%+v, want 4 of 5", v)
		}
		if v := p.sends(t, queue.Enter, b, 3).View; v.Has || !v.Known {
			t.Errorf("%+v, want to wait for 3", v)
		}
	}
	if v := p.sends(t, queue.Look, b, 0).View; v.Has || v.Free != 1 || v.Ahead != 0 || v.Waiting != 0 {
		t.Errorf("%+v, want to be first, with one that is free", v)
	}
	for _, weight := range []int{3, 3, 2, 4} { // the last one is late
		if v := p.sends(t, queue.Weigh, a, weight).View; !v.Has {
			t.Errorf("%+v, want to have %d", v, weight)
		}
	}
	if got := p.permits(t, 5); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("permits %v, want 2 and 3", got)
	}
	if v := p.sends(t, queue.Weigh, p.taker(t, 5), 1).View; v.Known {
		t.Errorf("%+v of one that is not there", v)
	}
}

// What a waiter asks for less, it gets at once if so many are free, and else it goes on to wait; nobody behind it passes.
func TestWhoAsksForLessIsAnsweredWhetherItHasThat(t *testing.T) {
	t.Parallel()
	p := start(t)
	a, b, c := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.sends(t, queue.Enter, a, 3)
	p.sends(t, queue.Enter, b, 5)
	p.sends(t, queue.Enter, c, 1)
	if v := p.sends(t, queue.Weigh, b, 4).View; v.Has {
		t.Errorf("%+v, want to wait for 4 of 2", v)
	}
	if got := p.permits(t, 5); got[1] != 0 || got[2] != 0 {
		t.Errorf("permits %v, want that both wait", got)
	}
	if v := p.sends(t, queue.Weigh, b, 2).View; !v.Has {
		t.Errorf("%+v, want to have 2", v)
	}
	if got := p.permits(t, 5); got[1] != 2 || got[2] != 0 {
		t.Errorf("permits %v, want that the second has 2", got)
	}
}

func TestAnotherNumberOfPermitsIsRefusedByTheCommand(t *testing.T) {
	t.Parallel()
	p := start(t)
	a := p.taker(t, 5)
	p.sends(t, queue.Enter, a, 5)
	for _, op := range []queue.Op{queue.Enter, queue.Try} {
		r := p.sends(t, op, p.taker(t, 3), 1)
		if r.Outcome != queue.Denied || !errors.Is(r.Err, second.ErrPermits) || !strings.Contains(r.Err.Error(), "the path is for 5, not 3") || r.Away != nil {
			t.Errorf("%s: %+v, want that there are 5", op, r)
		}
	}
	if got := p.permits(t, 5); len(got) != 1 {
		t.Errorf("permits %v, want those of one", got)
	}
	p.sends(t, queue.Leave, a, 0)
	if v := p.sends(t, queue.Try, p.taker(t, 3), 3).View; !v.Has {
		t.Errorf("%+v, want 3 of 3 where nobody is", v)
	}
}

func TestLockAndPermitsOfAPathAreApart(t *testing.T) {
	t.Parallel()
	p := start(t)
	defer mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if v := p.sends(t, queue.Try, p.taker(t, 1), 1).View; !v.Has {
		t.Errorf("%+v, want a permit beside the lock", v)
	}
	if ids := left(t, lockPath(t)); len(ids) != 1 {
		t.Errorf("%v queue for the lock, want its holder", ids)
	}
}

// Whoever has permits keeps them, and who comes gets none, which the queue tells.
func TestQuarantineOfPermitsIsTold(t *testing.T) {
	t.Parallel()
	addr := pgservertest.Start(t, pgserver.Config{NoSync: true}).Addr()
	url, outside := pgserver.PlainURL(addr), migrated(t, addr)
	f := flavours[0]
	before, after := f.locksAt(t, url).Semaphore(lockPath(t), 5), f.locksAt(t, url).Semaphore(lockPath(t), 5)
	held, err := before.Acquire(soon(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outside.Exec(soon(t), f.forget); err != nil {
		t.Fatal(err)
	}
	taken := make(chan *tier.Permits, 1)
	go func() {
		p, err := after.Acquire(soon(t), 1)
		if err != nil {
			t.Error(err)
		}
		taken <- p
	}()
	eventually(t, "one that is given none yet", func() bool {
		q, err := after.Contenders(soon(t))
		return err == nil && len(q) == 2 && q[0].Permits == 2 && !q[0].Quarantined && q[1].Permits == 0 && q[1].Quarantined
	})
	later := <-taken
	if q, err := after.Contenders(soon(t)); err != nil || len(q) != 2 || q[1].Permits != 1 || q[1].Quarantined {
		t.Errorf("after the quarantine: %+v, %v", q, err)
	}
	for _, p := range []*tier.Permits{held, later} {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
}
