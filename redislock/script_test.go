package redislock

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
)

// A server whose clock is set back goes on counting, and a token never falls.
func TestTokenGrowsThoughTheClockOfTheServerIsSetBack(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	first := mustAcquire(t, l)
	mustRelease(t, first)
	ahead := first.Token() + time.Hour.Microseconds() // as if it had been an hour later then
	if err := outside(t).HSet(soon(t), keysOf(l.path)[3], "last", ahead).Err(); err != nil {
		t.Fatal(err)
	}
	c := mustAcquire(t, l)
	if c.Token() != ahead+1 {
		t.Errorf("token %d after %d", c.Token(), ahead)
	}
	mustRelease(t, c)
}

// A client may send anything twice.
func TestEachOperationMayBeRepeated(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
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
	if got := left(t, path); len(got) != 2 || got[0] != a.ID || got[1] != b.ID {
		t.Errorf("queue %v, want one place each", got)
	}
	tokens := outside(t).ZRangeWithScores(soon(t), keys[1], 0, -1).Val()
	twice(queue.Command{Op: queue.Enter, Ref: c, Old: a})
	if got := left(t, path); len(got) != 2 || got[0] != b.ID || got[1] != c.ID {
		t.Errorf("queue %v after a requeue, want the tail", got)
	}
	if got := outside(t).ZScore(soon(t), keys[1], b.ID).Val(); got != tokens[1].Score {
		t.Errorf("token %v, want %v as before", got, tokens[1].Score)
	}
	twice(queue.Command{Op: queue.Share, Ref: b})
	twice(queue.Command{Op: queue.Ask, Ref: queue.Ref{Path: path}})
	twice(queue.Command{Op: queue.Beat, Among: []queue.Ref{b, c}})
	if a := twice(queue.Command{Op: queue.Leave, Ref: b}); a.Removed != queue.Missing {
		t.Errorf("removed again: %+v", a)
	}
	if holder := outside(t).Get(soon(t), path).Val(); holder != c.ID {
		t.Errorf("the key says %q, want %q", holder, c.ID)
	}
	twice(queue.Command{Op: queue.Leave, Ref: c})
	if n := outside(t).Exists(soon(t), keys[:3]...).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// Nothing stays for ever, also where everybody has died.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	c := mustAcquire(t, l)
	for i, key := range keysOf(l.path) {
		if d := outside(t).PTTL(soon(t), key).Val(); d <= 0 || i == 0 && d > ttl+time.Second {
			t.Errorf("%s expires in %v", key, d)
		}
	}
	mustRelease(t, c)
	if d := outside(t).PTTL(soon(t), keysOf(l.path)[3]).Val(); d <= 0 {
		t.Errorf("the state expires in %v", d)
	}
}

// The turn of a waiter is told at most once; what is lost costs a part of a lease.
func TestLostMessageCostsAThirdOfALeaseAtMost(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	c := mustAcquire(t, a.at(t, lockPath(t)))
	b.wire.on("message", func() bool { return true })
	next := queueAt(t, b.at(t, lockPath(t)))
	released := time.Now()
	mustRelease(t, c)
	n := next.must(t)
	if d := time.Since(released); d > ttl/3+ttl/8 {
		t.Errorf("granted after %v, want a third of %v at most", d, ttl)
	}
	mustRelease(t, n)
}

// A message is enough: a hand-over takes no further request of who waits.
func TestMessageTellsWhoIsNext(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	c := mustAcquire(t, a.at(t, lockPath(t)))
	next := queueAt(t, b.at(t, lockPath(t)))
	b.wire.on("look", func() bool { t.Error("asked although it was told"); return false })
	released := time.Now()
	mustRelease(t, c)
	n := next.must(t)
	if d := time.Since(released); d > ttl/5 { // sooner than the next heartbeat, as a rule
		t.Errorf("granted after %v", d)
	}
	mustRelease(t, n)
}

