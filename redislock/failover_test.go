package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
)

// known has the servers be ones that have had their primary for long: without a quarantine yet.
func known(t *testing.T, e *redisserver.Ensemble) {
	t.Helper()
	if err := remember(e.Members[0].Addr()); err != nil {
		t.Fatal(err)
	}
	info, err := redisserver.Ask(e.Members[0].Addr(), "INFO", "replication")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range e.Members {
		eventually(t, "all have the record", func() bool {
			since, err := redisserver.Ask(s.Addr(), "GET", recordOf(info[0]))
			return err == nil && since[0] != ""
		})
	}
}

// before checks that a holder knows of its loss before the next one is granted the lock.
func before(t *testing.T, holder *queue.Contender, next *wait) {
	t.Helper()
	select {
	case <-holder.Context().Done():
	case <-next.granted:
		t.Fatalf("granted to the next one while the holder says %v", holder.Err())
	}
	wantErr(t, holder.Err(), second.ErrLost)
}

// The new primary has never heard of the holder.
func TestLockThatTheNewPrimaryDoesNotKnowIsLostBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	path := lockPath(t)
	known(t, e)
	old, replica := e.Members[0], e.Members[1]
	a := startAt(t, []string{old.Addr()})
	b := startAt(t, []string{replica.Addr(), old.Addr()})

	e.Isolate(old)
	c := mustAcquire(t, a.at(t, path))
	if err := e.Promote(replica); err != nil {
		t.Fatal(err)
	}
	old.Kill()
	b.wire.reset() // its connections were those to the old one
	promoted := time.Now()
	eventually(t, "a try finds the lock taken", func() bool {
		_, err := b.at(t, path).TryAcquire(soon(t))
		if err == nil {
			t.Error("a try got the lock")
		}
		return err == nil || errors.Is(err, second.ErrLocked)
	})
	next := begin(t, b.at(t, path).Acquire)
	before(t, c, next)
	mustRelease(t, next.must(t))
	if d := time.Since(promoted); d < ttl {
		t.Errorf("granted %v after the promotion, want a quarantine of %v", d, ttl)
	}
}

// The holder is told of its loss at the first word of a primary that does not know it.
func TestHolderThatTheNewPrimaryDoesNotKnowHearsThatAtOnce(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	known(t, e)
	a := startAt(t, e.Addrs())
	e.Isolate(e.Members[0])
	c := mustAcquire(t, a.at(t, lockPath(t)))
	if err := e.Promote(e.Members[1]); err != nil {
		t.Fatal(err)
	}
	e.Members[0].Kill()
	ended(t, "the loss", c.Context().Done(), ttl/2)
	if cause := second.CauseOf(c.Err()); cause != second.ByDeletion {
		t.Errorf("lost by %s, want %s", cause, second.ByDeletion)
	}
}

func TestLockThatTheNewPrimaryKnowsStaysHeldAndWaitersKeepTheirPlace(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	known(t, e)
	a, b, d := startAt(t, e.Addrs()), startAt(t, e.Addrs()), startAt(t, e.Addrs())
	c := mustAcquire(t, a.at(t, lockPath(t)))
	queued := func(n int) {
		eventually(t, "the replica has it", func() bool {
			count, err := redisserver.Ask(e.Members[1].Addr(), "ZCARD", keysOf(lockPath(t))[1])
			return err == nil && count[0] == string(rune('0'+n))
		})
	}
	queued(1)
	next := begin(t, b.at(t, lockPath(t)).Acquire)
	queued(2)
	last := begin(t, d.at(t, lockPath(t)).Acquire)
	queued(3)
	if err := e.Failover(soon(t)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl)
	if err := c.Err(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	mustRelease(t, c)
	n := next.must(t)
	last.pending(t)
	if n.Token() <= c.Token() {
		t.Errorf("token %d after %d", n.Token(), c.Token())
	}
	mustRelease(t, n)
	mustRelease(t, last.must(t))
}

// An isolated primary that misses its replicas refuses heartbeats, and its holder knows of its loss
// before the promoted one grants the lock.
func TestHolderAtAnIsolatedPrimaryKnowsOfItsLossInTime(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 3, redisserver.Config{NoSync: true, MinReplicas: 1, MaxLag: 1})
	path := lockPath(t)
	known(t, e)
	old, replica := e.Members[0], e.Members[1]
	a := startAt(t, []string{old.Addr()})
	b := startAt(t, []string{replica.Addr(), old.Addr()})
	if got, want := a.quarantine(), ttl+3*time.Second; got != want {
		t.Fatalf("a quarantine of %v, want %v", got, want)
	}

	e.Isolate(old)
	c := mustAcquire(t, a.at(t, path))
	if err := e.Promote(replica); err != nil {
		t.Fatal(err)
	}
	b.wire.reset()
	next := begin(t, b.at(t, path).Acquire)
	before(t, c, next)
	if mode, err := old.Mode(); err != nil || mode != "leader" {
		t.Errorf("the isolated primary is a %s, %v", mode, err)
	}
	mustRelease(t, next.must(t))
}

