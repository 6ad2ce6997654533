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

// Of several views, the one with the highest At counts. A store that was set back to an earlier state starts with lower values. Then the
// answer to a later command counts.
func TestNewestWordCounts(t *testing.T) {
	type row struct {
		view    View
		asked   bool // whether the contender takes over the view, which shows in Asked
		behind  bool // the view answers a command that was sent after the last view arrived
		renewal bool // the answer to a renewal has the view
		nothing bool // the contender is lost
	}
	each(t, map[string]row{
		"later":                       {view: View{Known: true, At: 11}, asked: true},
		"at the same time":            {view: View{Known: true, At: 10}, asked: true},
		"earlier":                     {view: View{Known: true, At: 9}},
		"earlier, sent before":        {view: View{Known: true, At: 9, Sent: 1}},
		"earlier, sent since":         {view: View{Known: true, At: 9}, behind: true, asked: true},
		"missing earlier":             {view: View{At: 9}},
		"missing later":               {view: View{At: 11}, nothing: true},
		"missing earlier, sent since": {view: View{At: 9}, behind: true, nothing: true},
		"missing earlier, renewed":    {view: View{At: 9}, renewal: true, nothing: true},
		"another place":               {view: View{Known: true, At: 11, Token: 12}, nothing: true},
		"cannot stay, earlier":        {view: View{At: 9, Err: errRefused}, nothing: true},
		"cannot be told":              {view: View{Known: true, At: 11, Err: errRefused}, asked: true},
	}, func(t *testing.T, f *fake, c row) {
		f.number = 9
		time.Sleep(time.Second)
		f.then(Enter, func(_ context.Context, c Command, _ func() Answer) Answer {
			f.places[c.ID] = 5
			return Answer{Outcome: Done, View: View{Known: true, Token: 5, At: 10, Has: true}}
		})
		h := f.acquire(second.Exclusive)
		v := c.view
		v.ID, v.Asked = h.id, true
		if v.Known && v.Token == 0 {
			v.Token = 5
		}
		if c.behind {
			time.Sleep(time.Second)
			v.Sent = f.Now()
		}
		if c.renewal {
			time.Sleep(time.Second)
			f.then(Beat, says(Answer{Outcome: Done, Views: []View{v}}))
			f.Renew()
			synctest.Wait()
		} else {
			f.Tell(v)
		}
		need.Equal(t, "taken", h.revoked.IsSet(), c.asked)
		need.Equal(t, "lost", h.Err() != nil, c.nothing)
		f.then(Leave, says(Answer{Outcome: Done}))
		h.Release()
	})
}

// A contender that is missing may not have entered yet. If it was never seen in the queue, that is no loss. Views that are older than the
// report of the missing contender do not count.
func TestMissingContenderMayBeYetToEnter(t *testing.T) {
	type row struct {
		at     int64 // the At of the answer; the contender was reported missing at 100
		again  bool  // the view answers another command, which was sent after the report
		enters int
	}
	each(t, map[string]row{
		"entered later":                               {at: 101, enters: 1},
		"entered before, and was removed":             {at: 99, enters: 2},
		"entered since in a store that has gone back": {at: 99, again: true, enters: 2},
	}, func(t *testing.T, f *fake, c row) {
		f.number = 200
		f.then(Enter, func(_ context.Context, cmd Command, usual func() Answer) Answer {
			f.Tell(View{ID: cmd.ID, At: 100})
			f.Tell(View{ID: cmd.ID, At: 50}) // a late notification
			a := usual()
			if c.again {
				f.then(Enter, but(func(a *Answer) { a.View.At = c.at }))
				time.Sleep(time.Second)
				return Answer{Outcome: Failed}
			}
			a.View.At = c.at
			return a
		})
		h := f.acquire(second.Exclusive)
		entered := f.ops(Enter)
		need.Equal(t, "times entered", len(entered), c.enters)
		need.Equal(t, "it is the same one", entered[0].ID == h.id, c.enters == 1 || c.again)
		h.Release()
		f.none()
	})
}

