package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// Every command takes a while, so that each instant is one between two lines. Whoever leaves at one leaves nothing.
func TestCallerMayLeaveAtEachInstant(t *testing.T) {
	const step = 10 * time.Millisecond
	slow := func(_ context.Context, _ Command, usual func() Answer) Answer {
		time.Sleep(step)
		a := usual()
		time.Sleep(step)
		return a
	}
	slowly := func(r reply) reply {
		return func(ctx context.Context, c Command, usual func() Answer) Answer {
			return slow(ctx, c, func() Answer { return r(ctx, c, usual) })
		}
	}
	failed := says(Answer{Outcome: Failed, Err: errRefused})
	for name, script := range map[string][]reply{
		"at once": {slow}, "after a wait": {slowly(waits)}, "failed first": {slowly(failed), slow},
		"lost first": {lost, slow}, "gone first": {slowly(says(Answer{Outcome: Gone})), slow},
		"refused":       {slowly(says(Answer{Outcome: Denied, Err: errRefused}))},
		"expired first": nil,
	} {
		for _, requeue := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, requeue %v", name, requeue), func(t *testing.T) {
				for at := step / 2; at < 14*step; at += step {
					synctest.Test(t, func(t *testing.T) { leaveAt(t, at, requeue, script, slow) })
				}
			})
		}
	}
}

func leaveAt(t *testing.T, at time.Duration, requeue bool, script []reply, slow reply) {
	f := newFake(t, Config{})
	f.Start()
	defer f.Close()
	synctest.Wait()
	l := f.claim(second.Exclusive)
	acquire := func(ctx context.Context) (second.Grant, error) { return l.Acquire(ctx, nil) }
	var old *Contender
	if requeue {
		old = f.acquire(second.Exclusive)
		acquire = func(ctx context.Context) (second.Grant, error) { return l.Requeue(ctx, old, nil) }
	}
	if script == nil {
		f.then(Enter, f.expired)
	}
	f.then(Enter, script...)
	f.then(Look, slow, slow)
	f.then(Leave, slow, slow)
	ctx, cancel := context.WithTimeout(t.Context(), at)
	defer cancel()
	g, err := acquire(ctx)
	if err == nil {
		g.Release()
	} else if ctx.Err() == nil && !errors.Is(err, errRefused) {
		t.Errorf("left at %v: %v", at, err)
	}
	if requeue {
		if err := old.AwaitRelease(); err != nil && !errors.Is(err, second.ErrLost) {
			t.Errorf("left at %v: the old one: %v", at, err)
		}
	}
	time.Sleep(2 * ttl)
	f.none()
}

// The first Enter of a requeue may have removed the old contender, or not, or may yet do so.
func TestRequeueWhoseEnterIsLost(t *testing.T) {
	for name, first := range map[string]reply{"executed": lost, "never executed": never} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				old := f.acquire(second.Exclusive)
				f.then(Enter, first)
				g, err := f.claim(second.Exclusive).Requeue(t.Context(), old, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := old.AwaitRelease(); err != nil {
					t.Errorf("the old one: %v", err)
				}
				for _, c := range f.ops(Enter)[1:] {
					if c.Old.ID != old.id || c.ID != g.(*Contender).id {
						t.Errorf("%+v is not the same again", c)
					}
				}
				g.Release()
				f.none()
			})
		})
	}
}