// Nothing tells a primary without min-replicas-to-write that it was replaced.
func TestNotPromisedIsolatedPrimaryWithoutMinReplicasGoesOn(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	path := lockPath(t)
	known(t, e)
	old, replica := e.Members[0], e.Members[1]
	a := startAt(t, []string{old.Addr()})
	b := startAt(t, []string{replica.Addr(), old.Addr()})
	e.Isolate(old)
	c := mustAcquire(t, a.at(t, path))
	if err := e.Promote(replica); err != nil {
		t.Fatal(err)
	}
	b.wire.reset()
	next := mustAcquire(t, b.at(t, path))
	if c.Err() != nil || next.Err() != nil {
		t.Errorf("%v and %v: then it can be promised", c.Err(), next.Err())
	}
}

func TestNotPromisedForeignLockIsLostInAFailover(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	path := lockPath(t)
	known(t, e)
	old, replica := e.Members[0], e.Members[1]
	e.Isolate(old)
	theirs := redis.NewClient(&redis.Options{Addr: old.Addr()})
	defer theirs.Close()
	if ok, err := theirs.SetNX(soon(t), path, "theirs", time.Minute).Result(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := e.Promote(replica); err != nil {
		t.Fatal(err)
	}
	old.Kill()
	c := mustAcquire(t, startAt(t, []string{replica.Addr()}).at(t, path))
	mustRelease(t, c) // although theirs has most of a minute to go
}

// A server that forgets everything is one that may have granted anything.
func TestRestartWithoutDataOpensAQuarantine(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{Volatile: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	a := startAt(t, []string{s.Addr()})
	b := startAt(t, []string{s.Addr()})
	c := mustAcquire(t, a.at(t, lockPath(t)))
	heal := a.wire.sever() // the holder does not hear of it
	defer heal()
	if err := s.Restart(soon(t)); err != nil {
		t.Fatal(err)
	}
	next := begin(t, b.at(t, lockPath(t)).Acquire)
	before(t, c, next)
	mustRelease(t, next.must(t))
}

// With its data the server knows the holder, which may stay, and grants the lock to nobody else for
// the length of the quarantine.
func TestRestartWithDataKeepsHoldersAndOpensAQuarantine(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	a := startAt(t, []string{s.Addr()})
	b := startAt(t, []string{s.Addr()})
	c := mustAcquire(t, a.at(t, lockPath(t)))
	if err := s.Restart(soon(t)); err != nil {
		t.Fatal(err)
	}
	restarted := time.Now()
	next := begin(t, b.at(t, lockPath(t)).Acquire)
	eventually(t, "the heartbeat is answered again", func() bool { return a.tier.Err() == nil && b.tier.Err() == nil })
	if err := c.Err(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	mustRelease(t, c)
	n := next.must(t)
	if d := time.Since(restarted); d < ttl-time.Second { // the server counts from the first request
		t.Errorf("granted %v after the restart, want a quarantine of %v", d, ttl)
	}
	mustRelease(t, n)
}

// Where there is no record, the age of the server tells.
func TestServerThatIsUpForLongNeedsNoQuarantine(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	p := startAt(t, []string{s.Addr()})
	early := time.Now()
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if d := time.Since(early); d < ttl/2 {
		t.Errorf("granted by a new server after %v", d)
	}
	if _, err := redisserver.Ask(s.Addr(), "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is up for long enough", func() bool {
		info, err := redisserver.Ask(s.Addr(), "INFO", "server")
		return err == nil && field(info[0], "uptime_in_seconds") >= "4"
	})
	late := time.Now()
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if d := time.Since(late); d > ttl/2 {
		t.Errorf("granted after %v by a server that is up for long", d)
	}
}

// The longest lease of any process is what counts, also for one that has a short lease.
func TestQuarantineIsThatOfTheLongestLease(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := remember(s.Addr()); err != nil {
		t.Fatal(err)
	}
	long := startAt(t, []string{s.Addr()}, WithLeaseTTL(6*time.Second))
	mustRelease(t, mustAcquire(t, long.at(t, lockPath(t))))
	long.kill()
	if err := s.Restart(soon(t)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	short := startAt(t, []string{s.Addr()}, WithLeaseTTL(time.Second))
	ctx, cancel := context.WithTimeout(soon(t), 15*time.Second)
	defer cancel()
	g, err := short.at(t, lockPath(t)).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < 5*time.Second {
		t.Errorf("granted after %v, want a quarantine of 6s", d)
	}
	mustRelease(t, g)
}