// A holder hears of the first one who waits at once.
func TestMessageTellsTheHolderWhoWaits(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	c := mustAcquire(t, a.at(t, lockPath(t)))
	next := queueAt(t, b.at(t, lockPath(t)))
	ended(t, "the holder hears of it", c.Contested().C(), ttl/8)
	mustRelease(t, c)
	mustRelease(t, next.must(t))
}

// A connection that has died silently is noticed, and replaced.
func TestChannelThatFallsSilentIsSubscribedToAnew(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	b.wire.deafen()
	time.Sleep(ttl/2 + ttl/4) // two silences, and a moment
	c := mustAcquire(t, a.at(t, lockPath(t)))
	next := queueAt(t, b.at(t, lockPath(t)))
	told := make(chan struct{})
	var once sync.Once
	b.wire.on("message", func() bool { once.Do(func() { close(told) }); return false })
	mustRelease(t, c)
	ended(t, "the message of the turn", told, ttl/3)
	mustRelease(t, next.must(t))
}

// Not even an answer to the release says anything once it may have been executed before.
func TestReleaseWhoseRequestIsExecutedTwiceIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	met := p.wire.dropReply("leave", 1)
	mustRelease(t, c)
	ended(t, "a lost answer", met, ttl)
	wantErr(t, c.Err(), second.ErrReleased)
}

// A user may be forbidden at any time to tell others, which a script finds out when it has queued.
func TestScriptThatIsRefusedHalfwayLeavesNothing(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	c := mustAcquire(t, startAt(t, []string{s.Addr()}).at(t, "job"))
	if _, err := redisserver.Ask(s.Addr(), "ACL", "SETUSER", "mute", "on", "nopass", "allkeys", "allcommands", "allchannels"); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "mute", Password: "-"})
	defer client.Close()
	o, _, _ := newOptions([]Option{WithLeaseTTL(time.Minute)})
	mute := open(client, o)
	defer mute.tier.Close()
	l, err := mute.tier.Claim("job", second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Contenders(soon(t)) // there is a session
	if _, err := redisserver.Ask(s.Addr(), "ACL", "SETUSER", "mute", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(soon(t), nil); err == nil || !mute.failed(err).Begun {
		t.Errorf("error %v, want that of the script", err)
	}
	eventually(t, "the holder is alone", func() bool {
		n, err := redisserver.Ask(s.Addr(), "ZCARD", keysOf(c.Ref().Path)[1])
		return err == nil && n[0] == "1"
	})
	mustRelease(t, c)
}

// A server that evicts keys may leave the queue and forget the leases.
func TestDeadContenderGoesThoughItsLeaseWasForgotten(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	c := mustAcquire(t, a.at(t, lockPath(t)))
	a.kill()
	if err := outside(t).Del(soon(t), keysOf(c.Ref().Path)[2]).Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, mustAcquire(t, b.at(t, lockPath(t))))
}

// A clock that is set back, or that of a new primary which is behind, does not keep the key free.
func TestKeyIsNotLeftFreeForLongThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	mustRelease(t, mustAcquire(t, l))
	ahead := time.Now().Add(time.Hour).UnixMicro()
	if err := outside(t).HSet(soon(t), keysOf(l.path)[3], "gap", ahead).Err(); err != nil {
		t.Fatal(err)
	}
	g, err := l.TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, g)
}

// The server counts whole seconds, and the first may have begun just before it did.
func TestAgeOfAServerIsNotOverstated(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	p := startAt(t, []string{s.Addr()}, WithLeaseTTL(time.Second))
	eventually(t, "a second has begun since the start", func() bool {
		info, err := redisserver.Ask(s.Addr(), "INFO", "server")
		return err == nil && field(info[0], "uptime_in_seconds") >= "1"
	})
	if v := p.enters(t, lockPath(t)); v.Has {
		t.Errorf("a server that may be up for less than a second has granted the lock: %+v", v)
	}
}

// What the longest lease is, is still known when the next primary is replaced as well.
func TestSecondFailoverKeepsTheQuarantineOfTheFirst(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := redisserver.Ask(s.Addr(), "SET", recordKeys("")[1], micros(time.Minute)); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, []string{s.Addr()})
	for _, former := range []string{"first", "second"} {
		renew(t, s)
		if v := p.enters(t, lockPath(t)+former); v.Again < time.Minute-ttl {
			t.Errorf("after the %s primary: a quarantine of %v, want a minute", former, v.Again)
		}
	}
}

func TestQuarantineEndsThoughTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	if err := record(s.Addr(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	p := startAt(t, []string{s.Addr()})
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
}

// A process with many locks takes its time to renew them all.
func TestRoundOfManyHeartbeatsMayTakeLong(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(6*time.Second))
	var all []queue.Ref
	for range 8 * most {
		all = append(all, p.anew(lockPath(t)))
	}
	patience := p.tier.Patience()
	p.wire.on("beat", func() bool { time.Sleep(patience / 7); return false })
	begun := time.Now()
	if a := p.does(t, queue.Command{Op: queue.Beat, Among: all}); len(a.Views) != len(all) {
		t.Errorf("%d views of %d", len(a.Views), len(all))
	}
	if d := time.Since(begun); d < patience {
		t.Errorf("it took %v: no test", d)
	}
}

// Who has the longest lease may be heard of after the first one that finds a new primary.
func TestQuarantineGrowsForTheLongestLease(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	renew(t, s)
	for _, lease := range []time.Duration{ttl, time.Minute} {
		p := startAt(t, []string{s.Addr()}, WithLeaseTTL(lease))
		if v := p.enters(t, "lock of "+lease.String()); v.Again < lease-ttl/2 {
			t.Errorf("a quarantine of %v for leases of %v", v.Again, lease)
		}
	}
}

// A round after such a silence does not renew leases that may have ended.
func TestSessionIsOverAfterALeaseOfSilence(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.anew(lockPath(t))
	p.does(t, queue.Command{Op: queue.Enter, Ref: c})
	eventually(t, "the session is over", func() bool { // unless the process has renewed it itself meanwhile
		p.heard.Store(int64(p.tier.Now() - ttl - 1))
		return p.Do(soon(t), queue.Command{Op: queue.Beat, Among: []queue.Ref{c}}).Outcome == queue.Expired
	})
}

// The others are renewed.
func TestHeartbeatThatIsRefusedLosesItsContenderAlone(t *testing.T) {
	t.Parallel()
	p := start(t)
	refused, well := p.anew(lockPath(t)+" 1"), p.anew(lockPath(t)+" 2")
	p.does(t, queue.Command{Op: queue.Enter, Ref: well})
	if err := outside(t).Set(soon(t), keysOf(refused.Path)[1], "no queue", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	a := p.does(t, queue.Command{Op: queue.Beat, Among: []queue.Ref{refused, well}})
	if v := a.Views[0]; v.Known || v.Err == nil {
		t.Errorf("%+v, want that it cannot be renewed", v)
	}
	if v := a.Views[1]; !v.Known || v.Err != nil {
		t.Errorf("%+v, want that it stays", v)
	}
}

// A client for a cluster repeats what it is told not to.
func TestReleaseThatFindsNothingInAClusterIsNoLoss(t *testing.T) {
	for client, want := range map[redis.UniversalClient]queue.Removal{
		new(redis.Client): queue.Missing, new(redis.ClusterClient): queue.Removed,
	} {
		a := (&store{client: client}).answered(queue.Command{Op: queue.Leave}, []string{"0"})
		if a.Outcome != queue.Done || a.Removed != want {
			t.Errorf("%T: %+v, want %v", client, a, want)
		}
	}
}

// Messages that were sent while nobody listened are made up for at once.
func TestSubscriptionHasTheSessionRenewed(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(time.Minute))
	c := mustAcquire(t, p.at(t, lockPath(t)))
	beaten := make(chan struct{})
	var once sync.Once
	p.wire.on("beat", func() bool { once.Do(func() { close(beaten) }); return false })
	time.Sleep(100 * time.Millisecond) // likely without a heartbeat; true either way
	p.wire.reset()
	ended(t, "a heartbeat", beaten, 10*time.Second)
	mustRelease(t, c)
}