// The old one may be gone because of that, which is no loss.
func TestRequeueThatIsLeftBeforeItIsKnown(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		old := f.acquire(second.Exclusive)
		f.then(Enter, func(_ context.Context, _ Command, usual func() Answer) Answer {
			usual()
			return Answer{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := f.claim(second.Exclusive).Requeue(ctx, old, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want DeadlineExceeded", err)
		}
		if err := old.AwaitRelease(); err != nil || len(f.ops(Leave)) == 0 {
			t.Errorf("the old one: %v after %d commands", err, len(f.ops(Leave)))
		}
	})
}

// Whoever comes next would queue behind it.
func TestFailedRequeueReturnsWhenTheOldContenderIsGone(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		old := f.acquire(second.Exclusive)
		f.then(Enter, func(context.Context, Command, func() Answer) Answer {
			time.Sleep(100 * time.Millisecond)
			return Answer{Outcome: Failed, Err: errRefused}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := f.claim(second.Exclusive).Requeue(ctx, old, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		f.mu.Lock()
		if f.places[old.id] != 0 {
			t.Error("the old one still queues")
		}
		f.mu.Unlock()
		time.Sleep(ttl)
		f.none()
	})
}

func TestRequeueThatFindsTheOldContender(t *testing.T) {
	for name, c := range map[string]struct {
		answer       Answer
		lost         bool
		enter, leave int
	}{
		"gone":    {Answer{Outcome: Gone}, true, 2, 1}, // it may have been there: its own Leave tells
		"missing": {Answer{Outcome: Done, Removed: Missing}, true, 1, 0},
		"kept":    {Answer{Outcome: Done, Removed: Kept}, false, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				old := f.acquire(second.Exclusive)
				f.then(Enter, func(_ context.Context, cmd Command, usual func() Answer) Answer {
					if c.answer.Outcome == Gone {
						f.mu.Lock()
						delete(f.places, old.id)
						f.mu.Unlock()
						return c.answer
					}
					a := usual()
					a.Removed = c.answer.Removed
					if a.Removed == Kept {
						f.mu.Lock()
						f.places[old.id] = old.Token()
						f.mu.Unlock()
					}
					return a
				})
				g, err := f.claim(second.Exclusive).Requeue(t.Context(), old, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := old.AwaitRelease(); errors.Is(err, second.ErrLost) != c.lost {
					t.Errorf("the old one: %v", err)
				}
				if e, l := len(f.ops(Enter))-1, len(f.ops(Leave)); e != c.enter || l != c.leave {
					t.Errorf("entered %d times, left %d times; want %d, %d", e, l, c.enter, c.leave)
				}
				if n := len(f.ops(Enter)); f.ops(Enter)[n-1].Old.ID != "" && c.enter == 2 {
					t.Error("the next contender has an old one")
				}
				g.Release()
				f.none()
			})
		})
	}
}

// What was held is given up in any case, and at once.
func TestRequeueThatCannotBegin(t *testing.T) {
	for name, prevent := range map[string]func(f *fake, cancel func()){
		"left":   func(_ *fake, cancel func()) { cancel() },
		"away":   func(f *fake, _ func()) { f.then(Beat, never, never); f.missed(errAway) },
		"closed": func(f *fake, _ func()) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				old := f.acquire(second.Exclusive)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				prevent(f, cancel)
				if _, err := f.claim(second.Exclusive).Requeue(ctx, old, nil); err == nil || errors.Is(err, second.ErrLost) && name != "closed" {
					t.Errorf("Requeue: %v", err)
				}
				begun := time.Now()
				old.AwaitRelease()
				if d := time.Since(begun); d != 0 {
					t.Errorf("given up %v later", d)
				}
				time.Sleep(ttl)
				if name != "closed" {
					f.none()
				}
			})
		})
	}
}

// Who has never entered has nothing to remove.
func TestTryThatIsLockedIsOneCommand(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Try, says(Answer{Outcome: Locked}))
		if _, err := f.claim(second.Exclusive).TryAcquire(t.Context()); !errors.Is(err, second.ErrLocked) {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(f.ops(Try, Leave)); n != 1 {
			t.Errorf("%d commands", n)
		}
		f.none()
	})
}

// A store that needs two looks for a try may queue before it knows.
func TestTryThatHasEnteredBehindSomebodyIsUndone(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Try, waits)
		if _, err := f.claim(second.Exclusive).TryAcquire(t.Context()); !errors.Is(err, second.ErrLocked) {
			t.Error(err)
		}
		f.none()
	})
}

// Until then nobody knows whether the store can be reached.
func TestTryWaitsForTheFirstAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		first  reply
		within time.Duration
		want   error
	}{
		"in time": {late(time.Second / 2), time.Second, nil}, "too late": {late(time.Second / 2), time.Second / 4, context.DeadlineExceeded},
		"none": {never, time.Minute, errAway},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, Config{})
			f.then(Open, c.first)
			f.Start()
			defer f.Close()
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			if _, err := f.claim(second.Exclusive).TryAcquire(ctx); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		})
	}
}

