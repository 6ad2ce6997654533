package redislock

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// If the clock of the server is set back, tokens still grow, and the key does not stay free for long.
func TestClockOfTheServerMayBeSetBack(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	first := mustAcquire(t, l)
	mustRelease(t, first)
	ahead := first.Token() + time.Hour.Microseconds() // as if the clock had been an hour ahead until now
	need.OK(t, outside(t).HSet(soon(t), keysOf(lockPath(t))[3], "last", ahead, "gap", ahead).Err())
	g := need.Get(l.TryAcquire(soon(t)))(t)
	need.Equal(t, "the token", g.Token(), ahead+1)
	mustRelease(t, g)
}

// The Redis client may retry a request, so each operation has to be safe to repeat.
func TestEachOperationMayBeRepeated(t *testing.T) {
	t.Parallel()
	p, q := start(t, tier.WithLeaseTTL(long)), start(t, tier.WithLeaseTTL(long))
	twice := func(c queue.Command) (a queue.Answer) {
		t.Helper()
		for range 2 {
			a = p.does(t, c)
		}
		return a
	}
	path := lockPath(t)
	keys := keysOf(path)
	a, b, c := p.anew(path), q.anew(path), p.anew(path)
	twice(queue.Command{Op: queue.Try, Ref: a})
	twice(queue.Command{Op: queue.Enter, Ref: b})
	need.List(t, "the queue, with one place each", left(t, path), a.ID, b.ID)
	token := outside(t).ZScore(soon(t), keys[1], b.ID).Val()
	twice(queue.Command{Op: queue.Enter, Ref: c, Old: a})
	for range 2 {
		r := p.Do(soon(t), queue.Command{Op: queue.Enter, Ref: p.anew(path), Old: a})
		need.Equal(t, "in place of a contender that has left", r.Outcome, queue.Gone)
	}
	need.List(t, "the queue after a requeue", left(t, path), b.ID, c.ID)
	need.Equal(t, "the key, at once with the next one, says", key(t, path), b.ID)
	need.Equal(t, "the token, as before", outside(t).ZScore(soon(t), keys[1], b.ID).Val(), token)
	twice(queue.Command{Op: queue.Share, Ref: b})
	twice(queue.Command{Op: queue.Ask, Ref: queue.Ref{Path: path}})
	twice(queue.Command{Op: queue.Beat, Among: []queue.Ref{b, c}})
	for i, key := range keys {
		if d := outside(t).PTTL(soon(t), key).Val(); d <= 0 || i == 0 && d > long+time.Second {
			t.Errorf("%s expires in %v", key, d)
		}
	}
	need.Equal(t, "removed again", twice(queue.Command{Op: queue.Leave, Ref: b}).Removed, queue.Missing)
	need.Equal(t, "the key says", key(t, path), c.ID)
	twice(queue.Command{Op: queue.Leave, Ref: c})
	need.Equal(t, "keys are left", outside(t).Exists(soon(t), keys[:3]...).Val(), 0)
	need.AtLeast(t, "the state expires in", outside(t).PTTL(soon(t), keys[3]).Val(), 1)
}

// The key of a lock exists as long as any reader has the lock, and expires with the last lease.
func TestKeyIsThereForAsLongAsReadersAre(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b := p.anew(lockPath(t)), p.anew(lockPath(t))
	a.Reads, b.Reads = true, true
	for _, c := range []queue.Ref{a, b} {
		v := p.stands(t, queue.Enter, c, 0)
		need.That(t, fmt.Sprintf("%+v, want a reader", v), v.Has && v.Reads)
	}
	p.stands(t, queue.Leave, a, 0)
	need.Equal(t, "the key says", key(t, b.Path), b.ID)
	outside(t).PExpire(soon(t), b.Path, long/2)
	p.does(t, queue.Command{Op: queue.Beat, Among: []queue.Ref{b}})
	need.AtLeast(t, "the key, with the lease of the reader, expires in", outside(t).PTTL(soon(t), b.Path).Val(), long/2+1)
	p.stands(t, queue.Leave, b, 0)
	need.Equal(t, "the value of the key of a free lock", key(t, b.Path), "")
}

// A message tells the holder that a process waits, and another one tells the next waiter that it has the lock. Both arrive long before the
// next heartbeat.
func TestMessagesTellTheHolderAndTheNextOne(t *testing.T) {
	t.Parallel()
	a, b := start(t, tier.WithLeaseTTL(long)), start(t, tier.WithLeaseTTL(long))
	c := mustAcquire(t, a.at(t, lockPath(t)))
	b.wire.on("look", func() bool { t.Error("the process has polled, although it was notified"); return false })
	next := queueAt(t, b.at(t, lockPath(t)))
	ended(t, "the holder hears of it", c.Contended().C())
	mustRelease(t, c)
	mustRelease(t, next.Must(t))
}

