package redislock

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// taker is a contender that is yet to enter, which is not of the process and so never renewed, for some of so many permits.
func (p *process) taker(t *testing.T, of int) queue.Ref {
	c := p.anew(lockPath(t))
	c.Permits = of
	return c
}

// wants sends a command of a contender that wants so many permits, which has to be executed.
func (p *process) wants(t *testing.T, op queue.Op, c queue.Ref, weight int) queue.View {
	t.Helper()
	return p.does(t, queue.Command{Op: op, Ref: c, Weight: weight}).View
}

// A client may send anything twice, and a request may be late.
func TestCommandsAboutPermitsMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := start(t)
	a, b := p.taker(t, 5), p.taker(t, 5)
	for range 2 {
		if v := p.wants(t, queue.Try, a, 4); !v.Has {
			t.Errorf("%+v, want 4 of 5", v)
		}
		if v := p.wants(t, queue.Enter, b, 3); v.Has || v.Free != 1 || v.Ahead != 0 {
			t.Errorf("%+v, want to be first, with one that is free", v)
		}
	}
	for _, weight := range []int{3, 3, 2, 4} { // the last one is late
		p.wants(t, queue.Weigh, a, weight)
	}
	queue, err := p.permits(t, 5).Contenders(soon(t))
	if err != nil || len(queue) != 2 || queue[0].Permits != 2 || queue[1].Permits != 3 {
		t.Errorf("%+v, %v, want 2 and 3 permits", queue, err)
	}
	p.does(t, leave(a))
	p.does(t, leave(b))
	if fields := outside(t).HKeys(soon(t), keysOf(at(a))[3]).Val(); strings.Contains(strings.Join(fields, " "), a.ID) {
		t.Errorf("%q is left of one who has gone", fields)
	}
}

func leave(c queue.Ref) queue.Command { return queue.Command{Op: queue.Leave, Ref: c} }

func (p *process) permits(t *testing.T, of int) second.Semaphore {
	t.Helper()
	s, err := p.tier.Semaphore(lockPath(t), of, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is at the key of the lock does not matter, nor that others may be there.
func TestLockAndPermitsOfAPathAreApart(t *testing.T) {
	t.Parallel()
	p := start(t)
	if err := outside(t).Set(soon(t), lockPath(t), "theirs", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also right after others
		c := p.taker(t, 1)
		if v := p.wants(t, queue.Enter, c, 1); !v.Has || v.Yield != 0 {
			t.Errorf("%+v, want a permit, without a thought of others", v)
		}
		p.does(t, leave(c))
	}
	if got := left(t, lockPath(t)); len(got) != 0 {
		t.Errorf("%v queue for the lock", got)
	}
}

// Two that begin at once are told apart by the command itself, which leaves nothing.
func TestAnotherNumberOfPermitsIsRefusedByTheCommand(t *testing.T) {
	t.Parallel()
	p := start(t)
	a, b := p.taker(t, 2), p.taker(t, 3)
	p.wants(t, queue.Enter, a, 1)
	for _, op := range []queue.Op{queue.Enter, queue.Try} {
		r := p.Do(soon(t), queue.Command{Op: op, Ref: b, Weight: 1})
		if r.Outcome != queue.Denied || !errors.Is(r.Err, second.ErrPermits) || !strings.HasSuffix(r.Err.Error(), "for 2, not 3") || r.Begun {
			t.Errorf("%s: %+v, want ErrPermits, with both numbers", op, r)
		}
	}
	if v := p.wants(t, queue.Look, b, 0); v.Known {
		t.Errorf("%+v, want nothing", v)
	}
	p.does(t, leave(a))
	if v := p.wants(t, queue.Enter, b, 3); !v.Has {
		t.Errorf("%+v, want all of another number", v)
	}
}

// A message is enough for the first one who waits to know how many are free, and how many wait.
func TestMessageTellsTheFirstWhoWaitsForPermits(t *testing.T) {
	t.Parallel()
	p := start(t)
	views := make(chan queue.View, 100)
	sub := outside(t).Subscribe(soon(t), p.channel())
	defer sub.Close()
	if _, err := sub.Receive(soon(t)); err != nil {
		t.Fatal(err)
	}
	go func() {
		for m := range sub.Channel() {
			var words []string
			err := json.Unmarshal([]byte(m.Payload), &words)
			if err == nil {
				v, e := view(words[0], words[1:])
				views <- v
				err = e
			}
			if err != nil {
				t.Errorf("message %s: %v", m.Payload, err)
			}
		}
	}()
	tells := func(c queue.Ref, want func(queue.View) bool) {
		t.Helper()
		select {
		case v := <-views:
			if v.ID != c.ID || !want(v) {
				t.Errorf("told of %+v", v)
			}
		case <-soon(t).Done():
			t.Fatal("nobody is told")
		}
	}
	holder, first, second := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.wants(t, queue.Enter, holder, 5)
	p.wants(t, queue.Enter, first, 4)
	p.wants(t, queue.Enter, second, 1)
	tells(first, func(v queue.View) bool { return v.Waiting == 1 && v.Free == 0 && !v.Has })
	p.wants(t, queue.Weigh, holder, 4)
	tells(first, func(v queue.View) bool { return v.Waiting == 1 && v.Free == 1 && !v.Has })
	p.wants(t, queue.Weigh, second, 1) // changes nothing
	p.wants(t, queue.Weigh, holder, 1)
	tells(first, func(v queue.View) bool { return v.Has })
	tells(second, func(v queue.View) bool { return v.Waiting == 0 && v.Free == 0 && v.Ahead == 0 })
	p.does(t, leave(holder))
	tells(second, func(v queue.View) bool { return v.Has })
}

// A server that evicts keys may forget what each one wants: nobody else gets any before those have gone.
func TestForgottenWeightsCountAsAll(t *testing.T) {
	t.Parallel()
	p := start(t)
	a, b, c := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.wants(t, queue.Enter, a, 2)
	p.wants(t, queue.Enter, b, 1)
	if err := outside(t).Del(soon(t), keysOf(at(a))[3]).Err(); err != nil {
		t.Fatal(err)
	}
	if v := p.wants(t, queue.Enter, c, 1); v.Has {
		t.Errorf("%+v, though two have unknown permits", v)
	}
	for _, gone := range []queue.Ref{a, b} {
		if v := p.wants(t, queue.Look, c, 0); v.Has {
			t.Errorf("%+v, though one has unknown permits", v)
		}
		p.does(t, leave(gone))
	}
	if v := p.wants(t, queue.Look, c, 0); !v.Has {
		t.Errorf("%+v, want one permit", v)
	}
}

// What an operator does with the key is done to all permits.
func TestHoldersHearThatTheKeyOfPermitsIsDeleted(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	var all []second.Permit
	for _, s := range []second.Semaphore{p.permits(t, 3), q.permits(t, 3)} {
		permits, err := s.TryAcquire(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, permits...)
	}
	key := at(p.taker(t, 3))
	outside(t).Del(soon(t), key)
	for _, permit := range all {
		ended(t, "the loss", permit.Context().Done(), ttl/3+ttl/8)
		if err := permit.ErrAt(p.tier.Now()); !errors.Is(err, second.ErrLost) || !strings.Contains(err.Error(), key) {
			t.Errorf("%v, want ErrLost, with the key", err)
		}
	}
}