func TestGrantIsGivenUpOnce(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		l := f.claim(second.Exclusive)
		h := f.acquire(second.Exclusive)
		g, err := l.Requeue(t.Context(), h, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); !errors.Is(err, second.ErrReleased) {
			t.Errorf("Release after Requeue: %v", err)
		}
		if _, err := l.Requeue(t.Context(), h, nil); !errors.Is(err, second.ErrReleased) {
			t.Errorf("Requeue after Requeue: %v", err)
		}
		if err := h.Err(); !errors.Is(err, second.ErrReleased) {
			t.Errorf("Err: %v", err)
		}
		g.Release()
		f.none()
	})
}

// Callers who come and go while the store does not answer do not pile up commands.
func TestNobodyEntersWhileTheStoreDoesNotAnswer(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.missed(errAway)
		f.then(Beat, never)
		synctest.Wait()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := f.claim(second.Exclusive).Acquire(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errAway) {
				t.Errorf("Acquire: %v, want the deadline, and why", err)
			}
			if _, err := f.claim(second.Exclusive).TryAcquire(t.Context()); !errors.Is(err, errAway) {
				t.Errorf("TryAcquire: %v", err)
			}
			cancel()
		}
		if n := len(f.ops(Enter, Try)); n != 0 {
			t.Errorf("%d commands", n)
		}
		h := f.acquire(second.Exclusive) // once it answers
		h.Release()
		f.none()
	})
}

// A command that is repeated until it is answered ends with its caller and with the tier, and not before.
func TestListAndAskAreRepeated(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		l := f.claim(second.Exclusive)
		f.then(List, never, says(Answer{Outcome: Failed}))
		f.then(Ask, never, says(Answer{Outcome: Denied, Err: errRefused}))
		if _, err := l.Contenders(t.Context()); err != nil || len(f.ops(List)) != 3 {
			t.Errorf("Contenders: %v after %d", err, len(f.ops(List)))
		}
		if err := l.Revoke(t.Context()); !errors.Is(err, errRefused) || len(f.ops(Ask)) != 2 {
			t.Errorf("Revoke: %v after %d", err, len(f.ops(Ask)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		f.then(List, never)
		if _, err := l.Contenders(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Contenders: %v", err)
		}
		if err := f.outage(); err != nil {
			t.Errorf("a caller who leaves says nothing of the store: %v", err)
		}
		f.Close()
		if _, err := l.Contenders(t.Context()); !errors.Is(err, second.ErrClosed) {
			t.Errorf("Contenders: %v", err)
		}
	})
}

// Callers who come and go while nobody can be removed pile up no contenders.
func TestNobodyEntersWhileTooManyCannotLeave(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Leave, slices.Repeat([]reply{says(Answer{Outcome: Failed})}, 20_000)...)
		for range 1024 {
			f.acquire(second.Exclusive).Release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := f.claim(second.Exclusive).Acquire(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		if n := len(f.ops(Enter)); n != 1024 {
			t.Errorf("%d have entered", n)
		}
	})
}

// That the old contender is gone may be told before it is known that the requeue was executed.
func TestRequeueThatIsLeftWhenItsWorkIsToldIsNoLoss(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		old := f.acquire(second.Exclusive)
		f.then(Enter, func(ctx context.Context, c Command, usual func() Answer) Answer {
			usual()
			f.Tell(View{ID: old.id, At: 100})
			return never(ctx, c, nil)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := f.claim(second.Exclusive).Requeue(ctx, old, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Requeue: %v", err)
		}
		if err := old.AwaitRelease(); err != nil {
			t.Errorf("the old one: %v", err)
		}
		time.Sleep(ttl)
		f.none()
	})
}

// While the store is known to be away nobody asks it but the renewal, which does so at once.
func TestCommandIsRepeatedWhenTheStoreAnswers(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(List, never)
		f.then(Beat, never, never)
		begun := time.Now()
		if _, err := f.claim(second.Exclusive).Contenders(t.Context()); err != nil || len(f.ops(List)) != 2 {
			t.Errorf("%v after %d commands", err, len(f.ops(List)))
		}
		if d := time.Since(begun).Round(time.Second); d != 3*time.Second {
			t.Errorf("answered after %v, want three seconds of silence", d)
		}
	})
}