// Redis delivers each message at most once. If a message is lost, the next heartbeat reports the same change. A connection that has broken
// without an error is replaced.
func TestLostMessageIsMadeUpForByAHeartbeat(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	c := mustAcquire(t, a.at(t, lockPath(t)))
	next := queueAt(t, b.at(t, lockPath(t)))
	b.wire.deafen()
	mustRelease(t, c)
	mustRelease(t, next.Must(t))
	eventually(t, "it listens again", b.wire.listens)
}

// A renewal follows each subscription at once. It reports what messages before the subscription would have reported.
func TestSubscriptionHasTheSessionRenewed(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	c := mustAcquire(t, p.at(t, lockPath(t)))
	eventually(t, "it listens", p.wire.listens)
	beaten := make(chan struct{})
	var once sync.Once
	p.wire.on("beat", func() bool { once.Do(func() { close(beaten) }); return false })
	p.wire.reset()
	ended(t, "a heartbeat", beaten)
	mustRelease(t, c)
}

// The client must not repeat a release by itself. The second answer would not find the contender, which looks like a loss.
func TestReleaseWhoseAnswerIsLostIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	c := mustAcquire(t, p.at(t, lockPath(t)))
	lost := false
	p.wire.on("leave", func() bool { first := !lost; lost = true; return first })
	mustRelease(t, c)
	wantErr(t, c.Err(), second.ErrReleased)
	need.That(t, "no answer was lost", lost)
	// A cluster client repeats requests even if its options forbid that.
	for client, want := range map[redis.UniversalClient]queue.Removal{
		new(redis.Client): queue.Missing, new(redis.ClusterClient): queue.Removed,
	} {
		a := (&store{client: client}).answered(queue.Command{Op: queue.Leave}, []string{"0"})
		need.Equal(t, fmt.Sprintf("%T: the outcome", client), a.Outcome, queue.Done)
		need.Equal(t, fmt.Sprintf("%T: removed", client), a.Removed, want)
	}
}

// A server that evicts keys may delete the leases of a queue, and keep the queue. The script creates the other keys again. All of them
// expire, long after their last use.
func TestNothingStaysThoughLeasesWereForgotten(t *testing.T) {
	t.Parallel()
	p, outside := start(t, tier.WithLeaseTTL(long)), outside(t)
	a, b, c := p.anew(lockPath(t)), p.anew(lockPath(t)), p.anew(lockPath(t))
	keys := keysOf(a.Path)[1:]
	last := func(when string) {
		t.Helper()
		for _, key := range keys {
			need.AtLeast(t, key+" ends, "+when+", in", outside.PTTL(soon(t), key).Val(), time.Hour)
		}
	}
	p.stands(t, queue.Enter, a, 0)
	p.does(t, queue.Command{Op: queue.Enter, Ref: b, Old: a})
	last("since nobody queued")
	need.OK(t, outside.Del(soon(t), keys[1]).Err())
	p.stands(t, queue.Enter, c, 0)
	need.Equal(t, "leases", len(outside.ZRange(soon(t), keys[1], 0, -1).Val()), 2)
	last("since leases were forgotten")
	need.OK(t, cmp.Or(outside.PExpire(soon(t), keys[0], time.Minute).Err(), outside.HSet(soon(t), keys[2], "kept", 0).Err()))
	p.does(t, queue.Command{Op: queue.Beat, Among: []queue.Ref{c}})
	last("used for long")
	need.That(t, "when that was is not written down", outside.HGet(soon(t), keys[2], "kept").Val() != "0")
	p.leaves(t, b, c)
}

// A renewal sends one heartbeat for each contender, in pipelines. Each pipeline may take as long as any other request. If Redis refuses one
// heartbeat, only the contender of that heartbeat is lost.
func TestRoundOfManyHeartbeats(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	all := []queue.Ref{p.anew(lockPath(t) + " refused"), p.anew(lockPath(t) + " well")}
	p.stands(t, queue.Enter, all[1], 0)
	need.OK(t, outside(t).Set(soon(t), keysOf(all[0].Path)[1], "no queue", time.Minute).Err())
	for range 2 * most {
		all = append(all, p.anew(lockPath(t)))
	}
	over, cancel := context.WithCancel(t.Context())
	cancel() // any other request would have timed out by now
	a := p.Do(over, queue.Command{Op: queue.Beat, Among: all})
	need.Must(t, fmt.Sprintf("%d views of %d, %v", len(a.Views), len(all), a.Err), a.Outcome == queue.Done && len(a.Views) == len(all))
	need.That(t, "the refused contender was renewed", !a.Views[0].Known && a.Views[0].Err != nil)
	need.That(t, "the other contender was not renewed", a.Views[1].Known && a.Views[1].Err == nil)
}

// If Redis has not answered for a TTL, the leases may have ended. Later heartbeats must not renew them, and the session ends.
func TestSessionIsOverAfterALeaseOfSilence(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	for _, among := range [][]queue.Ref{nil, {p.anew(lockPath(t))}} {
		eventually(t, "the session is over", func() bool { // repeated, because the process may have renewed the session itself
			p.heard.Store(int64(p.tier.Now() - long - 1))
			return p.Do(soon(t), queue.Command{Op: queue.Beat, Among: among}).Outcome == queue.Expired
		})
	}
}

