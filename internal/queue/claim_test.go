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
	"github.com/tierlock/tierlock/internal/test/need"
)

// Every command takes a while in this test, and the caller leaves at each possible point of an acquisition. In no case may a contender stay
// in the queue.
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
					play(t, Config{}, func(t *testing.T, f *fake) { leaveAt(t, f, at, requeue, script, slow) })
				}
			})
		}
	}
}

func leaveAt(t *testing.T, f *fake, at time.Duration, requeue bool, script []reply, slow reply) {
	l := f.claim(second.Exclusive)
	acquire := func(ctx context.Context) (second.Grant, error) { return l.Acquire(ctx, new(second.Wait)) }
	var old *Contender
	if requeue {
		old = f.acquire(second.Exclusive)
		acquire = func(ctx context.Context) (second.Grant, error) { return l.Requeue(ctx, old, new(second.Wait)) }
	}
	if script == nil {
		f.then(Enter, f.expired)
	}
	f.then(Enter, script...)
	f.then(Look, slow, slow)
	f.then(Leave, slow, slow)
	ctx, begun := within(t, at), time.Now()
	g, err := acquire(ctx)
	waited := time.Since(begun)
	need.That(t, fmt.Sprintf("left at %v, and waited for %v", at, waited), waited <= at || requeue)
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

// A caller may stop waiting for a Requeue. By then, its first Enter may have removed the old contender, or not, or may remove it later.
func TestWhatARequeueMakesOfTheOldContender(t *testing.T) {
	for name, c := range map[string]struct {
		enter  func(f *fake, old *Contender) reply
		lost   bool // the old contender is lost
		enters int
		leaves int
	}{
		"executed":       {func(*fake, *Contender) reply { return lost }, false, 2, 0},
		"never executed": {func(*fake, *Contender) reply { return never }, false, 2, 0},
		"missing":        {func(*fake, *Contender) reply { return but(func(a *Answer) { a.Removed = Missing }) }, true, 1, 0},
		"kept": {func(f *fake, old *Contender) reply {
			return func(_ context.Context, _ Command, usual func() Answer) Answer {
				a := usual()
				f.mu.Lock()
				defer f.mu.Unlock()
				f.places[old.id], a.Removed = old.Token(), Kept
				return a
			}
		}, false, 1, 1},
		"gone": {func(f *fake, old *Contender) reply { // the answer to the old contender's own Leave shows whether it was there
			f.remove(old.id)
			return says(Answer{Outcome: Gone})
		}, true, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				old := f.acquire(second.Exclusive)
				f.then(Enter, c.enter(f, old))
				g := need.Get(f.claim(second.Exclusive).Requeue(t.Context(), old, new(second.Wait)))(t)
				need.Equal(t, "a loss of the old one", errors.Is(old.AwaitRelease(), second.ErrLost), c.lost)
				enters := f.ops(Enter)[1:]
				need.Equal(t, "entered", len(enters), c.enters)
				need.Equal(t, "left", len(f.ops(Leave)), c.leaves)
				first, last := enters[0], enters[len(enters)-1]
				if anew := name == "gone"; last.ID != g.(*Contender).id || (last.ID != first.ID) != anew || (last.Old.ID == "") != anew {
					t.Errorf("entered by %+v, then by %+v; want another one without an old one: %v", first, last, anew)
				}
				g.Release()
				f.none()
			})
		})
	}
}

