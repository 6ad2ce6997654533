package etcdlock

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// etcd goes through the names of deleted keys until it compacts its history.
func TestTurnsUseFewNames(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	used := map[string]bool{}
	c := mustAcquire(t, lock)
	for range 10 {
		used[c.Ref().ID] = true
		mustRelease(t, c)
		c = mustAcquire(t, p.at(t, lockPath(t)+"-other")) // names go from lock to lock
		used[c.Ref().ID] = true
		mustRelease(t, c)
		c = mustAcquire(t, lock)
		for range 3 {
			next, err := lock.Requeue(soon(t), c)
			if err != nil {
				t.Fatal(err)
			}
			c = next.(*queue.Contender)
			used[c.Ref().ID] = true
		}
		if _, err := lock.TryAcquire(soon(t)); err == nil {
			t.Fatal("taken twice")
		}
	}
	mustRelease(t, c)
	if len(used) > 2 {
		t.Errorf("%d names, want one for the holder and one for a requeue", len(used))
	}
}

func TestNameIsNotUsedAgainWhileARequestMayStillBeApplied(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Txn", "DeleteRange"} {
		p := start(t)
		lock := p.at(t, lockPath(t))
		p.calls.dropReply(method, 1)
		c := mustAcquire(t, lock)
		_ = c.Release()
		eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
		next := mustAcquire(t, lock)
		if next.Ref().ID == c.Ref().ID {
			t.Errorf("%s: the name of a key whose request was not answered is used again", method)
		}
		mustRelease(t, next)
	}
}

// The client repeats some requests by itself.
func TestRequestThatIsAppliedAgainDoesNotHitTheNextKeyOfThatName(t *testing.T) {
	t.Parallel()
	for what, method := range map[string]string{"release": "DeleteRange", "requeue": "Txn"} {
		t.Run(what, func(t *testing.T) {
			p := start(t)
			lock := p.at(t, lockPath(t))
			first := mustAcquire(t, lock)
			again := p.replay(t, method)
			var err error
			if what == "requeue" {
				var g second.Grant
				if g, err = lock.Requeue(soon(t), first); err == nil {
					mustRelease(t, g)
				}
			} else {
				err = first.Release()
			}
			if err != nil {
				t.Fatal(err)
			}
			if what == "requeue" { // the new name is taken elsewhere
				defer mustRelease(t, mustAcquire(t, p.at(t, lockPath(t)+"-other")))
			}
			c := mustAcquire(t, lock)
			if keyOf(c.Ref()) != keyOf(first.Ref()) {
				t.Fatal("the name is not used again")
			}
			again()
			if keys := left(t, keyOf(c.Ref())); len(keys) != 1 {
				t.Errorf("got %q, want %s", keys, keyOf(c.Ref()))
			}
			mustRelease(t, c)
		})
	}
}

func TestKeyThatAnOldRequestCreatesIsTakenOver(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock, other := p.at(t, lockPath(t)), p.at(t, lockPath(t)+"-other")
	again := p.replay(t, "Txn")
	first := mustAcquire(t, lock)
	second := mustAcquire(t, other)
	mustRelease(t, first)
	again()
	c := mustAcquire(t, lock)
	if keyOf(c.Ref()) != keyOf(first.Ref()) || c.Token() == first.Token() {
		t.Errorf("got key %s with token %d, want %s with another token than %d", keyOf(c.Ref()), c.Token(), keyOf(first.Ref()), first.Token())
	}
	mustRelease(t, c)
	mustRelease(t, second)
	c = mustAcquire(t, lock)
	if keyOf(c.Ref()) == keyOf(first.Ref()) {
		t.Fatal("no name is left for the requeue")
	}
	again()
	g, err := lock.Requeue(soon(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if keyOf(g.(*queue.Contender).Ref()) != keyOf(first.Ref()) {
		t.Errorf("got key %s, want %s", keyOf(g.(*queue.Contender).Ref()), keyOf(first.Ref()))
	}
	mustRelease(t, g)
	eventually(t, "nothing is left", func() bool { return len(left(t, lockPath(t))) == 0 })
}

// replay returns what sends the next request of a method once more.
func (p *process) replay(t *testing.T, method string) (again func()) {
	var taken atomic.Bool
	var resend func(context.Context) error
	p.calls.on(method, func(ctx context.Context, _ any, send func(context.Context) error) (bool, error) {
		if taken.Swap(true) {
			return false, nil
		}
		resend = send
		return true, send(ctx)
	})
	return func() {
		t.Helper()
		if err := resend(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}