// A notification may arrive before the answer to the command that caused it, and after the end of its contender.
func TestNewsComesAtAnyTime(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		var id string
		f.then(Enter, func(_ context.Context, c Command, usual func() Answer) Answer {
			a := usual()
			id = c.ID
			a.View.ID = id
			f.Tell(a.View)
			f.Tell(View{ID: id, Known: true, Token: a.View.Token, At: a.View.At + 1, Has: true, Asked: true})
			time.Sleep(time.Millisecond)
			return a
		})
		h := f.acquire(second.Exclusive)
		need.That(t, "a request that was reported before the answer is forgotten", h.revoked.IsSet())
		f.then(Leave, func(_ context.Context, c Command, usual func() Answer) Answer {
			a := usual()
			f.Tell(View{ID: id, At: 1000}) // the contender is missing because of the release, which is no loss
			f.Tell(View{ID: id, Err: errRefused})
			if err := h.Missing(); !errors.Is(err, second.ErrReleased) { // a guarded write that has not found the contender calls Missing
				t.Errorf("behind the release: %v, want ErrReleased", err)
			}
			return a
		})
		wantErr(t, "Release", h.Release(), nil)
		wantErr(t, "a loss", context.Cause(h.Context()), nil)
		f.Tell(View{ID: id, Known: true, Token: h.Token(), At: 1001, Has: true})
		f.none()
	})
}

// A contender may lose its place, or a late command may give it another one. Its owner learns of the loss at once, and the contender is
// removed if it is still in the queue.
func TestContenderThatIsNotAtItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		view     View
		removals int
	}{"gone": {View{At: 500}, 0}, "elsewhere": {View{Known: true, Token: 500, At: 500, Has: true}, 1}} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			if c.view.ID = h.id; !c.view.Known {
				f.remove(h.id)
			}
			f.Tell(c.view)
			need.Equal(t, name+": the cause of the loss", second.CauseOf(h.Err()), second.ByDeletion)
			time.Sleep(ttl)
			wantErr(t, name+": Release", h.Release(), second.ErrLost)
			need.Equal(t, name+": removals", len(f.ops(Leave)), c.removals)
			f.none()
		})
	}
}

// After a loss the owner has the margin to stop. Then the contender is removed, even if the owner has not stopped. Renewals do not keep it
// in the queue.
func TestLostContenderLeavesAfterTheMargin(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		h.session.Lose(h, second.Lost(second.ByOther, "a test"))
		f.many(Leave, 3, says(Answer{Outcome: Failed}))
		time.Sleep(ttl/3 - 1)
		need.Equal(t, "attempts to remove it within the margin", len(f.ops(Leave)), 0)
		time.Sleep(2)
		need.Equal(t, "attempts to remove it after the margin and before the release; the first attempt fails", len(f.ops(Leave)), 2)
		wantErr(t, "Release", h.Release(), second.ErrLost)
		synctest.Wait()
		need.Equal(t, "attempts to remove it right after the release, which causes no other attempt", len(f.ops(Leave)), 2)
		time.Sleep(time.Second)
		need.Equal(t, "all attempts to remove it: three that fail and one that succeeds", len(f.ops(Leave)), 4)
		if beats := f.ops(Beat); len(beats) != 2 || len(beats[0].Among) != 0 {
			t.Errorf("renewals %+v, want two, and that the first does not name the lost contender", beats)
		}
		f.none()
	})
}

// A contender with a short hold never subscribes to notifications. When a contender is given up, it unsubscribes, and does not subscribe
// again.
func TestWhoFollows(t *testing.T) {
	follow := func(c *Contender) []string { return []string{"follow " + c.id} }
	both := func(c *Contender) []string { return []string{"follow " + c.id, "unfollow " + c.id} }
	for name, c := range map[string]struct {
		do     func(f *fake, h *Contender)
		before func(*Contender) []string // what is expected before the end of the hold
	}{
		"short":     {func(*fake, *Contender) { time.Sleep(ttl/6 - 1) }, nil},
		"long":      {func(*fake, *Contender) { time.Sleep(ttl/6 + 1) }, follow},
		"asks":      {func(_ *fake, h *Contender) { h.RevokeRequested() }, follow},
		"listens":   {func(_ *fake, h *Contender) { h.Contended().C(); h.RevokeRequested() }, follow},
		"shares":    {func(f *fake, h *Contender) { go h.Share(f.TB.Context()) }, follow},
		"waits":     {func(f *fake, _ *Contender) {}, follow},
		"too late":  {func(_ *fake, h *Contender) { h.Release(); h.RevokeRequested(); h.Contended().C(); time.Sleep(ttl) }, nil},
		"closed":    {func(f *fake, _ *Contender) { f.Close(); time.Sleep(ttl) }, nil},
		"after all": {func(_ *fake, h *Contender) { h.RevokeRequested(); h.Release(); h.RevokeRequested(); time.Sleep(ttl) }, both},
	} {
		t.Run(name, func(t *testing.T) {
			playFollowed(t, func(t *testing.T, f *fake) {
				if name == "waits" {
					f.then(Enter, waits)
				}
				h := f.acquire(second.Exclusive)
				c.do(f, h)
				synctest.Wait()
				f.mu.Lock()
				var want []string
				if c.before != nil {
					want = c.before(h)
				}
				need.List(t, "told", f.told, want...)
				f.mu.Unlock()
				h.Release()
				time.Sleep(ttl)
				f.mu.Lock()
				defer f.mu.Unlock()
				need.That(t, fmt.Sprintf("at the end %v", f.told), c.before == nil || slices.Equal(f.told, both(h)))
			})
		})
	}
}