// A Requeue that fails may have removed the old contender, which is no loss. It returns only when the old contender is removed. Otherwise a
// new acquisition would queue behind the old contender.
func TestRequeueThatFails(t *testing.T) {
	type enter func(ctx context.Context, f *fake, old *Contender, usual func() Answer) Answer
	type row struct {
		enter enter
		want  error
	}
	each(t, map[string]row{
		"left before it is known": {func(_ context.Context, _ *fake, _ *Contender, usual func() Answer) Answer {
			usual()
			return Answer{}
		}, context.DeadlineExceeded},
		"left, and not executed": {func(context.Context, *fake, *Contender, func() Answer) Answer {
			time.Sleep(100 * time.Millisecond)
			return Answer{Outcome: Failed, Err: errRefused}
		}, context.DeadlineExceeded},
		"left when its work was told": {func(ctx context.Context, f *fake, old *Contender, usual func() Answer) Answer {
			usual()
			f.Tell(View{ID: old.id, At: 100})
			return never(ctx, Command{}, nil)
		}, context.DeadlineExceeded},
		"begun and refused": {func(_ context.Context, _ *fake, _ *Contender, usual func() Answer) Answer {
			usual()
			return Answer{Outcome: Denied, Begun: true, Err: errRefused}
		}, errRefused},
	}, func(t *testing.T, f *fake, c row) {
		old := f.acquire(second.Exclusive)
		f.then(Enter, func(ctx context.Context, _ Command, usual func() Answer) Answer { return c.enter(ctx, f, old, usual) })
		wantErr(t, "Requeue", need.ErrOf(f.claim(second.Exclusive).Requeue(within(t, time.Millisecond), old, nil)), c.want)
		need.That(t, "the old one still queues", !f.queues(old))
		wantErr(t, "the old one", old.AwaitRelease(), nil)
		time.Sleep(ttl)
		f.none()
	})
}

// A lost grant removes its contender itself. The Enter of a Requeue must not remove that contender, too, because a late second removal
// could hit a later contender.
func TestAGrantThatIsLostIsRemovedByItselfWhenItIsRequeued(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		old := f.acquire(second.Exclusive)
		f.many(Beat, 5, never)
		<-old.Context().Done()
		need.Must(t, "its lease has not run out: "+fmt.Sprint(old.Err()), errors.Is(old.Err(), second.ErrLost))
		g := need.Get(f.claim(second.Exclusive).Requeue(t.Context(), old, new(second.Wait)))(t)
		for _, c := range f.ops(Enter) {
			need.Equal(t, "removed by enter "+c.ID, c.Old.ID, "")
		}
		need.OK(t, g.Release())
	})
}

// A Requeue that cannot start still gives up the old grant at once.
func TestRequeueThatCannotBegin(t *testing.T) {
	for name, prevent := range map[string]func(f *fake, cancel func()){
		"left":   func(_ *fake, cancel func()) { cancel() },
		"away":   func(f *fake, _ func()) { f.then(Beat, never, never); f.noteAway(errAway, true) },
		"closed": func(f *fake, _ func()) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				old := f.acquire(second.Exclusive)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				prevent(f, cancel)
				_, err := f.claim(second.Exclusive).Requeue(ctx, old, new(second.Wait))
				if err == nil || errors.Is(err, second.ErrLost) && name != "closed" {
					t.Errorf("Requeue: %v", err)
				}
				begun := time.Now()
				old.AwaitRelease()
				need.Equal(t, "time until it was given up", time.Since(begun), 0)
				time.Sleep(ttl)
				if name != "closed" {
					f.none()
				}
			})
		})
	}
}

// A TryAcquire waits neither for the lock nor for the next session.
func TestTryThatFindsItsSessionOverFails(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Try, f.expired)
		need.That(t, "a try goes on in the next session", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())) != nil)
		need.Equal(t, "tries", len(f.ops(Try)), 1)
	})
}

// A TryAcquire that did not enter the queue has nothing to remove. A store that needs two requests for it may have created the contender
// before it finds the lock taken. Then the contender is removed.
func TestTryThatIsLockedLeavesNothing(t *testing.T) {
	for commands, try := range map[int]reply{1: says(Answer{Outcome: Locked}), 2: waits} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			f.then(Try, try)
			wantErr(t, "TryAcquire", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())), second.ErrLocked)
			f.none()
			need.Equal(t, "commands", len(f.ops(Try, Leave)), commands)
		})
	}
}

// Before the first answer of the store, a TryAcquire waits, because the process does not know whether the store can be reached.
func TestTryWaitsForTheFirstAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		first  reply
		within time.Duration
		want   error
	}{
		"in time": {late(time.Second / 2), time.Second, nil}, "too late": {late(time.Second / 2), time.Second / 4, context.DeadlineExceeded},
		"none": {never, time.Minute, errAway},
	} {
		playFrom(t, func(f *fake) { f.then(Open, c.first) }, func(t *testing.T, f *fake) {
			wantErr(t, "a try that is answered "+name, need.ErrOf(f.claim(second.Exclusive).TryAcquire(within(t, c.within))), c.want)
		})
	}
	// Contenders also waits for the first session. Otherwise its list could not show a grace period.
	playFrom(t, func(f *fake) { f.then(Open, late(time.Second)) }, func(t *testing.T, f *fake) {
		begun := time.Now()
		wantErr(t, "Contenders", need.ErrOf(f.claim(second.Exclusive).Contenders(t.Context())), nil)
		need.Equal(t, "it waits for the session for", time.Since(begun), time.Second)
	})
}

