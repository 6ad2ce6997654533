package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A turn has the lock of some library, does the work under it, and gives it back.
type turn func(ctx context.Context, work func()) error

// others are locks of other libraries at a path.
func others(t *testing.T, path string) map[string]turn {
	client := outside(t)
	sync := redsync.New(goredis.NewPool(client))
	obtain := bsm.New(client)
	return map[string]turn{
		"redsync": func(ctx context.Context, work func()) error {
			m := sync.NewMutex(path, redsync.WithExpiry(10*time.Second), redsync.WithTries(1000))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			work()
			_, err := m.UnlockContext(ctx)
			return err
		},
		"bsm/redislock": func(ctx context.Context, work func()) error {
			l, err := obtain.Obtain(ctx, path, 10*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(20 * time.Millisecond)})
			if err != nil {
				return err
			}
			work()
			return l.Release(ctx)
		},
	}
}

// Everybody gets turns, and nobody while another one has one.
func TestLocksOfOtherLibrariesAndOursExcludeOneAnotherAndNobodyStarves(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	turns := others(t, path)
	for _, name := range []string{"ours, first process", "ours, second process"} {
		locks, err := tier.New(start(t).tier)
		if err != nil {
			t.Fatal(err)
		}
		turns[name] = func(ctx context.Context, work func()) error {
			return locks.Mutex(path).Do(ctx, func(context.Context) error { work(); return nil })
		}
	}
	if err := outside(t).Set(soon(t), path, "theirs", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first := begin(t, start(t).at(t, path).Acquire)
	eventually(t, "theirs is seen by ours", func() bool { return outside(t).ZCard(soon(t), keysOf(path)[1]).Val() == 1 })
	if err := outside(t).Del(soon(t), path).Err(); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, first.must(t))
	ctx, cancel := context.WithTimeout(soon(t), 6*time.Second)
	defer cancel()
	var inside atomic.Int32
	counts := make(map[string]*atomic.Int64)
	var all sync.WaitGroup
	for name, turn := range turns {
		count := new(atomic.Int64)
		counts[name] = count
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					err := turn(soon(t), func() {
						if inside.Add(1) != 1 {
							t.Errorf("%s has a turn while another one has one", name)
						}
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						count.Add(1)
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	for name, count := range counts {
		t.Logf("%s: %d turns", name, count.Load())
		if count.Load() < 5 {
			t.Errorf("%s has had %d turns", name, count.Load())
		}
	}
}

func TestForeignLockIsWaitedForAndTriesFindItTaken(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	for name, turn := range others(t, l.path) {
		has, done := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() { ended <- turn(soon(t), func() { close(has); <-done }) }()
		<-has
		if _, err := l.TryAcquire(soon(t)); !errors.Is(err, second.ErrLocked) {
			t.Errorf("a try beside %s: %v, want ErrLocked", name, err)
		}
		w := queueAt(t, l)
		w.pending(t)
		queue, err := l.Contenders(soon(t))
		if err != nil || len(queue) != 2 || queue[0].ID == "" || queue[0].Token != 0 {
			t.Errorf("contenders beside %s: %+v, %v, want the foreign lock first", name, queue, err)
		}
		if err := l.Revoke(soon(t)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Revoke of the lock of %s: %v, want ErrUnsupported", name, err)
		}
		close(done)
		released := time.Now()
		c := w.must(t)
		if d := time.Since(released); d > time.Second {
			t.Errorf("granted %v after the lock of %s was free", d, name)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mustRelease(t, c)
	}
}

func TestForeignLockThatExpiresIsWaitedForNoLonger(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	if err := outside(t).Set(soon(t), l.path, "theirs", 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c := mustAcquire(t, l)
	if d := time.Since(begun); d < 290*time.Millisecond || d > 800*time.Millisecond {
		t.Errorf("granted after %v, want 300ms", d)
	}
	mustRelease(t, c)
}

func TestKeyOfAnotherTypeIsALockThatIsTaken(t *testing.T) {
	t.Parallel()
	l := start(t).at(t, lockPath(t))
	if err := outside(t).RPush(soon(t), l.path, "what", "ever").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(soon(t)); !errors.Is(err, second.ErrLocked) {
		t.Errorf("a try: %v, want ErrLocked", err)
	}
	w := queueAt(t, l)
	w.pending(t)
	outside(t).Del(soon(t), l.path)
	mustRelease(t, w.must(t))
}

// The key is theirs to see at all times: between two of ours it is never free.
func TestKeyGoesFromOneOfOursToTheNextAtOnce(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	a, b := start(t).at(t, path), start(t).at(t, path)
	c := mustAcquire(t, a)
	next := queueAt(t, b)
	ctx, cancel := context.WithCancel(soon(t))
	got := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if ok, _ := outside(t).SetNX(ctx, path, "theirs", time.Second).Result(); ok {
				n++
			}
		}
		got <- n
	}()
	for range 50 {
		l, old := a, c
		again := begin(t, func(ctx context.Context) (second.Grant, error) { return l.Requeue(ctx, old) })
		c = next.must(t)
		next, a, b = again, b, a
		eventually(t, "the other one queues", func() bool { return len(left(t, path)) == 2 })
	}
	cancel()
	if n := <-got; n != 0 {
		t.Errorf("somebody else has got the key %d times", n)
	}
	mustRelease(t, c)
	mustRelease(t, next.must(t))
}

func TestKeyIsThereForAsLongAsReadersAre(t *testing.T) {
	t.Parallel()
	a, b := start(t), start(t)
	reader := func(p *process) *queue.Contender {
		return mustAcquire(t, p.with(t, lockPath(t), second.Options{Mode: second.Reading}))
	}
	first, other := reader(a), reader(b)
	mustRelease(t, first)
	for range 3 { // more than a lease, over several heartbeats
		if n := outside(t).Exists(soon(t), lockPath(t)).Val(); n != 1 {
			t.Fatal("the key is free although there is a reader")
		}
		time.Sleep(ttl / 2)
	}
	if err := other.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, other)
	if n := outside(t).Exists(soon(t), lockPath(t)).Val(); n != 0 {
		t.Error("the key is there although nobody has the lock")
	}
}

// What an operator does with the key is done to the lock.
func TestHolderHearsThatItsKeyIsDeletedOrOverwritten(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(path string) error{
		"deleted":     func(path string) error { return outside(t).Del(soon(t), path).Err() },
		"overwritten": func(path string) error { return outside(t).Set(soon(t), path, "theirs", time.Second).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustAcquire(t, start(t).at(t, lockPath(t)))
			if err := strike(c.Ref().Path); err != nil {
				t.Fatal(err)
			}
			ended(t, "the loss", c.Context().Done(), ttl/3+ttl/8)
			wantErr(t, c.Err(), second.ErrLost)
			if cause := second.CauseOf(c.Err()); cause != second.ByDeletion {
				t.Errorf("lost by %s, want %s", cause, second.ByDeletion)
			}
			wantErr(t, c.Release(), second.ErrLost)
		})
	}
}

// Nothing else has a heartbeat for it: the first in the queue sees that the key is gone, and the
// holder is told by message.
func TestDeletedKeyGoesToTheNextOneWhoSeesIt(t *testing.T) {
	t.Parallel()
	a, b := start(t).at(t, lockPath(t)), start(t).at(t, lockPath(t))
	c := mustAcquire(t, a)
	outside(t).Del(soon(t), a.path)
	next := mustAcquire(t, b)
	ended(t, "the loss, by message", c.Context().Done(), ttl/8)
	mustRelease(t, next)
}

// A lock that nobody has seen gets its chance, too.
func TestKeyIsLeftFreeNowAndThenWhereNoForeignLockWasSeen(t *testing.T) {
	t.Parallel()
	path := lockPath(t) + rand.Text() // without a past
	a, b := start(t).at(t, path), start(t).at(t, path)
	c := mustAcquire(t, a)
	next := queueAt(t, b)
	theirs := func() bool { return outside(t).SetNX(soon(t), path, "theirs", 100*time.Millisecond).Val() }
	pass := func() {
		l, old := a, c
		again := begin(t, func(ctx context.Context) (second.Grant, error) { return l.Requeue(ctx, old) })
		eventually(t, "the requeue", func() bool {
			ids := left(t, path)
			return len(ids) == 2 && !slices.Contains(ids, old.Ref().ID)
		})
		if theirs() {
			t.Log("the key was free")
		}
		c = next.must(t)
		next, a, b = again, b, a
	}
	pass()
	if n := outside(t).HExists(soon(t), keysOf(path)[3], "foreign").Val(); n {
		t.Fatal("the key was free right after the first grant")
	}
	// As if ten seconds had gone by.
	if err := outside(t).HIncrBy(soon(t), keysOf(path)[3], "gap", -11e6).Err(); err != nil {
		t.Fatal(err)
	}
	pass()
	if n := outside(t).HExists(soon(t), keysOf(path)[3], "foreign").Val(); !n {
		t.Error("the key was not free for a moment")
	}
	mustRelease(t, c)
	mustRelease(t, next.must(t))
}
