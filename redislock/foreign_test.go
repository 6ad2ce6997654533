package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// Other libraries send no notifications. A waiter therefore polls a lock of another library: when that lock expires, and at least every
// tenth of a second.
func TestWhoWaitsForAForeignLockLooksAgainInTime(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	c := p.anew(lockPath(t))
	for expiry, again := range map[time.Duration]time.Duration{
		time.Hour: 100 * time.Millisecond, 0: 100 * time.Millisecond, 90 * time.Millisecond: 91 * time.Millisecond,
	} {
		need.OK(t, outside(t).Set(soon(t), c.Path, "theirs", expiry).Err()) // with an expiry of 0, the key never expires
		v := p.stands(t, queue.Enter, c, 0)
		if v.Again > again || expiry != 90*time.Millisecond && (v.Again < again || v.Has || v.Ahead != 1 || v.Nearest.ID != "theirs") {
			t.Errorf("an expiry of %v: %+v", expiry, v)
		}
	}
	// Contenders shows the value of the key as one short line.
	outside(t).Set(soon(t), c.Path, "\x1b[2J\n\u202e\xff"+strings.Repeat("x", 1<<20), 0)
	all, err := p.at(t, c.Path).Contenders(soon(t))
	need.That(t, fmt.Sprintf("%.300q, %v", fmt.Sprint(all), err),
		err == nil && len(all) == 2 && strings.HasPrefix(all[0].ID, `\x1b[2J\n\u202e\xffxxx`) && len(all[0].ID) <= 300)
	outside(t).PExpire(soon(t), c.Path, 90*time.Millisecond)
	eventually(t, "the lock", func() bool { return p.stands(t, queue.Look, c, 0).Has })
	p.leaves(t, c)
}

// If an operator deletes or overwrites the key, the holder learns of it with the next heartbeat.
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
			p.tier.Renew() // requested each time, because a renewal under way may have read the key before
			return c.Err() != nil
		})
		need.Equal(t, name+": the cause of the loss", second.CauseOf(c.Err()), second.ByDeletion)
		need.WantMention(t, c.Err(), lockPath(t))
		wantErr(t, c.Release(), second.ErrLost)
	}
}

// When the lock goes from one holder of this package to the next, the key is usually never free. But every ten seconds it is left free for
// 25 ms, so that other libraries can take it. Once a lock of another library was seen, that happens every tenth of a second. The next
// contender gets the lock after the gap, and its view shows when.
func TestKeyIsLeftFreeNowAndThen(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b := p.anew(lockPath(t)), p.anew(lockPath(t))
	state := keysOf(a.Path)[3]
	v := p.stands(t, queue.Enter, a, 0)
	need.That(t, fmt.Sprintf("%+v", v), v.Has)
	need.Between(t, "until it leaves the key", v.Yield, time.Second, 10*time.Second)
	p.stands(t, queue.Enter, b, 0)
	pass := func() (next queue.View) { // passes the lock from a to b
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
		// Another library may hold its lock for less time than the gap lasts. A waiter has to poll within the gap to see such a lock.
		// Otherwise the next gap would come only after ten seconds.
		v := p.stands(t, queue.Look, a, 0)
		need.That(t, fmt.Sprintf("in the gap: %+v, want another look soon", v), v.Has || v.Again <= 2*time.Millisecond)
		eventually(t, "the next one gets it", func() bool { return p.stands(t, queue.Look, a, 0).Has })
		if v := p.stands(t, queue.Look, a, 0); seen && v.Yield > 100*time.Millisecond {
			t.Errorf("%+v, want to leave the key after a tenth of a second", v)
		}
	}
	p.leaves(t, b, a)
}