// If the store cannot notify a waiter of changes, the wait ends with an error. If the store cannot keep the contender of a holder, the lock
// is lost.
func TestTwoMeaningsOfTrouble(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Enter, but(func(a *Answer) { a.View.Has, a.View.Err = false, errRefused }))
		_, err := f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
		need.That(t, fmt.Sprintf("a waiter that cannot be notified: %v", err), errors.Is(err, errRefused) && !errors.Is(err, second.ErrLost))
		f.none()
		h := f.acquire(second.Writing)
		f.Tell(View{ID: h.id, Known: true, Token: h.Token(), At: 500, Has: true, Err: errRefused})
		wantErr(t, "Share of a contender that cannot be notified", h.Share(t.Context()), errRefused)
		wantErr(t, "Err of a contender that cannot be notified", h.Err(), nil)
		f.then(Beat, func(_ context.Context, c Command, usual func() Answer) Answer {
			a := usual()
			f.Tell(View{ID: h.id, Known: true, Token: h.Token(), At: 1000, Has: true}) // this view is newer than the loss, and is still ignored
			a.Views = []View{{ID: h.id, Err: errRefused}}
			return a
		})
		<-h.Context().Done()
		need.Equal(t, "why a holder that cannot stay lost", second.CauseOf(h.Err()), second.ByOther)
		wantErr(t, "the loss of a holder that cannot stay", h.Err(), errRefused)
		wantErr(t, "Release", h.Release(), second.ErrLost)
		f.none()
	})
}

// In a grace period, a TryAcquire returns the error of the grace period. A waiter asks the store again when the period ends.
func TestGracePeriod(t *testing.T) {
	inGracePeriod := but(func(a *Answer) { a.View.Has, a.View.InGracePeriod, a.View.Again = false, true, time.Second })
	play(t, Config{}, func(t *testing.T, f *fake) {
		begun := time.Now()
		f.InGracePeriod(time.Second, begun, "a test")
		var q *second.GracePeriodError
		f.then(Try, says(Answer{Outcome: Locked, InGracePeriod: true}), inGracePeriod, says(Answer{Outcome: Locked}))
		for _, want := range []bool{true, true, false} {
			if _, err := f.claim(second.Exclusive).TryAcquire(t.Context()); !errors.Is(err, second.ErrLocked) || errors.As(err, &q) != want {
				t.Errorf("a try: %v, want a grace period: %v", err, want)
			}
			q = nil
		}
		f.then(Enter, inGracePeriod)
		w := new(second.Wait)
		go func() {
			time.Sleep(time.Second / 2)
			need.That(t, "Standing does not contain the grace period", w.Standing().GracePeriod != nil)
		}()
		g, err := f.claim(second.Exclusive).Acquire(t.Context(), w)
		d := time.Since(begun)
		need.Must(t, fmt.Sprintf("%v after %v", err, d), err == nil && d == time.Second)
		g.Release()
		f.none()
	})
}

// A notification for a contender does not affect a later contender with the same name.
func TestNextContenderOfANameIsAnotherOne(t *testing.T) {
	playFollowed(t, func(t *testing.T, f *fake) {
		f.name = "n"
		old := f.acquire(second.Exclusive)
		next := make(chan second.Grant, 1)
		entered := make(chan struct{})
		var token int64
		f.then(Enter, func(_ context.Context, _ Command, usual func() Answer) Answer {
			defer close(entered)
			a := usual()
			a.View.Has, a.View.Ahead, token = false, 1, a.View.Token
			return a
		})
		f.then(Leave, func(_ context.Context, _ Command, usual func() Answer) Answer {
			a := usual() // from now on, another contender may use the same name
			go func() {
				g, _ := f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
				next <- g
			}()
			<-entered
			return a
		})
		wantErr(t, "Release", old.Release(), nil)
		synctest.Wait() // until the old contender is removed
		f.Tell(View{ID: "n", Token: old.Token(), At: 100})
		f.Tell(View{ID: "n", Known: true, Token: token, At: 100, Has: true})
		synctest.Wait()
		select {
		case g := <-next:
			need.That(t, fmt.Sprintf("token %d, %v; want %d, and no loss by a notification about the old one", g.Token(), g.Err(), token),
				g.Token() == token && g.Err() == nil && len(f.ops(Enter)) == 2)
			g.Release()
		default:
			t.Error("the next contender gets no notification")
		}
	})
}

