package redislock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/second"
)

// enrolled returns a contender that is yet to queue.
func enrolled(t *testing.T, p *process, path string) *contender {
	t.Helper()
	c, err := p.at(t, path).enter(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A process may be stopped between the answer to its request and the look at it, for longer than its
// lease lasts, and then first hear of its heartbeats.
func TestAnswerIsNoGrantOnceAHeartbeatHasFoundTheContenderGone(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := enrolled(t, p, lockPath(t))
	sent := p.now()
	words, err := c.claim.do(soon(t), "enqueue", c.id, c.claim.describe(), "")
	if err != nil {
		t.Fatal(err)
	}
	late, err := parse(words)
	if err != nil || !late.has {
		t.Fatalf("%+v, %v, want that it has the lock", late, err)
	}
	outside(t).ZAdd(soon(t), c.claim.keys[2], redis.Z{Score: 1, Member: c.id}) // while the process is stopped
	other := mustAcquire(t, start(t).at(t, lockPath(t)))
	if !p.round() {
		t.Fatal("no answer to the heartbeats")
	}
	c.apply(late, sent)
	if c.hold() {
		t.Error("two have the lock")
	}
	if !c.lost() {
		t.Error("who has no place in the queue waits on")
	}
	c.discard()
	mustRelease(t, other)
}

// The heartbeat can reach the server before the request that queues.
func TestHeartbeatBeforeTheRequestDoesNoHarm(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := enrolled(t, p, lockPath(t))
	if !p.round() {
		t.Fatal("no answer to the heartbeats")
	}
	if err := c.enqueue(soon(t), nil); err != nil {
		t.Fatal(err)
	}
	if !c.hold() {
		t.Error("not the holder")
	}
	mustRelease(t, c)
}

// Messages and answers overtake one another.
func TestWhatIsOlderDoesNotCount(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := enrolled(t, p, lockPath(t))
	has := answer{known: true, token: 5, at: 10 * time.Second, has: true}
	waits := answer{known: true, token: 5, at: 9 * time.Second}
	gone := answer{at: 8 * time.Second}
	c.apply(has, 0)
	c.apply(waits, 0)
	c.apply(gone, 0)
	if !c.newest().has || c.lost() {
		t.Error("what was said before has undone what was said later")
	}
	// The clock of the server is set back, which the answer to a new request shows.
	c.apply(waits, p.now()+time.Millisecond)
	if c.newest().has {
		t.Error("an answer to what was asked later does not count")
	}
	c.apply(answer{at: 11 * time.Second}, 0)
	if !c.lost() {
		t.Error("not lost although it is gone")
	}
	c.discard()
}

// A server whose clock is set back goes on counting, and a token never falls.
func TestTokenGrowsThoughTheClockOfTheServerIsSetBack(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	first := mustAcquire(t, l)
	mustRelease(t, first)
	ahead := first.Token() + time.Hour.Microseconds() // as if it had been an hour later then
	if err := outside(t).HSet(soon(t), l.keys[3], "last", ahead).Err(); err != nil {
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
	twice := func(l *claim, op, id string, more ...string) (words []string) {
		t.Helper()
		for range 2 {
			var err error
			if words, err = l.do(soon(t), op, id, more...); err != nil {
				t.Fatalf("%s: %v", op, err)
			}
		}
		return words
	}
	l := p.at(t, lockPath(t)).claim
	a, b, c := p.newID(), q.newID(), p.newID()
	twice(l, "try", a, l.describe())
	twice(l, "enqueue", b, l.describe(), "")
	if got := left(t, l.path); len(got) != 2 || got[0] != a || got[1] != b {
		t.Errorf("queue %v, want one place each", got)
	}
	tokens := outside(t).ZRangeWithScores(soon(t), l.keys[1], 0, -1).Val()
	twice(l, "enqueue", c, l.describe(), a)
	if got := left(t, l.path); len(got) != 2 || got[0] != b || got[1] != c {
		t.Errorf("queue %v after a requeue, want the tail", got)
	}
	if got := outside(t).ZScore(soon(t), l.keys[1], b).Val(); got != tokens[1].Score {
		t.Errorf("token %v, want %v as before", got, tokens[1].Score)
	}
	twice(l, "share", b)
	twice(l, "revoke", "")
	twice(l, "beat", b)
	if words := twice(l, "release", b); words[0] != "0" {
		t.Errorf("released again: %v", words)
	}
	if holder := outside(t).Get(soon(t), l.path).Val(); holder != c {
		t.Errorf("the key says %q, want %q", holder, c)
	}
	twice(l, "release", c)
	if n := outside(t).Exists(soon(t), l.keys[0], l.keys[1], l.keys[2]).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// Nothing stays for ever, also where everybody has died.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	c := mustAcquire(t, l)
	for i, key := range l.keys[:4] {
		if d := outside(t).PTTL(soon(t), key).Val(); d <= 0 || i == 0 && d > ttl+time.Second {
			t.Errorf("%s expires in %v", key, d)
		}
	}
	mustRelease(t, c)
	if d := outside(t).PTTL(soon(t), l.keys[3]).Val(); d <= 0 {
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

// The old contender of a requeue that was executed is gone because of that.
func TestReleaseOfWhatARequeueHasRemovedIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	successor := p.newID()
	if _, err := c.claim.do(soon(t), "enqueue", successor, c.claim.describe(), c.id); err != nil {
		t.Fatal(err)
	}
	c.spent.Store(true)
	c.giveUp()
	c.releaseIfAny()
	if err := c.AwaitRelease(); err != nil {
		t.Error(err)
	}
	c.claim.do(soon(t), "release", successor)
}

// Not even an answer to the release says anything once it may have been executed before.
func TestReleaseWhoseRequestIsExecutedTwiceIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	met := p.wire.dropReply("release", 1)
	mustRelease(t, c)
	ended(t, "a lost answer", met, ttl)
	wantErr(t, c.Err(), second.ErrReleased)
	eventually(t, "nothing is left to remove", func() bool { return p.reaper.Count() == 0 })
}

// Heartbeats and guarded writes are under way while the lock is released.
func TestWhatFindsAReleasedContenderGoneTellsOfNoLoss(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	c.spent.Store(true)
	c.giveUp()
	c.apply(answer{at: c.newest().at + time.Hour}, c.claim.store.now()) // the answer to a heartbeat
	c.startRelease(nil)
	if err := c.AwaitRelease(); err != nil {
		t.Error(err)
	}
	words := redis.NewCmd(soon(t))
	words.SetErr(errors.New("no"))
	c.beaten(words, c.claim.store.now())
	if _, err := c.guarded(func() error { return nil }, "return 1", nil, nil); !errors.Is(err, second.ErrReleased) {
		t.Errorf("a guarded write behind the release: %v, want ErrReleased", err)
	}
	if c.lost() {
		t.Errorf("lost once it was released: %v", context.Cause(c.Context()))
	}
}