// While the store does not answer, callers with short deadlines send no commands, which would otherwise pile up.
func TestNobodyEntersWhileTheStoreDoesNotAnswer(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.noteAway(errAway, true)
		f.then(Beat, never)
		synctest.Wait()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(ctx, new(second.Wait))), context.DeadlineExceeded, errAway)
			wantErr(t, "TryAcquire", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())), errAway)
			cancel()
		}
		need.Equal(t, "commands", len(f.ops(Enter, Try)), 0)
		h := f.acquire(second.Exclusive) // succeeds once the store answers
		h.Release()
		f.none()
	})
}

// List and Ask are repeated until the store answers. They end early if the context of the caller ends or the tier is closed.
func TestListAndAskAreRepeated(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		l := f.claim(second.Exclusive)
		f.then(List, never, says(Answer{Outcome: Failed}))
		f.then(Ask, never, says(Answer{Outcome: Denied, Err: errRefused}))
		wantErr(t, "Contenders", need.ErrOf(l.Contenders(t.Context())), nil)
		need.Equal(t, "lists", len(f.ops(List)), 3)
		wantErr(t, "Revoke", l.Revoke(t.Context()), errRefused)
		need.Equal(t, "asked", len(f.ops(Ask)), 2)
		ctx := within(t, time.Millisecond)
		f.then(List, never)
		wantErr(t, "Contenders", need.ErrOf(l.Contenders(ctx)), context.DeadlineExceeded)
		wantErr(t, "an outage, after a caller has left", f.outage(), nil)
		for _, outcome := range []Outcome{Unknown, Failed} {
			f.then(List, says(Answer{Outcome: outcome, Err: errors.New("canceled"), Away: errAway}))
			wantErr(t, "the store's word for the end of ctx", f.do(ctx, Command{Op: List}).Err, context.DeadlineExceeded)
		}
		f.Close()
		wantErr(t, "Contenders", need.ErrOf(l.Contenders(t.Context())), second.ErrClosed)
	})
}

// The error of a Break says whether it removed nothing, or may have removed something.
func TestBreakSaysWhetherItRemoved(t *testing.T) {
	missing, refused := but(func(a *Answer) { a.Removed = Missing }), says(Answer{Outcome: Denied, Err: errRefused})
	for name, c := range map[string]struct {
		leave   []reply
		want    error
		unknown bool
	}{
		"at once":                          {nil, nil, false},
		"it has left by itself":            {[]reply{missing}, second.ErrReleased, false},
		"… after a try that failed":        {[]reply{says(Answer{Outcome: Failed}), missing}, second.ErrReleased, false},
		"the answer is lost":               {[]reply{lost}, nil, false},
		"refused":                          {[]reply{refused}, errRefused, false},
		"refused after a try without word": {[]reply{lost, refused}, errRefused, true},
		"refused in part":                  {[]reply{says(Answer{Outcome: Denied, Begun: true, Err: errRefused})}, errRefused, true},
		"no answer":                        {slices.Repeat([]reply{never}, 100), context.DeadlineExceeded, true},
	} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			f.then(Leave, c.leave...)
			err := f.claim(second.Reading).Break(within(t, time.Minute), h.Token())
			wantErr(t, name, err, c.want)
			need.Equal(t, name+": unknown", errors.Is(err, second.ErrUnknown), c.unknown)
			sent := f.ops(Leave)[0]
			need.Equal(t, name+": as any process", sent.Session, "")
			need.Equal(t, name+": the contender", sent.Ref, Ref{Path: "/l", ID: h.id, Token: h.Token(), Reads: true})
		})
	}
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		for _, token := range []int64{0, -1, h.Token() + 1} {
			wantErr(t, "another token", f.claim(second.Exclusive).Break(t.Context(), token), second.ErrReleased)
		}
		f.then(List, never)
		err := f.claim(second.Exclusive).Break(within(t, time.Millisecond), h.Token())
		wantErr(t, "the look is not answered", err, context.DeadlineExceeded)
		need.That(t, fmt.Sprintf("nothing was asked for, and yet it is unknown: %v", err), !errors.Is(err, second.ErrUnknown))
		need.Empty(t, "removals", f.ops(Leave))
		s := need.Get(f.Semaphore("/l", 4, second.Options{}))(t)
		need.OK(t, s.Break(t.Context(), h.Token()))
		need.Equal(t, "the queue of permits", f.ops(Leave)[0].Permits, 4)
	})
}

