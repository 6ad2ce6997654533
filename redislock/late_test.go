package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
)

// A request to queue that arrives late, after its contender has lost the lock, gives it another place.
func TestHolderWithAnotherPlaceThanBeforeHasLostTheLock(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(time.Minute)) // hardly a heartbeat comes in between
	c := mustAcquire(t, p.at(t, lockPath(t)))
	if err := outside(t).Del(soon(t), c.claim.keys[:4]...).Err(); err != nil {
		t.Fatal(err)
	}
	other := mustAcquire(t, start(t).at(t, lockPath(t)))
	if _, err := c.claim.do(soon(t), "enqueue", c.id, c.claim.describe(), ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer to the heartbeats", p.round)
	if c.Err() == nil && other.Err() == nil {
		t.Error("two have the lock")
	}
	c.Release()
	if queue := left(t, c.claim.path); !c.gone.Load() && (len(queue) != 1 || queue[0] != other.id) {
		t.Errorf("queue %v, want the holder alone", queue)
	}
	mustRelease(t, other)
}

// The clock of a new primary may be behind that of the old one, which has said that it was not queued.
func TestPlaceThatIsNotTakenIsLeft(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := enrolled(t, p, lockPath(t))
	c.apply(answer{at: time.Duration(time.Now().Add(time.Hour).UnixNano())}, p.now())
	if err := c.acquire(soon(t), nil, nil); err == nil {
		t.Fatal("granted by what was said before it was missing")
	}
	c.discard()
	c.AwaitRelease()
	if queue := left(t, c.claim.path); len(queue) != 0 {
		t.Errorf("queue %v is left", queue)
	}
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
	defer mute.Close()
	l, err := mute.Claim("job", second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mute.await(soon(t), true); err != nil {
		t.Fatal(err)
	}
	if _, err := redisserver.Ask(s.Addr(), "ACL", "SETUSER", "mute", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Acquire(soon(t), nil); err == nil || !begun(err) {
		t.Errorf("error %v, want that of the script", err)
	}
	eventually(t, "the holder is alone", func() bool {
		n, err := redisserver.Ask(s.Addr(), "ZCARD", c.claim.keys[1])
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
	if err := outside(t).Del(soon(t), c.claim.keys[2]).Err(); err != nil {
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
	if err := outside(t).HSet(soon(t), l.keys[3], "gap", ahead).Err(); err != nil {
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
	c := enrolled(t, p, lockPath(t)) // whose first heartbeat would begin a quarantine
	if err := c.ask(soon(t), "enqueue", c.claim.describe(), ""); err != nil {
		t.Fatal(err)
	}
	if a := c.newest(); a.has {
		t.Errorf("a server that may be up for less than a second has granted the lock: %+v", a)
	}
	c.discard()
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
	c := enrolled(t, p, lockPath(t))
	for _, former := range []string{"first", "second"} {
		renew(t, s)
		if err := c.ask(soon(t), "enqueue", c.claim.describe(), ""); err != nil {
			t.Fatal(err)
		}
		if a := c.newest(); a.wait < time.Minute-ttl {
			t.Errorf("after the %s primary: a quarantine of %v, want a minute", former, a.wait)
		}
	}
	c.discard()
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
	var all []*contender
	for range 8 * most {
		all = append(all, enrolled(t, p, lockPath(t)))
	}
	p.wire.on("beat", func() bool { time.Sleep(p.patience() / 7); return false })
	begun := time.Now()
	if !p.round() {
		t.Error("a round that goes on was given up")
	}
	if d := time.Since(begun); d < p.patience() {
		t.Errorf("it took %v: no test", d)
	}
	for _, c := range all {
		c.discard()
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
		c := enrolled(t, p, "lock of "+lease.String())
		if err := c.ask(soon(t), "enqueue", c.claim.describe(), ""); err != nil {
			t.Fatal(err)
		}
		if a := c.newest(); a.wait < lease-ttl/2 {
			t.Errorf("a quarantine of %v for leases of %v", a.wait, lease)
		}
		c.discard()
	}
}
