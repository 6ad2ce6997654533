package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
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

// Everybody gets turns, and nobody while another one has one: also beside a process of ours where nobody but its goroutines can be
// seen to wait.
func TestLocksOfOtherLibrariesAndOursExcludeOneAnotherAndNobodyStarves(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	turns := others(t, path)
	ours := tier.New(start(t, tier.WithLeaseTTL(long)).tier).Mutex(path)
	turns["ours"] = func(ctx context.Context, work func()) error {
		return ours.Do(ctx, func(context.Context) error { work(); return nil })
	}
	var inside, starve atomic.Int32
	starve.Store(int32(len(turns)))
	var all sync.WaitGroup
	for name, turn := range turns {
		var count atomic.Int32
		for range 4 {
			all.Go(func() {
				for starve.Load() > 0 {
					err := turn(soon(t), func() {
						need.Equal(t, "how many have a turn with "+name, inside.Add(1), 1)
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						if count.Add(1) == 5 {
							starve.Add(-1)
						}
					})
					if err != nil {
						t.Errorf("%s, after %d turns: %v", name, count.Load(), err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func TestForeignLockIsWaitedForAndTriesFindItTaken(t *testing.T) {
	t.Parallel()
	l := start(t, tier.WithLeaseTTL(long), tier.WithLabel("<the label>")).with(t, lockPath(t), second.Options{MayLinger: time.Second})
	turns := others(t, lockPath(t))
	turns["a key of another type"] = func(ctx context.Context, work func()) error {
		err := outside(t).LPush(ctx, lockPath(t), "x").Err()
		work()
		return errors.Join(err, outside(t).Del(ctx, lockPath(t)).Err())
	}
	for name, turn := range turns {
		has, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() { ended <- turn(soon(t), func() { close(has); <-done }) }()
		<-has
		need.WantErr(t, "a try beside "+name, need.ErrOf(l.TryAcquire(soon(t))), second.ErrLocked)
		granted := queueAt(t, l)
		queue, err := l.Contenders(soon(t))
		need.Must(t, fmt.Sprintf("contenders beside %s: %+v, %v, want the foreign lock first", name, queue, err),
			err == nil && len(queue) == 2 && queue[0].ID != "" && queue[0].Token == 0)
		if q := queue[1]; q.Label != "<the label>" || q.Linger != time.Second || q.PID == 0 || q.Host == "" || time.Since(q.Since) > time.Hour {
			t.Errorf("%+v tells of itself", q)
		}
		need.WantErr(t, "Revoke of the lock of "+name, l.Revoke(soon(t)), errors.ErrUnsupported)
		close(done)
		c := granted.Must(t)
		need.WantErr(t, name, <-ended, nil)
		mustRelease(t, c)
	}
}

// One that ends with its expiry is waited for no longer than that, or than a tenth of a second: it tells nobody.
func TestWhoWaitsForAForeignLockLooksAgainInTime(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	c := p.anew(lockPath(t))
	for expiry, again := range map[time.Duration]time.Duration{
		time.Hour: 100 * time.Millisecond, 0: 100 * time.Millisecond, 90 * time.Millisecond: 91 * time.Millisecond,
	} {
		need.OK(t, outside(t).Set(soon(t), c.Path, "theirs", expiry).Err()) // without one if it is 0
		v := p.stands(t, queue.Enter, c, 0)
		if v.Again > again || expiry != 90*time.Millisecond && (v.Again < again || v.Has || v.Ahead != 1 || v.Nearest.ID != "theirs") {
			t.Errorf("an expiry of %v: %+v", expiry, v)
		}
	}
	// Its value is shown as a short line.
	outside(t).Set(soon(t), c.Path, "\x1b[2J\n\u202e\xff"+strings.Repeat("x", 1<<20), 0)
	all, err := p.at(t, c.Path).Contenders(soon(t))
	need.That(t, fmt.Sprintf("%.300q, %v", fmt.Sprint(all), err),
		err == nil && len(all) == 2 && strings.HasPrefix(all[0].ID, `\x1b[2J\n\u202e\xffxxx`) && len(all[0].ID) <= 300)
	outside(t).PExpire(soon(t), c.Path, 90*time.Millisecond)
	eventually(t, "the lock", func() bool { return p.stands(t, queue.Look, c, 0).Has })
	p.leaves(t, c)
}

// What an operator does with the key is done to the lock: the holder hears of it with the next heartbeat.
func TestHolderHearsThatItsKeyIsDeletedOrOverwritten(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	for name, strike := range map[string]func(key string) error{
		"deleted":     func(key string) error { return outside(t).Del(soon(t), key).Err() },
		"overwritten": func(key string) error { return outside(t).Set(soon(t), key, "theirs", time.Second).Err() },
	} {
		c := mustAcquire(t, p.at(t, lockPath(t)))
		need.OK(t, strike(lockPath(t)))
		eventually(t, "the loss", func() bool {
			p.tier.Renew() // anew, as one that is under way may have looked before
			return c.Err() != nil
		})
		need.Equal(t, name+": the cause of the loss", second.CauseOf(c.Err()), second.ByDeletion)
		need.WantMention(t, c.Err(), lockPath(t))
		wantErr(t, c.Release(), second.ErrLost)
	}
}

// Between two of ours the key is never free, but for 25 ms now and then: after ten seconds, or a tenth of one where a foreign lock
// was seen. The next one gets the lock after that, and whoever has it is told when.
func TestKeyIsLeftFreeNowAndThen(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b := p.anew(lockPath(t)), p.anew(lockPath(t))
	state := keysOf(a.Path)[3]
	v := p.stands(t, queue.Enter, a, 0)
	need.That(t, fmt.Sprintf("%+v", v), v.Has)
	need.Between(t, "until it leaves the key", v.Yield, time.Second, 10*time.Second)
	p.stands(t, queue.Enter, b, 0)
	pass := func() (next queue.View) { // from a to b
		t.Helper()
		again := p.anew(a.Path)
		p.does(t, queue.Command{Op: queue.Enter, Ref: again, Old: a})
		a, b = b, again
		return p.stands(t, queue.Look, a, 0)
	}
	need.That(t, "the lock does not come at once", pass().Has)
	for _, seen := range []bool{false, true} {
		since := 10 * time.Second
		if seen {
			since = 100 * time.Millisecond
			outside(t).HSet(soon(t), state, "foreign", time.Now().UnixMicro())
		}
		need.OK(t, outside(t).HIncrBy(soon(t), state, "gap", -since.Microseconds()-1).Err())
		need.Equal(t, "time to leave the key", p.stands(t, queue.Look, a, 0).Yield, time.Microsecond)
		pass()
		gap, err := outside(t).HGet(soon(t), state, "gap").Int64()
		d := time.Since(time.UnixMicro(gap))
		need.That(t, fmt.Sprintf("the key was not left free: for the last time %v ago, %v", d, err), err == nil && d >= 0 && d <= time.Minute)
		// A lock of another library may be as short: who looks only at the end of the gap does not see it, and the next gap is far.
		v := p.stands(t, queue.Look, a, 0)
		need.That(t, fmt.Sprintf("in the gap: %+v, want another look soon", v), v.Has || v.Again <= 2*time.Millisecond)
		eventually(t, "the next one gets it", func() bool { return p.stands(t, queue.Look, a, 0).Has })
		if v := p.stands(t, queue.Look, a, 0); seen && v.Yield > 100*time.Millisecond {
			t.Errorf("%+v, want to leave the key after a tenth of a second", v)
		}
	}
	p.leaves(t, b, a)
}