// The context of a caller may live as long as the process. A finished command must therefore leave no function registered with it.
func TestRequestLeavesNothingWithItsContext(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		ctx := &listened{Context: t.Context()}
		_, err := f.claim(second.Exclusive).Contenders(ctx)
		need.That(t, fmt.Sprintf("%v; %d of %d wait for its end", err, ctx.now, ctx.ever), err == nil && ctx.ever != 0 && ctx.now == 0)
	})
}

// A listened context counts the functions that are registered for its end, in total and at present.
type listened struct {
	context.Context
	ever, now int
}

func (l *listened) Value(any) any { return nil } // hides the inner context from package context, which would otherwise not call AfterFunc

func (l *listened) AfterFunc(f func()) func() bool {
	l.ever, l.now = l.ever+1, l.now+1
	stop := context.AfterFunc(l.Context, f)
	return func() bool {
		l.now--
		return stop()
	}
}

// While no contender can be removed, callers with short deadlines get an error, instead of adding more contenders to the queue.
func TestNobodyEntersWhileTooManyCannotLeave(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.many(Leave, 20_000, says(Answer{Outcome: Failed}))
		for range 1024 {
			f.acquire(second.Exclusive).Release()
		}
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(within(t, time.Millisecond), nil)), context.DeadlineExceeded)
		wantErr(t, "a try, which does not wait for them", need.ErrOf(f.claim(second.Exclusive).TryAcquire(within(t, time.Millisecond))), nil)
		need.Equal(t, "have entered", len(f.ops(Enter)), 1024)
	})
}

// If a command gets no answer, the session is renewed at once. The command is repeated only after a renewal was answered.
func TestCommandIsRepeatedWhenTheStoreAnswers(t *testing.T) {
	for op, ask := range map[Op]func(second.Claim, context.Context) error{
		List: func(l second.Claim, ctx context.Context) error { _, err := l.Contenders(ctx); return err },
		Look: func(l second.Claim, ctx context.Context) error {
			_, err := l.Acquire(ctx, new(second.Wait))
			return err
		},
	} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			f.then(Enter, waits)
			f.then(op, never)
			f.then(Beat, never, never)
			begun := time.Now()
			wantErr(t, string(op), ask(f.claim(second.Exclusive), t.Context()), nil)
			need.AtMost(t, string(op)+": commands", len(f.ops(op)), 2)
			need.Equal(t, string(op)+": time to the answer", time.Since(begun).Round(time.Second), 3*time.Second)
		})
	}
}

// Between requests there are pauses, even if each answer states another total number of permits.
func TestNumberThatChangesAgainAndAgain(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		s := need.Get(f.Semaphore("/l", 4, second.Options{}))(t)
		another := func(op Op) {
			for n := range 10 {
				f.then(op, says(Answer{Outcome: Denied, Err: second.ErrTooManyPermits, Permits: 2 + n%2}))
			}
		}
		another(Enter)
		begun := time.Now()
		demand := &second.Demand{Want: func() int { return 1 }, Take: func(int) int { return 1 }}
		permits := need.Get(s.Acquire(t.Context(), demand))(t)
		need.Equal(t, "commands", len(f.ops(Enter)), 11)
		need.AtLeast(t, "the pauses", time.Since(begun), 8*10*time.Millisecond)
		need.OK(t, s.Release(permits))
		another(Try)
		wantErr(t, "a try", need.ErrOf(s.TryAcquire(t.Context(), 1)), second.ErrUnavailable)
		need.Equal(t, "commands of the try", len(f.ops(Try)), 3)
	})
}