// taker returns a contender for permits of the test's semaphore, which has not entered the queue yet. of is the total number of permits.
func (p *process) taker(t *testing.T, of int) queue.Ref {
	c := p.anew(lockPath(t))
	c.Permits = of
	return c
}

// A client may send any request twice, and a request may be late. Neither may give a contender more permits than it has asked for last.
func TestCommandsAboutPermitsMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b := p.taker(t, 5), p.taker(t, 5)
	for range 2 {
		v := p.stands(t, queue.Try, a, 4)
		need.That(t, fmt.Sprintf("%+v, want 4 of 5, without a thought of other libraries", v), v.Has && v.Yield == 0)
		need.Equal(t, "a try for more than there are", p.Do(soon(t), queue.Command{Op: queue.Try, Ref: b, Weight: 2}).Outcome, queue.Locked)
	}
	for range 2 {
		v := p.stands(t, queue.Enter, b, 3)
		need.That(t, fmt.Sprintf("%+v, want to be first, with one free permit", v), !v.Has && v.Free == 1 && v.Ahead == 0)
		r := p.Do(soon(t), queue.Command{Op: queue.Try, Ref: p.taker(t, 5), Weight: 1})
		need.Equal(t, "a try while another contender waits", r.Outcome, queue.Locked)
	}
	for _, weight := range []int{3, 3, 2, 4} { // the last command is late: b already has its permits
		p.stands(t, queue.Weigh, a, weight)
	}
	all := need.Get(p.tier.Semaphore(a.Path, 5, second.Options{}))(t)
	queue := need.Get(all.Contenders(soon(t)))(t)
	need.That(t, fmt.Sprintf("%+v, want 2 and 3 permits", queue), len(queue) == 2 && queue[0].Permits == 2 && queue[1].Permits == 3)
	p.leaves(t, a, b)
	fields := strings.Join(outside(t).HKeys(soon(t), keysOf(at(a))[3]).Val(), " ")
	need.That(t, fields+": fields of a contender that has left", !strings.Contains(fields, a.ID))
}

func (p *process) leaves(t *testing.T, all ...queue.Ref) {
	t.Helper()
	for _, c := range all {
		p.does(t, queue.Command{Op: queue.Leave, Ref: c})
	}
}

// A message tells the first waiter how many permits are free and how many contenders wait. The waiter needs no request for that.
func TestMessageTellsTheFirstWhoWaitsForPermits(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	sub := outside(t).Subscribe(soon(t), p.channel())
	defer sub.Close()
	need.Get(sub.Receive(soon(t)))(t)
	tells := func(c queue.Ref, want queue.View) {
		t.Helper()
		m := need.Get(sub.ReceiveMessage(soon(t)))(t)
		var words []string
		json.Unmarshal([]byte(m.Payload), &words)
		v := need.Get(view(words[0], words[1:]))(t)
		need.Equal(t, "the contender in the message", v.ID, c.ID)
		need.Equal(t, "lock, waiters, free permits in the message", [3]any{v.Has, v.Waiting, v.Free}, [3]any{want.Has, want.Waiting, want.Free})
	}
	holder, first, second, third := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.stands(t, queue.Enter, holder, 5)
	p.stands(t, queue.Enter, first, 4)
	v := p.stands(t, queue.Enter, second, 2)
	need.That(t, fmt.Sprintf("%+v, want to stand behind the first", v), v.Ahead == 1 && v.Nearest.ID == first.ID && v.Waiting == 1)
	tells(first, queue.View{Waiting: 1})
	p.stands(t, queue.Weigh, holder, 4)
	tells(first, queue.View{Waiting: 1, Free: 1})
	p.stands(t, queue.Weigh, second, 1) // the view of the first waiter does not change
	p.stands(t, queue.Weigh, holder, 1)
	tells(first, queue.View{Has: true, Waiting: 1})
	tells(second, queue.View{})
	p.stands(t, queue.Enter, third, 2)
	tells(second, queue.View{Waiting: 1})
	p.does(t, queue.Command{Op: queue.Enter, Ref: p.taker(t, 5), Weight: 2, Old: second}) // the number of waiters does not change
	tells(third, queue.View{Waiting: 1})
	p.leaves(t, holder)
	tells(third, queue.View{Waiting: 1, Free: 1})
}

// A server that evicts keys may lose how many permits each contender has. Each contender then counts as having all permits. Other processes
// get none until these contenders have left.
func TestForgottenWeightsCountAsAll(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b, c := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.stands(t, queue.Enter, a, 2)
	p.stands(t, queue.Enter, b, 1)
	need.OK(t, outside(t).Del(soon(t), keysOf(at(a))[3]).Err())
	need.That(t, "one has permits, though two have unknown ones", !p.stands(t, queue.Enter, c, 1).Has)
	for _, gone := range []queue.Ref{a, b} {
		need.That(t, "one has permits, though another has unknown ones", !p.stands(t, queue.Look, c, 0).Has)
		p.leaves(t, gone)
	}
	need.That(t, "one has no permit, though all are free", p.stands(t, queue.Look, c, 0).Has)
}
