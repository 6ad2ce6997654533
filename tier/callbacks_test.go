package tier_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// These are the ways in which a callback of the program may end.
var ends = map[string]func(){
	"panics":             func() { panic("a test") },
	"ends the goroutine": runtime.Goexit,
}

// The function survived runs f in a goroutine and waits until f has ended. A panic in f does no harm.
func survived(f func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		f()
	}()
	<-over
}

func TestLockIsFreeHoweverACallbackEnds(t *testing.T) {
	for how, end := range ends {
		each(t, map[string]func(*tier.Observer, func()){
			how + " in Waiting":  func(o *tier.Observer, f func()) { o.Waiting = func(context.Context, tier.Wait) { f() } },
			how + " in Acquired": func(o *tier.Observer, f func()) { o.Acquired = func(context.Context, tier.AcquiredEvent) { f() } },
			how + " in Failed":   func(o *tier.Observer, f func()) { o.Failed = func(context.Context, tier.FailedEvent) { f() } },
			how + " in Released": func(o *tier.Observer, f func()) { o.Released = func(context.Context, tier.ReleasedEvent) { f() } },
		}, func(t *testing.T, s *memory.Server, set func(*tier.Observer, func())) {
			o := tier.Observer{}
			set(&o, end)
			var gauge atomic.Int64 // each observer gets its events, whatever another observer does
			count := tier.Observer{
				Acquired: func(context.Context, tier.AcquiredEvent) { gauge.Add(1) },
				Released: func(context.Context, tier.ReleasedEvent) { gauge.Add(-1) },
			}
			locks := observed(t, s, o, tier.WithObserver(count))
			others := process(t, s)
			a, rw, sem := locks.Mutex("/locks/a"), locks.RWMutex("/locks/rw"), locks.Semaphore("/permits", 2)
			within := func(d time.Duration) context.Context { return need.Within(t, d) }
			for name, use := range map[string]func() error{
				"Do": func() error { return a.Do(within(3*time.Second), func(context.Context) error { return nil }) },
				"TryAcquire": func() error {
					hold, err := a.TryAcquire(t.Context())
					if err != nil {
						return err
					}
					return hold.Release()
				},
				"to read":    func() error { return rw.Reader().Do(within(3*time.Second), func(context.Context) error { return nil }) },
				"to write":   func() error { return rw.Writer().Do(within(3*time.Second), func(context.Context) error { return nil }) },
				"of permits": func() error { return sem.Do(within(3*time.Second), 2, func(context.Context) error { return nil }) },
				"of several": func() error {
					all, err := tier.AcquireAll(within(3*time.Second), locks.Mutex("/locks/0"), a)
					if err != nil {
						return err
					}
					return all.Release()
				},
			} {
				survived(func() { use() })
				for _, wait := range []time.Duration{2 * time.Second, time.Minute} { // granted late with the first wait, never with the second
					hold, write := acquire(t, others.Mutex("/locks/a")), acquire(t, others.RWMutex("/locks/rw").Writer())
					permits := take(t, others.Semaphore("/permits", 2), 2)
					time.AfterFunc(wait, func() { hold.Release(); write.Release(); permits.Release() })
					survived(func() { use() })
					time.Sleep(2 * time.Minute)
				}
				need.Equal(t, name+": holds whose end was not reported", gauge.Load(), 0)
			}
			for _, path := range []string{"/locks/0", "/locks/a", "/locks/rw", "permits of /permits"} {
				need.Empty(t, "left at "+path, s.Queue(path))
			}
			wantErr(t, "Shutdown of an idle registry", locks.Shutdown(within(time.Second)), nil)
		})
	}
}

func TestABundleIsReleasedHoweverACallbackEnds(t *testing.T) {
	each(t, ends, func(t *testing.T, s *memory.Server, end func()) {
		locks := observed(t, s, tier.Observer{Released: func(context.Context, tier.ReleasedEvent) { end() }})
		b := must(tier.AcquireAll(soon(t), locks.Mutex("/locks/a"), locks.Mutex("/locks/b")))(t)
		survived(func() { b.Release() })
		need.Empty(t, "left", s.Queue("/locks/a"))
	})
}

// Close returns in time even if a callback of the program hangs or calls Close.
func TestCloseReturnsWhateverCodeOfTheProgramDoes(t *testing.T) {
	for how, hangs := range map[string]bool{"hangs": true, "calls Close": false} {
		each(t, map[string]string{
			"Lost " + how: "Lost", "Connection " + how: "Connection", "Released in the background " + how: "Released", "the logger " + how: "logger",
			"the client of the store " + how: "client",
		}, func(t *testing.T, s *memory.Server, where string) {
			var locks *tier.Registry
			until, entered, made := make(chan struct{}), make(chan struct{}, 9), make(chan struct{})
			defer close(until)
			code := func(here string) {
				if here != where {
					return
				}
				entered <- struct{}{}
				if hangs {
					<-until
				} else {
					<-made // since a line may be logged before the registry exists
					<-locks.Done()
					closes(t, locks, nil)
				}
			}
			s.Logger = slog.New(calling{slog.DiscardHandler, func() { code("logger") }})
			o := tier.Observer{
				Lost:       func(context.Context, tier.LostEvent) { code("Lost") },
				Connection: func(tier.ConnectionEvent) { code("Connection") },
				Released:   func(context.Context, tier.ReleasedEvent) { code("Released") },
			}
			locks = tier.New(closing{s.Dial("", sessionTimeout, nil), func() {
				if hangs {
					code("client")
				}
			}}, tier.WithObserver(o))
			close(made)
			hold := acquire(t, locks.Mutex("/locks/a"))
			wantErr(t, "ReleaseAt", acquire(t, locks.Mutex("/locks/b")).ReleaseAt(time.Now().Add(time.Hour)), nil)
			s.Remove("/locks/a", 0) // the loss is logged
			synctest.Wait()
			var want error
			if where == "client" && hangs {
				want = errAtWork
			}
			closes(t, locks, want)
			calls := len(entered)
			time.Sleep(time.Minute)
			need.That(t, "a callback has begun after Close", where == "logger" || len(entered) == calls)
			need.That(t, "nothing was called", calls > 0 || where == "client" && !hangs)
			go hold.Release() // how long Release takes is not part of this test
		})
	}
}

var errAtWork = errors.New("still busy")

func closes(t *testing.T, locks *tier.Registry, want error) {
	t.Helper()
	begun := time.Now()
	err := locks.Close()
	took := time.Since(begun)
	need.That(t, fmt.Sprintf("Close has taken %v", took), took <= 6*time.Second)
	if want == nil {
		wantErr(t, "Close", err, nil)
	} else {
		need.WantMention(t, err, want.Error())
	}
}

// A calling handler calls f for each line that is logged.
type calling struct {
	slog.Handler
	f func()
}

func (calling) Enabled(context.Context, slog.Level) bool { return true }

func (c calling) Handle(context.Context, slog.Record) error {
	c.f()
	return nil
}
