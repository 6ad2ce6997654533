package lease_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/lease"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A contender records the losses that the lease reports to it.
type contender struct {
	onLose func()

	mu   sync.Mutex // guards the field below
	loss error
}

// Lose records a loss. If it is called twice, both reasons are recorded, and the test fails.
func (c *contender) Lose(reason error) {
	c.mu.Lock()
	c.loss = errors.Join(c.loss, reason)
	c.mu.Unlock()
	if c.onLose != nil {
		c.onLose()
	}
}

func (c *contender) IsLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss != nil
}

const term = 10 * time.Second

// A bubble is a test in virtual time. It has a running lease and three contenders.
type bubble struct {
	*testing.T
	*lease.Lease[*contender]
	a, b, c contender
	vouch   bool
	looks   atomic.Int64 // counts how often the lease was checked
	clock   *clock.Clock
}

func play(t *testing.T, term time.Duration, test func(*bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, vouch: true, clock: clock.New()}
		b.Lease = lease.New[*contender](lease.Config{Name: "session 7", Clock: b.clock, Vouches: func() bool {
			b.looks.Add(1)
			return b.vouch
		}}, 0, term)
		test(b)
	})
}

func (b *bubble) enrol(contenders ...*contender) {
	b.Helper()
	for _, c := range contenders {
		need.OK(b, b.Enrol(c))
	}
}

func (b *bubble) hold(contenders ...*contender) {
	b.Helper()
	b.enrol(contenders...)
	for _, c := range contenders {
		need.That(b, "not held", b.Hold(c))
	}
}

// want checks which of the contenders are lost.
func (b *bubble) want(a, second, third bool) {
	b.Helper()
	synctest.Wait()
	need.Equal(b, "lost", [3]bool{b.a.IsLost(), b.b.IsLost(), b.c.IsLost()}, [3]bool{a, second, third})
}

// wantAt checks that no contender is lost just before the given time, and that exactly the given ones are lost then.
func (b *bubble) wantAt(after time.Duration, a, second, third bool) {
	b.Helper()
	time.Sleep(after - 1)
	b.want(false, false, false)
	time.Sleep(1)
	b.want(a, second, third)
}

func TestHoldsAreLostWhenTheTermIsOverAndNotBefore(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a, &b.b)
		b.enrol(&b.c)
		b.enrol(&b.a) // enrolling a holder again changes nothing
		need.That(t, "not valid before", b.Valid())
		b.wantAt(term, true, true, false)
		need.WantErr(t, "the loss", b.a.loss, second.ErrLost)
		need.Equal(t, "the reason", b.a.loss.Error(), "lock lost: the lease of session 7 has ended")
		if all := b.Contenders(); b.Valid() || len(all) != 3 || all[&b.a] || all[&b.b] || all[&b.c] {
			t.Errorf("valid %t, held, of all: %v", b.Valid(), all)
		}
	})
}

func TestLeaseRunsFromWhatTheStoreHasHeard(t *testing.T) {
	play(t, term, func(b *bubble) {
		time.Sleep(time.Minute)
		l := lease.New[*contender](lease.Config{Clock: b.clock}, time.Minute-time.Second, term)
		need.Equal(t, "the rest of the lease", l.Remaining(), term-time.Second)
	})
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		time.Sleep(8 * time.Second)
		b.Renew(5 * time.Second)
		b.Renew(3 * time.Second) // an older answer that arrives later
		b.wantAt(7*time.Second, true, false, false)
	})
}

// In a paused process, no timer fires. A renewal that arrives after the end of the lease must still end the holds.
func TestRenewalThatComesTooLateRevivesNoHold(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		b.StopWatchdog()
		time.Sleep(term)
		b.Renew(9 * time.Second)
		b.want(true, false, false)
		need.That(t, "the lease did not come back for waiters", b.Valid())
		need.That(t, "a lost hold is held again", !b.Hold(&b.a))
		b.hold(&b.b)
	})
}

func TestNothingIsHeldWithoutLease(t *testing.T) {
	play(t, term, func(b *bubble) {
		need.That(t, "held without being enrolled", !b.Hold(&b.c))
		b.enrol(&b.a, &b.b)
		b.a.Lose(errors.New("its node is gone"))
		need.That(t, "held although its node is gone", !b.Hold(&b.a))
		time.Sleep(term)
		need.That(t, "held although the lease has run out", !b.Hold(&b.b))
	})
}

