package tier_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A shared is a lock that lingers in the first of two processes, and that the second process wants, too.
type shared struct {
	t            *testing.T
	s            *memory.Server
	mine, theirs *tier.Mutex
	lingers      bool
	turns        int // acquisitions in the process where the lock lingers
	used, wasted int
}

// The function sharing runs f with two processes. In the first one, locks may linger for a minute.
func sharing(t *testing.T, f func(t *testing.T, s *memory.Server, lock func(path string) *shared)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *memory.Server) {
		here, _ := dial(t, s, "", tier.WithLinger(time.Minute))
		there := process(t, s)
		f(t, s, func(path string) *shared {
			return &shared{t: t, s: s, mine: here.Mutex(path), theirs: there.Mutex(path)}
		})
	})
}

// The method turn acquires and releases the lock in the first process.
func (l *shared) turn() {
	l.t.Helper()
	hold := acquire(l.t, l.mine)
	if l.lingers {
		l.used++
	}
	release(l.t, hold)
	synctest.Wait()
	l.lingers = len(l.s.Queue(l.mine.Path())) > 0
	l.turns++
}

// The method come acquires and releases the lock in the other process.
func (l *shared) come() {
	l.t.Helper()
	if l.lingers {
		l.wasted++
	}
	release(l.t, acquire(l.t, l.theirs))
	l.lingers = false
}

// The method contest lets both processes acquire the lock n times.
func (l *shared) contest(n int) {
	l.t.Helper()
	for range n {
		l.turn()
		l.come()
	}
}

// Whatever other processes do, lingering is rarely wasted: at most half as often as it is useful, plus five times, plus once in 256
// acquisitions.
func TestLingeringNeverCosts(t *testing.T) {
	rng, enough := rand.New(rand.NewPCG(1, 2)), 0
	sometimes := func(chance float64) func(*shared) bool { return func(*shared) bool { return rng.Float64() < chance } }
	need.Each(t, map[string]func(*shared) bool{
		"always":                           func(*shared) bool { return true },
		"when it lingers":                  func(l *shared) bool { return l.lingers },
		"every other time that it lingers": func(l *shared) bool { return l.lingers && l.used > l.wasted },
		"one of three times":               func(l *shared) bool { return l.lingers && l.used > 2*l.wasted },
		"now and then":                     sometimes(0.2),
		"a third of the time":              sometimes(0.33),
		"most of the time":                 sometimes(0.75),
		"until it lingers no more, and then when it has been used for 20 times": func(l *shared) bool {
			if !l.lingers {
				enough = l.used + 20
			}
			return l.lingers && l.used >= enough
		},
	}, func(t *testing.T, comes func(*shared) bool) {
		sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
			l := lock("/locks/a")
			for range 1500 {
				l.turn()
				if comes(l) {
					l.come()
				}
				if most := l.used/2 + 5 + l.turns/256; l.wasted > most {
					t.Fatalf("in %d turns %d lingerings were used and %d wasted, want at most %d", l.turns, l.used, l.wasted, most)
				}
			}
			t.Logf("in %d turns %d lingerings were used and %d wasted", l.turns, l.used, l.wasted)
		})
	})
}

// A lock that only one process wants lingers, even if another lock of that process is contended.
func TestLockThatOneProcessWantsLingers(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		private, contended := lock("/locks/a"), lock("/locks/b")
		for i := range 500 {
			private.turn()
			contended.contest(1)
			if !private.lingers {
				t.Fatalf("it does not linger after turn %d", i)
			}
			if i%20 == 19 {
				private.come()
			}
		}
	})
}

func TestLingeringThatEndsByItselfOrWithTheSessionIsNotWasted(t *testing.T) {
	sharing(t, func(t *testing.T, s *memory.Server, lock func(string) *shared) {
		for name, end := range map[string]func(path string){
			"by itself":        func(string) { <-time.After(time.Minute) },
			"with the session": func(path string) { s.Expire(path, 0) },
		} {
			for range 5 {
				l := lock("/locks/a")
				if l.turn(); !l.lingers {
					t.Fatalf("it does not linger, although only %s has ended the lingering before", name)
				}
				end(l.mine.Path())
				synctest.Wait()
			}
		}
	})
}

// If other processes do not want the lock any more, it lingers again after at most 255 acquisitions, and from then on always.
func TestLockLingersAgainWhenOthersStayAway(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		known := lock("/locks/a")
		known.contest(1000)
		for _, l := range []*shared{known, lock("/locks/b")} {
			begun := l.turns
			for !l.lingers {
				l.turn()
			}
			need.AtMost(t, l.mine.Path()+": turns without others until it lingers", l.turns-begun, 256)
			for range 10 {
				if l.turn(); !l.lingers {
					t.Fatalf("%s does not linger, though that was used", l.mine.Path())
				}
			}
		}
	})
}

// When other processes begin to want a lock, it stops lingering soon, even if lingering was useful many times: after 33 wasted times, or
// after 5 at another path.
func TestLingeringEndsSoonWhenOthersCome(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		private, other := lock("/locks/a"), lock("/locks/b")
		for range 1000 {
			private.turn()
		}
		other.contest(200)
		for range 1000 {
			private.turn()
		}
		private.contest(200)
		need.AtMost(t, "wasted lingerings", other.wasted, 5)
		need.AtMost(t, "wasted lingerings where it was used before", private.wasted, 33)
	})
}

// One wasted case is not enough evidence. If a process has no experience yet, its lock still lingers after another process has wanted it
// once.
func TestLingeringGoesOnAfterItWasWastedOnce(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		l := lock("/locks/a")
		l.contest(1)
		l.turn()
		need.That(t, "it does not linger after it was wasted once", l.lingers)
	})
}

// A process remembers a limited number of paths. A forgotten path costs less when it comes back, because each new path starts with the
// recent experience of all others.
func TestManyPathsTeachEachOther(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		const fruitful = 20
		var locks []*shared
		for i := range 4200 {
			l := lock(fmt.Sprint("/locks/", i))
			for l.used < 80 && i < fruitful {
				l.turn()
			}
			locks = append(locks, l)
		}
		wasted := 0
		for _, l := range locks[fruitful:] {
			l.contest(1)
			wasted += l.wasted
		}
		need.AtMost(t, "wasted lingerings at new paths", wasted, 33)
		for _, l := range locks[:fruitful] {
			l.contest(40)
		}
		need.Between(t, "paths that are known", tier.Known(locks[0].mine), fruitful, 4096)
		need.Equal(t, "paths that are known where nothing lingers", tier.Known(locks[0].theirs), 0)
		private := lock("/locks/a")
		for private.used < 80 {
			private.turn()
		}
		next := lock("/locks/b")
		next.turn()
		need.That(t, "lingering was used 80 times, and a new path does not begin with it", next.lingers)
	})
}

// Many contended locks may linger before the process has any experience. Then lingering is wasted once for each of these locks, and twice
// for the first one.
func TestLocksThatLingerAtTheSameTimeTeachEachOther(t *testing.T) {
	sharing(t, func(t *testing.T, _ *memory.Server, lock func(string) *shared) {
		var locks []*shared
		for i := range 50 {
			l := lock(fmt.Sprint("/locks/", i))
			l.turn()
			locks = append(locks, l)
		}
		wasted := 0
		for _, l := range locks {
			l.come()
			l.contest(20)
			wasted += l.wasted
		}
		need.AtMost(t, "wasted lingerings at 50 locks", wasted, 51)
	})
}
