package lease_test

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
	"github.com/tierlock/tierlock/internal/second"
)

// books keeps what a lease says of contenders, which are words here.
type books struct {
	start  time.Time
	vouch  bool
	onLose func()

	mu     sync.Mutex // guards the field below
	losses map[string]error
}

func (b *books) loss(c string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.losses[c]
}

// lose notes a loss. A second one of the same contender shows in the reason.
func (b *books) lose(c string, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.losses[c] = errors.Join(b.losses[c], reason)
}

// lost returns what is lost, in alphabetical order.
func (b *books) lost() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.losses))
}

func (b *books) config() lease.Config[string] {
	return lease.Config[string]{
		Name:    "session 7",
		Now:     func() time.Duration { return time.Since(b.start) },
		Vouches: func() bool { return b.vouch },
		Lost:    func(c string) bool { return b.loss(c) != nil },
		Lose: func(c string, reason error) {
			b.lose(c, reason)
			if b.onLose != nil {
				b.onLose()
			}
		},
	}
}

const term = 10 * time.Second

// bubble runs f with a lease that has begun, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, b *books, l *lease.Lease[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &books{start: time.Now(), vouch: true, losses: make(map[string]error)}
		f(t, b, lease.New(b.config(), 0, term))
	})
}

func enrol(t *testing.T, l *lease.Lease[string], contenders ...string) {
	t.Helper()
	for _, c := range contenders {
		if err := l.Enrol(c); err != nil {
			t.Fatalf("%s is not enrolled: %v", c, err)
		}
	}
}

func hold(t *testing.T, l *lease.Lease[string], contenders ...string) {
	t.Helper()
	enrol(t, l, contenders...)
	for _, c := range contenders {
		if !l.Hold(c) {
			t.Fatalf("%s is not held", c)
		}
	}
}

func held(l *lease.Lease[string]) (held []string) {
	for c, h := range l.Contenders() {
		if h {
			held = append(held, c)
		}
	}
	slices.Sort(held)
	return held
}

// wantLost checks that nothing is lost before some time is over, and these are then.
func (b *books) wantLost(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after - 1)
	if synctest.Wait(); len(b.lost()) != 0 {
		t.Fatalf("lost before its time: %v", b.lost())
	}
	time.Sleep(1)
	if synctest.Wait(); !slices.Equal(b.lost(), want) {
		t.Errorf("lost after %v: %v, want %v", after, b.lost(), want)
	}
}

func TestHoldsAreLostWhenTheTermIsOverAndNotBefore(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a", "b")
		enrol(t, l, "waits")
		if !l.Valid() {
			t.Error("not valid before")
		}
		b.wantLost(t, term, "a", "b")
		if !errors.Is(b.loss("a"), second.ErrLost) || b.loss("a").Error() != "lock lost: the lease of session 7 ran out" {
			t.Errorf("reason: %v", b.loss("a"))
		}
		if l.Valid() || held(l) != nil || len(l.Contenders()) != 3 {
			t.Errorf("valid %t, held, of all: %v", l.Valid(), l.Contenders())
		}
	})
}

// A process that was stopped runs no timer.
func TestLossIsFoundWithoutATimerAndOnlyAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		l.StopWatchdog()
		if l.Lapse(); len(b.lost()) != 0 {
			t.Fatalf("lost while the lease runs: %v", b.lost())
		}
		time.Sleep(term)
		if l.Valid() || len(b.lost()) != 0 {
			t.Fatal("not yet to be lost")
		}
		if l.Lapse(); b.loss("a") == nil {
			t.Error("not lost")
		}
	})
}

func TestRenewedLeaseRunsFromWhatTheStoreHasHeard(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		time.Sleep(8 * time.Second)
		l.Renew(5 * time.Second)
		l.Renew(3 * time.Second) // an older answer that comes later
		b.wantLost(t, 7*time.Second, "a")
	})
}

func TestRenewalThatComesTooLateRevivesNoHold(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		l.StopWatchdog()
		time.Sleep(term)
		l.Renew(9 * time.Second)
		if b.loss("a") == nil {
			t.Error("the hold came back")
		}
		if !l.Valid() {
			t.Error("the lease did not come back, for those who wait")
		}
		if l.Hold("a") {
			t.Error("what is lost is held again")
		}
		hold(t, l, "b")
	})
}

func TestNothingIsHeldWithoutLease(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		if l.Hold("stranger") {
			t.Error("held without being enrolled")
		}
		enrol(t, l, "a", "b")
		b.lose("a", errors.New("its node is gone"))
		if l.Hold("a") {
			t.Error("held although its node is gone")
		}
		if time.Sleep(term); l.Hold("b") {
			t.Error("held although the lease has run out")
		}
	})
}

func TestSessionThatNobodyVouchesForHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, _ *lease.Lease[string]) {
		l := lease.New(b.config(), 0, lease.Forever)
		hold(t, l, "a")
		time.Sleep(100 * 24 * time.Hour)
		if !l.Valid() {
			t.Fatal("time has ended it")
		}
		b.vouch = false
		if l.Lapse(); b.loss("a") == nil || l.Valid() {
			t.Error("not lost")
		}
	})
}

func TestShorterTermCountsAtOnceAndALongerOneNever(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		l.Shorten(4 * time.Second)
		l.Shorten(20 * time.Second)
		b.wantLost(t, 4*time.Second, "a")
	})
}

func TestWhatHasLeftIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a", "b")
		for _, c := range []string{"a", "a", "stranger"} {
			l.Leave(c)
			l.Lose(c, errors.New("not ours any more"))
		}
		if got := held(l); !slices.Equal(got, []string{"b"}) {
			t.Errorf("held: %v", got)
		}
		b.wantLost(t, term, "b")
	})
}

func TestWhatIsThereCanBeLostBeforeTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a", "b")
		reason := errors.New("not ours any more")
		l.Lose("b", reason)
		if got := b.lost(); !slices.Equal(got, []string{"b"}) || !errors.Is(b.loss("b"), reason) {
			t.Errorf("lost %v, want b", got)
		}
	})
}

// Whoever waits must hear of it, too: its place in the queue is gone.
func TestEndOfTheSessionLosesAllOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		enrol(t, l, "waits")
		expired := errors.New("expired")
		if l.Over() {
			t.Fatal("over")
		}
		l.End(expired)
		l.End(errors.New("again"))
		if got := b.lost(); !slices.Equal(got, []string{"a", "waits"}) || !l.Over() {
			t.Errorf("lost %v, want all", got)
		}
		if got := b.loss("waits").Error(); got != "lock lost: session 7: expired" || !errors.Is(b.loss("a"), second.ErrLost) {
			t.Errorf("reason %q, want it once", got)
		}
		if err := l.Enrol("late"); !errors.Is(err, expired) {
			t.Errorf("enrolled after the end: %v", err)
		}
		if l.Hold("waits") {
			t.Error("held after the end")
		}
	})
}

// Whatever is said of the contender itself.
func TestNothingIsHeldOnceTheSessionIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, _ *lease.Lease[string]) {
		config := b.config()
		config.Lost = func(string) bool { return false }
		l := lease.New(config, 0, term)
		enrol(t, l, "a")
		l.End(errors.New("expired"))
		if l.Hold("a") {
			t.Error("held after the end")
		}
	})
}

// As when a node is looked up that was granted meanwhile.
func TestEnrolledAgainIsStillHeld(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a")
		enrol(t, l, "a")
		if !slices.Equal(held(l), []string{"a"}) {
			t.Fatalf("held: %v; want a", held(l))
		}
		b.wantLost(t, term, "a")
	})
}

// Whoever looks at the same moment finds all lost: a lapse is one step.
func TestLapseIsSeenWhole(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, l *lease.Lease[string]) {
		hold(t, l, "a", "b", "c")
		l.StopWatchdog()
		time.Sleep(term)
		other := make(chan int, 1)
		b.onLose = func() {
			b.onLose = nil
			go func() {
				l.Lapse() // waits for the one that is under way
				other <- len(b.lost())
			}()
			for range 1000 { // it blocks on a mutex, which no bubble waits for
				runtime.Gosched()
			}
		}
		l.Lapse()
		if n := <-other; n != 3 {
			t.Errorf("%d of 3 are lost", n)
		}
	})
}

// A process that takes a lock ten thousand times within a term would keep as many timers.
func TestLeaseThatCoversNoHoldHasNoTimer(t *testing.T) {
	bubble(t, func(t *testing.T, b *books, _ *lease.Lease[string]) {
		config, looks := b.config(), 0
		now := config.Now
		config.Now = func() time.Duration {
			looks++
			return now()
		}
		l := lease.New(config, 0, term)
		hold(t, l, "a", "b")
		l.Leave("a")
		l.Leave("b")
		looks = 0
		time.Sleep(2 * term)
		if synctest.Wait(); looks > 0 {
			t.Errorf("the clock was read %d times after the last hold, want 0", looks)
		}
		l = lease.New(config, now(), term)
		hold(t, l, "a")
		l.Leave("a")
		hold(t, l, "c")
		b.wantLost(t, term, "c")
	})
}