func TestSessionThatNobodyVouchesForHoldsNothing(t *testing.T) {
	play(t, lease.Forever, func(b *bubble) {
		b.hold(&b.a)
		time.Sleep(100 * 24 * time.Hour)
		need.That(t, "time has ended it", b.Valid())
		b.vouch = false
		b.Lapse()
		need.That(t, "not lost", b.a.IsLost() && !b.Valid())
	})
}

func TestShorterTermCountsAtOnceAndALongerOneNever(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		b.Shorten(4 * time.Second)
		b.Shorten(20 * time.Second)
		b.wantAt(4*time.Second, true, false, false)
	})
}

func TestWhatHasLeftIsNotLost(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a, &b.b)
		reason := errors.New("not ours any more")
		for _, c := range []*contender{&b.a, &b.a, &b.c} {
			b.Leave(c)
			b.Lose(c, reason)
		}
		b.wantAt(term, false, true, false)
		b.Lose(&b.b, reason)
		need.WantErr(t, "a contender that has not left", b.b.loss, reason)
	})
}

// The end of the session also reaches waiters, because their places in the queue are lost. After that, no contender can become a holder.
func TestEndOfTheSessionLosesAllOnce(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		b.enrol(&b.b)
		expired := errors.New("expired")
		need.That(t, "over", !b.Over())
		b.End(expired)
		b.End(errors.New("again"))
		b.want(true, true, false)
		need.That(t, "not over", b.Over())
		need.Equal(t, "the reason, once", b.b.loss.Error(), "lock lost: session 7: expired")
		need.WantErr(t, "the loss", b.a.loss, second.ErrLost)
		need.WantErr(t, "enrolled after the end", b.Enrol(&b.c), expired)
		b.b.loss = nil
		need.That(t, "held after the end", !b.Hold(&b.b))
	})
}

// Timers stop while a machine sleeps. The lease itself has to notice the end soon after the sleep, because no other code of this test reads
// the clock.
func TestHoldsAreLostSoonAfterASleepThatOutlastedTheTerm(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a, &b.b)
		b.enrol(&b.c)
		b.clock.Suspend(term - 2*time.Second)
		time.Sleep(time.Second)
		b.want(false, false, false)
		b.clock.Suspend(time.Second)
		need.That(t, "the first look finds it valid", !b.Valid())
		time.Sleep(250 * time.Millisecond)
		b.want(true, true, false)
	})
}

func TestAStepOfTheWallClockEndsNoLease(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		b.clock.Step(time.Hour)
		b.wantAt(term, true, false, false)
	})
}

// In this test the wall clock does not show the sleep. Only the renewal can detect it.
func TestARenewalRevivesNoHoldThatASleepHasEnded(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a)
		time.Sleep(time.Second)
		b.clock.Suspend(term)
		b.clock.Step(-term)
		need.That(t, "the sleep shows, so this test shows nothing", b.Valid())
		b.Renew(time.Second)
		b.want(true, false, false)
	})
}

// Lapse ends all holds in one step. A goroutine that checks them at the same moment finds all of them lost, or none.
func TestLapseIsSeenWhole(t *testing.T) {
	play(t, term, func(b *bubble) {
		b.hold(&b.a, &b.b, &b.c)
		b.StopWatchdog()
		time.Sleep(term)
		whole := make(chan bool, 1)
		other := sync.OnceFunc(func() {
			go func() {
				b.Lapse() // waits for the call of Lapse that is under way
				whole <- b.a.IsLost() && b.b.IsLost() && b.c.IsLost()
			}()
			for range 1000 { // synctest.Wait cannot be used, because the other goroutine blocks on a mutex
				runtime.Gosched()
			}
		})
		b.a.onLose, b.b.onLose, b.c.onLose = other, other, other
		b.Lapse()
		need.That(t, "not all are lost", <-whole)
	})
}

// A lease without a hold keeps no timer. Otherwise a process that takes a lock ten thousand times within a term would keep ten thousand
// timers.
func TestLeaseThatCoversNoHoldHasNoTimer(t *testing.T) {
	play(t, 2*term, func(b *bubble) {
		b.hold(&b.a, &b.b)
		b.Leave(&b.a)
		b.Leave(&b.b)
		time.Sleep(term)
		b.hold(&b.c)
		b.wantAt(term, false, false, true)
	})
	play(t, term, func(b *bubble) {
		b.hold(&b.a, &b.b)
		b.Leave(&b.a)
		b.Leave(&b.b)
		b.looks.Store(0)
		time.Sleep(term - 1)
		synctest.Wait()
		need.Equal(t, "looks after the last hold", b.looks.Load(), 0)
	})
}