// A store may first report only that there are contenders ahead, and later which ones. The place that a waiter reports follows that. When
// the wait has ended, no place is reported.
func TestWhoWaitsStandsBehindThoseOfWhomItIsTold(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Enter, untold)
		ctx, cancel := context.WithCancel(t.Context())
		var w second.Wait
		go f.claim(second.Exclusive).Acquire(ctx, &w)
		synctest.Wait()
		need.That(t, "behind another contender before the store has said so", !w.Behind())
		c := f.ops(Enter)[0]
		f.Tell(View{ID: c.ID, Known: true, Token: f.places[c.ID], At: 100, Ahead: 2})
		synctest.Wait()
		need.That(t, "not behind any contender", w.Behind())
		need.Equal(t, "ahead", w.Standing().Ahead, 2)
		cancel()
		f.none()
		need.Equal(t, "contenders ahead of a waiter that has left", w.Standing().Ahead, 0)
	})
}

// Without notifications, a waiter first polls often, and then at growing intervals.
func TestWhoWaitsLooksEverMoreRarely(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		unseen := but(func(a *Answer) { a.View.Has, a.View.Again = false, longest })
		f.then(Enter, unseen)
		f.then(Look, unseen, unseen, unseen, unseen)
		begun := time.Now()
		f.acquire(second.Exclusive).Release()
		need.Equal(t, "time to the fifth look, 10 + 20 + 40 + 80 + 100 ms", time.Since(begun), 250*time.Millisecond)
	})
}

// Holders that use another library leave the key free only for moments. A waiter therefore polls often again whenever a new holder is
// ahead.
func TestLooksComeSoonAgainWhenAnotherOneIsAhead(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		behind := func(id string) reply {
			return but(func(a *Answer) {
				a.View.Has, a.View.Again, a.View.Ahead, a.View.Nearest = false, longest, 1, second.Contender{ID: id}
			})
		}
		f.then(Enter, behind("one"))
		f.then(Look, behind("one"), behind("one"), behind("two"), behind("two"))
		begun := time.Now()
		f.acquire(second.Exclusive).Release()
		need.Equal(t, "time to the fifth look, 10 + 20 + 40 + 10 + 20 ms", time.Since(begun), 100*time.Millisecond)
	})
}

// A process may have waited before the grant. For the new holder, that wait counts only from the grant.
func TestContendedIsCountedFromTheLookAndFromTheGrantAtMost(t *testing.T) {
	for sent, want := range map[time.Duration]time.Duration{
		time.Nanosecond:         2 * time.Second, // the request that saw the waiter was sent long before the grant
		1500 * time.Millisecond: 1500 * time.Millisecond,
		0:                       time.Second, // a notification, which has no request
	} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			time.Sleep(time.Second)
			h := f.acquire(second.Exclusive)
			time.Sleep(time.Second)
			f.Tell(View{ID: h.id, Known: true, Token: h.Token(), At: 100, Has: true, Behind: true, Sent: sent})
			time.Sleep(time.Second)
			need.Equal(t, fmt.Sprintf("sent at %v: contended for", sent), h.Contended().For(), want)
		})
	}
}

// If the store sends no notifications, a call of Contended reads the queue once.
func TestWhoAsksWhetherTheLockIsWantedLooks(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Enter, but(func(a *Answer) { a.View.Again = time.Second }))
		h := f.acquire(second.Exclusive)
		for range 2 {
			h.Contended().C()
			synctest.Wait()
		}
		need.Equal(t, "looks", len(f.ops(Look)), 1)
		h.Release()
	})
}

// A waiter does not count as contended when a contender queues behind it. If the store cannot show all waiters, the view says when the
// holder has to look for them.
func TestNobodyIsContendedBeforeItHolds(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		var v View
		f.then(Enter, func(_ context.Context, _ Command, usual func() Answer) Answer {
			a := usual()
			a.View.Has, a.View.Behind, v = false, true, a.View
			time.AfterFunc(time.Second, func() {
				v.Has, v.Behind, v.At = true, true, v.At+1
				f.Tell(v)
			})
			return a
		})
		h := f.acquire(second.Exclusive)
		time.Sleep(time.Second / 2)
		need.Equal(t, "contended, since the grant of half a second ago, for", h.Contended().For(), time.Second/2)
		h.Release()
		f.then(Enter, but(func(a *Answer) { a.View.Yield = time.Second }))
		h = f.acquire(second.Exclusive)
		for _, want := range []time.Duration{0, time.Second / 4} {
			need.Equal(t, "contended for", h.Contended().For(), want)
			need.That(t, "contended, although no waiter can be invisible", !h.Contended().Raised())
			time.Sleep(5 * time.Second / 4)
		}
		h.Release()
	})
}
