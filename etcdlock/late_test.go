package etcdlock

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A request that is executed late may create a key. An audit deletes such a key before its lease ends.
func TestRequestThatIsExecutedLateLeavesNothing(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]func(t *testing.T, p *process, until context.Context){
		"of a caller that has left":              func(t *testing.T, p *process, until context.Context) { p.mutex(t).Acquire(until) },
		"for permits, of a caller that has left": func(t *testing.T, p *process, until context.Context) { p.of(t, 3).acquire(until, 3) },
		"of a caller that has tried again":       func(t *testing.T, p *process, _ context.Context) { release(t, acquire(t, p.mutex(t))) },
	}, func(t *testing.T, take func(t *testing.T, p *process, until context.Context)) {
		t.Parallel()
		p := start(t, tier.WithLeaseTTL(brief))
		late, deliver := p.calls.delay(t, "Txn")
		until, cancel := context.WithCancel(t.Context())
		go func() {
			<-late
			cancel()
		}()
		take(t, p, until)
		eventually(t, "an idle reaper", func() bool { return p.count(queue.Leave, queue.Done) > 0 })
		deletes := p.calls.count("DeleteRange")
		deliver()
		eventually(t, "the end of the late key", func() bool { return p.calls.count("DeleteRange") > deletes && len(left(t)) == 0 })
		need.That(t, "the session ended", p.count(queue.Open, queue.Done) <= 1)
	})
}

// A read of the queue makes etcd walk the names of all deleted keys, until it compacts its history. Acquisitions therefore reuse names.
func TestTurnsUseFewNames(t *testing.T) {
	t.Parallel()
	p := start(t)
	other := p.at(t, lockPath(t)+"-other", second.Exclusive)
	used := map[string]bool{}
	c := acquire(t, p.mutex(t))
	for range 10 {
		release(t, c)
		between := acquire(t, other) // another lock may reuse the name of the first lock
		used[c.Ref().ID], used[between.Ref().ID] = true, true
		release(t, between)
		c = acquire(t, p.mutex(t))
		for range 3 {
			used[c.Ref().ID] = true
			c = requeue(t, p.mutex(t), c)
		}
		locked(t, p.mutex(t))
	}
	release(t, c)
	need.AtMost(t, "names, one for the holder and one for a requeue", len(used), 2)
}

func TestNameIsNotUsedAgainWhileARequestMayStillBeApplied(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"Txn", "DeleteRange"} {
		p := start(t)
		p.calls.drop(method)
		c := acquire(t, p.mutex(t))
		_ = c.Release()
		eventually(t, "no key", func() bool { return len(left(t)) == 0 })
		next := acquire(t, p.mutex(t))
		need.That(t, method+": the name of a key whose request was not answered is used again", next.Ref().ID != c.Ref().ID)
		release(t, next)
	}
}

// The client repeats some requests by itself. A repeated request must not delete a later key of the same name.
func TestRequestThatIsAppliedAgainDoesNotHitTheNextKeyOfThatName(t *testing.T) {
	t.Parallel()
	for what, method := range map[string]string{"release": "DeleteRange", "requeue": "Txn"} {
		t.Run(what, func(t *testing.T) {
			p := start(t)
			first := acquire(t, p.mutex(t))
			again := p.calls.replay(t, method)
			if what == "requeue" {
				release(t, requeue(t, p.mutex(t), first))
				acquire(t, p.at(t, lockPath(t)+"-other", second.Exclusive)) // uses up the name of the released key
			} else {
				release(t, first)
			}
			c := acquire(t, p.mutex(t))
			need.That(t, "the name is not used again", keyOf(c.Ref()) == keyOf(first.Ref()))
			again()
			need.List(t, "keys", left(t), keyOf(c.Ref()))
			release(t, c)
		})
	}
}

func TestKeyThatAnOldRequestCreatesIsTakenOver(t *testing.T) {
	t.Parallel()
	p := start(t)
	again := p.calls.replay(t, "Txn")
	first := acquire(t, p.mutex(t))
	other := acquire(t, p.at(t, lockPath(t)+"-other", second.Exclusive))
	release(t, first)
	again()
	c := acquire(t, p.mutex(t))
	need.Equal(t, "the key", keyOf(c.Ref()), keyOf(first.Ref()))
	need.That(t, "the token is the first contender's token", c.Token() != first.Token())
	release(t, c, other)
	c = acquire(t, p.mutex(t))
	need.That(t, "no name is left for the requeue", keyOf(c.Ref()) != keyOf(first.Ref()))
	again()
	c = requeue(t, p.mutex(t), c)
	need.Equal(t, "key", keyOf(c.Ref()), keyOf(first.Ref()))
	release(t, c)
	eventually(t, "nothing is left", func() bool { return len(left(t)) == 0 })
}
