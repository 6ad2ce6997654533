package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A session may end between any two commands. A waiter then enters the queue again at once, even without a notification, and a holder loses
// its lock.
func TestSessionThatEnds(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.then(Enter, f.expired, waits, untold)
		f.then(Look, f.expired)
		time.AfterFunc(time.Second, func() { f.then(Beat, f.expired) }) // the next renewal comes a quarter of the TTL after the session began
		begun := time.Now()
		g, err := f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
		need.Must(t, fmt.Sprintf("%v after %v, want each next session at once", err, time.Since(begun)),
			err == nil && time.Since(begun) <= ttl/4+300*time.Millisecond)
		need.Equal(t, "the cause of the holder's loss", second.CauseOf(h.Err()), second.BySession)
		sessions := make(map[string]bool)
		for _, c := range f.ops(Enter) {
			sessions[c.Session] = true
		}
		need.Equal(t, "sessions under which it entered", len(sessions), 4)
		wantErr(t, "Release", h.Release(), second.ErrLost)
		g.Release()
		f.none()
	})
}

// The first answer after an outage may report that the session has ended. Then the loss is reported before the connection counts as
// restored.
func TestEndOfASessionIsToldBeforeTheStoreIsBack(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		for range 1000 { // with many contenders, it takes a while to end them all
			f.acquire(second.Exclusive)
		}
		var told []second.ConnectionState
		f.Notify(func(c second.Connection) { told = append(told, c.State) })
		synctest.Wait()
		f.then(Beat, says(Answer{Away: errAway}), f.expired)
		time.Sleep(ttl)
		synctest.Wait()
		need.List(t, "told", told, second.Connected, second.Suspended, second.Expired, second.Connected)
	})
}

func TestSessionAfterOneThatWasRenewedBeginsAtOnce(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		for n := range 12 {
			time.Sleep(ttl / 3)
			f.then(Beat, f.expired)
			f.Renew()
			if time.Sleep(100 * time.Millisecond); f.status.Load().session.Over() {
				t.Fatalf("there is none 100 ms after the end of the %dth", n+1)
			}
		}
	})
}

// If a renewal is requested while another one is under way, a second one follows at once. The answer to the first one may be too old for
// the caller.
func TestRenewalThatIsAskedForDuringOneFollowsAtOnce(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.then(Beat, late(time.Second/2))
		f.Renew()
		synctest.Wait()
		f.remove(h.Ref().ID)
		f.Renew()
		time.Sleep(time.Second/2 + 1)
		synctest.Wait()
		wantErr(t, "Err", h.Err(), second.ErrLost)
	})
}

// Some stores need several round trips to open a session, and a store may be far away. Therefore an Open may take longer than other
// commands.
func TestSessionMayTakeLongToBegin(t *testing.T) {
	slowly := func(ctx context.Context, c Command, usual func() Answer) Answer {
		select {
		case <-time.After(ttl/2 - 1):
			return usual()
		case <-ctx.Done():
			return never(ctx, c, nil)
		}
	}
	playFrom(t, func(f *fake) { f.many(Open, 100, slowly) }, func(t *testing.T, f *fake) {
		f.acquire(second.Exclusive).Release()
		need.Equal(t, "sessions asked for", len(f.ops(Open)), 1)
	})
}

// The lease follows the TTL that the store grants, and not the requested one.
func TestTTLIsTheStores(t *testing.T) {
	const granted = 4 * ttl
	playFrom(t, func(f *fake) { f.then(Open, but(func(a *Answer) { a.TTL = granted })) }, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		need.Equal(t, "the lease runs for", time.Until(h.ValidUntil()), granted-granted/3)
		need.Equal(t, "patience", f.Patience(), granted/6)
		time.Sleep(granted - 1)
		need.Equal(t, "renewals in a TTL", len(f.ops(Beat)), 3)
		h.Release()
	})
}

// The lease counts from the time at which a renewal was sent. If the answer reports losses, these are applied before the lease is extended.
func TestRenewalCountsFromWhenItWasSent(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.then(Beat, late(time.Second/2))
		time.Sleep(ttl/4 + time.Second)
		need.Equal(t, "a second after it was sent the lease runs for", time.Until(h.ValidUntil()), ttl-ttl/3-time.Second)
		waiting := make(chan second.Grant)
		f.then(Enter, untold)
		go func() {
			g, err := f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
			wantErr(t, "Acquire", err, nil)
			waiting <- g
		}()
		synctest.Wait()
		id := f.ops(Enter)[1].ID
		f.many(Beat, 40, never)
		time.Sleep(ttl) // the lease has run out
		f.mu.Lock()
		f.next[Beat] = nil
		delete(f.places, id) // acts as another server that has the session but not the contender
		f.mu.Unlock()
		f.Tell(View{ID: id, Known: true, Token: f.ops(Enter)[1].Token, Has: true})
		g := <-waiting
		need.That(t, "granted to a contender that the renewal has reported missing", g.(*Contender).id != id)
		g.Release()
		h.Release()
	})
}

func TestContenderApartIsRenewedByWhatSaysThatItIsThere(t *testing.T) {
	play(t, Config{Apart: true}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		time.Sleep(time.Second)
		sent := f.Now()
		time.Sleep(time.Second)
		f.Tell(View{ID: h.id, Known: true, Token: h.Token(), At: 100, Has: true, Sent: sent})
		need.Equal(t, "a second after that was sent the lease runs for", time.Until(h.ValidUntil()), ttl-ttl/3-time.Second)
		h.Release()
	})
}

// The audit deletes contenders without an owner. It never deletes a contender that enters, holds the lock, or leaves.
func TestAudit(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Beat, but(func(a *Answer) { a.Doubt = true }))
		stray := func() {
			f.mu.Lock()
			f.places["stray"] = 1
			f.mu.Unlock()
		}
		strays := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return int(f.places["stray"])
		}
		h := f.acquire(second.Exclusive)
		lost := f.acquire(second.Exclusive) // lost, and not removed yet, because the margin has not ended
		lost.session.Lose(lost, second.Lost(second.ByOther, "a test"))
		leaving := f.acquire(second.Exclusive)
		var late *Contender
		f.then(Audit, func(_ context.Context, _ Command, usual func() Answer) Answer {
			stray()
			f.then(Leave, func(_ context.Context, _ Command, usual func() Answer) Answer {
				time.Sleep(time.Second / 2)
				return usual()
			})
			go func() { // this contender is in the answer of the store, and is given up before that answer arrives
				wantErr(t, "removed before its own command", leaving.Release(), nil)
			}()
			late = f.acquire(second.Exclusive) // this contender is in the answer of the store, although it entered after the audit began
			a := usual()
			time.Sleep(time.Millisecond)
			return a
		})
		time.Sleep(ttl/4 + 10*time.Millisecond)
		drops := f.ops(Drop)
		need.That(t, fmt.Sprintf("dropped %+v", drops),
			len(drops) == 1 && len(drops[0].Among) == 1 && drops[0].Among[0].ID == "stray" && strays() == 0)
		wantErr(t, "a loss of the holder", h.Err(), nil)
		wantErr(t, "a loss of the late one", late.Err(), nil)
		stray() // creates another orphan, which the audit has to find, too
		time.Sleep(ttl / 4)
		need.That(t, "a session in doubt is audited with each renewal", strays() == 0)
		for _, c := range []*Contender{h, lost, late} {
			c.Release()
		}
		f.none()
	})
}

// A store that was set back to an earlier state may have lost commands that it had answered. The process then repeats commands of two
// kinds: Weigh, which gives up some permits, and Share, which turns a writer into a reader.
func TestStoreThatMayHaveGoneBackIsToldAgain(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		s := need.Get(f.Semaphore("/l", 4, second.Options{}))(t)
		permits, whole := need.Get(s.TryAcquire(t.Context(), 4))(t), need.Get(s.TryAcquire(t.Context(), 1))(t)
		wantErr(t, "a part", s.Release(permits[:3]), nil)
		f.mu.Lock()
		f.reader = true
		f.mu.Unlock()
		h, reads := f.acquire(second.Writing), f.acquire(second.Reading)
		wantErr(t, "Share", h.Share(t.Context()), nil)
		f.then(Beat, but(func(a *Answer) { a.Doubt = true }))
		f.then(Weigh, says(Answer{Outcome: Denied, Err: errRefused}))
		f.then(Share, never)
		time.Sleep(ttl)
		weights, shares := f.ops(Weigh), f.ops(Share)
		need.Must(t, fmt.Sprintf("sent %+v; want the remaining weight twice more, because it is refused once", weights),
			len(weights) == 3 && weights[2].Weight == 1)
		need.Equal(t, "Share commands; the first repeated one gets no answer", len(shares), 3)
		wantErr(t, "the rest", s.Release(append(permits[3:], whole...)), nil)
		h.Release()
		reads.Release()
		f.none()
	})
}

// After a store was set back, it may list a contender whose name is now in use at another path. The audit compares the path, too.
func TestAuditKnowsContendersByTheirPath(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.then(Beat, but(func(a *Answer) { a.Doubt = true }))
		elsewhere, below := Ref{Path: "/m", ID: h.id}, Ref{Path: "/l\npermits", ID: h.id} // a store may append text to the path
		reads := Ref{Path: "/l", ID: h.id, Reads: true}
		f.then(Audit, says(Answer{Outcome: Done, Present: []Ref{h.Ref(), elsewhere, below, reads}}))
		f.then(Drop, says(Answer{Outcome: Done}))
		time.Sleep(ttl/4 + time.Second)
		need.List(t, "dropped", f.ops(Drop)[0].Among, elsewhere, reads)
		h.Release()
	})
}

// With OwnTTL, contenders have leases of their own, which outlive the session. Each contender is then removed by a command, unless its
// lease ends first.
func TestRemovalAfterTheSession(t *testing.T) {
	for own, removals := range map[bool]int{true: 1, false: 0} {
		play(t, Config{OwnTTL: own}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			f.then(Beat, f.expired)
			<-h.Context().Done()
			h.Release()
			need.Equal(t, fmt.Sprintf("removals with leases of their own %v", own), len(f.ops(Leave)), removals)
		})
	}
	play(t, Config{OwnTTL: true}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.many(Leave, 1000, says(Answer{Outcome: Failed}))
		h.Release()
		time.Sleep(ttl + 2*time.Second)
		need.Equal(t, "left after a TTL", f.Left(), 0)
	})
}

// If the store refuses to remove a contender, one line is logged, and the removal is retried. Release has already returned by then.
func TestContenderThatCannotLeave(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.many(Leave, 20, says(Answer{Outcome: Denied, Err: errRefused}))
		err := h.Release()
		need.That(t, fmt.Sprintf("Release: %v", err), errors.Is(err, errRefused) && !errors.Is(err, second.ErrLost))
		time.Sleep(5 * ttl)
		need.Equal(t, "lines about it", strings.Count(f.logged().String(), "cannot delete a queue entry"), 1)
		need.That(t, "a contender that cannot be removed alone is not dropped with a renewal", len(f.ops(Drop)) != 0)
		f.none()
	})
}

// Close ends all pending commands and leaves no goroutine. It sends a Goodbye for all contenders that may be in queues, even if the last
// command got no answer, because the store may be reachable again.
func TestCloseAtAnyTime(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(f *fake) // is called in a goroutine
		among int
	}{
		"idle":    {func(*fake) {}, 0},
		"holding": {func(f *fake) { f.acquire(second.Exclusive).RevokeRequested() }, 1},
		"waiting": {func(f *fake) {
			f.then(Enter, waits)
			f.claim(second.Exclusive).Acquire(f.TB.Context(), new(second.Wait))
		}, 0},
		"entering": {func(f *fake) {
			f.then(Enter, lost)
			f.claim(second.Exclusive).Acquire(f.TB.Context(), new(second.Wait))
		}, 0},
		"trying":    {func(f *fake) { f.then(Try, lost); f.claim(second.Exclusive).TryAcquire(f.TB.Context()) }, 0},
		"releasing": {func(f *fake) { h := f.acquire(second.Exclusive); f.then(Leave, never); h.Release() }, 0},
		"sharing":   {func(f *fake) { h := f.acquire(second.Writing); h.Share(f.TB.Context()) }, 1},
		"shared": {func(f *fake) {
			f.reader = true
			f.then(Share, lost)
			f.acquire(second.Writing).Share(f.TB.Context())
		}, 1},
		"requeueing": {func(f *fake) {
			h := f.acquire(second.Exclusive)
			f.then(Enter, never)
			f.claim(second.Exclusive).Requeue(f.TB.Context(), h, new(second.Wait))
		}, 0},
		"listing":  {func(f *fake) { f.then(List, never); f.claim(second.Exclusive).Contenders(f.TB.Context()) }, 0},
		"reaping":  {func(f *fake) { h := f.acquire(second.Exclusive); f.then(Leave, never, never, never); h.Release() }, 0},
		"auditing": {func(f *fake) { f.then(Audit, never); f.audit(f.status.Load().session) }, 0},
		"away":     {func(f *fake) { f.then(Beat, never, never, never); f.noteAway(errAway, true) }, 0},
	} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, leases of their own %v", name, own), func(t *testing.T) {
				play(t, Config{OwnTTL: own}, func(t *testing.T, f *fake) {
					done := make(chan struct{})
					go func() {
						c.do(f)
						close(done)
					}()
					time.Sleep(100 * time.Millisecond)
					begun := time.Now()
					f.Tier.Close()
					need.AtMost(t, "Close took", time.Since(begun), time.Second)
					<-done
					need.Equal(t, "time for which the calls continued after Close", time.Since(begun), 0)
					byes := f.ops(Goodbye)
					need.Must(t, fmt.Sprintf("goodbyes: %+v", byes), len(byes) == 1)
					f.mu.Lock()
					defer f.mu.Unlock()
					if own && len(f.places) > 0 { // without OwnTTL, the contenders are removed with the session
						t.Errorf("%v are left", f.places)
					}
					if !own && c.among > 0 && len(byes[0].Among) != c.among {
						t.Errorf("goodbye for %v", byes[0].Among)
					}
				})
			})
		}
	}
}

// If the program closes the client of a store, the tier ends. Close may be called later, and more than once.
func TestEndThenClose(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.End()
		need.Equal(t, "the cause of the loss", second.CauseOf(h.Err()), second.ByClose)
		wantErr(t, "Err", f.Err(), second.ErrClosed)
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))), second.ErrClosed)
		go f.Tier.Close()
		f.Tier.Close()
		need.Equal(t, "goodbyes", len(f.ops(Goodbye)), 1)
		wantErr(t, "Release after Close", h.Release(), second.ErrLost)
	})
}

// End may be called at any point of an operation. The operation still ends, without waiting for a store that is closed.
func TestEndMeanwhile(t *testing.T) {
	playFollowed(t, func(t *testing.T, f *fake) {
		old := f.acquire(second.Exclusive)
		old.RevokeRequested()
		f.meanwhile = f.End // Unfollow, which is called when the old contender is given up, calls End
		wantErr(t, "Requeue", need.ErrOf(f.claim(second.Exclusive).Requeue(t.Context(), old, new(second.Wait))), second.ErrClosed)
		begun := time.Now()
		wantErr(t, "AwaitRelease", old.AwaitRelease(), nil)
		need.Equal(t, "AwaitRelease took", time.Since(begun), 0)
		f.Tier.Close()
	})
	play(t, Config{Apart: true}, func(t *testing.T, f *fake) {
		f.meanwhile = f.End // Name calls End
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))), second.ErrClosed)
		need.Empty(t, "commands", f.ops(Enter))
		f.Tier.Close()
	})
	look := func() {} // is called when the contender leaves
	play(t, Config{Trouble: func() error { look(); return nil }}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		look = f.End
		begun := time.Now()
		wantErr(t, "Release", h.Release(), nil)
		need.Equal(t, "Release took", time.Since(begun), 0)
		f.Tier.Close()
	})
}

// A refusal to open a session may mean that the store cannot be used at all. Ready then returns the refusal at once, without waiting for
// the store.
func TestRefusalIsToldAtOnceOfAStoreThatIsAway(t *testing.T) {
	refused := says(Answer{Outcome: Denied, Err: errRefused, Away: errAway})
	playFrom(t, func(f *fake) { f.then(Open, refused) }, func(t *testing.T, f *fake) {
		synctest.Wait()
		began := time.Now()
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(within(t, ttl), nil)), errRefused)
		need.Equal(t, "refused after", time.Since(began), 0)
	})
}

// A refused renewal ends no wait: if the session ends, the store may open another one.
func TestWaitGoesOnAfterARefusedRenewal(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Beat, says(Answer{Outcome: Denied, Err: errRefused}))
		time.Sleep(ttl / 4)
		synctest.Wait()
		wantErr(t, "Err", f.Err(), errRefused)
		f.then(Enter, f.expired)
		f.then(Open, func(_ context.Context, _ Command, usual func() Answer) Answer {
			time.Sleep(time.Second)
			return usual()
		})
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))), nil)
	})
}

// Without a session, an error states why no session can be opened. Other problems of the store are left out.
func TestWhatIsSaidOfTheStoreIsWhatKeepsLocksFromBeingHad(t *testing.T) {
	refused := says(Answer{Outcome: Denied, Err: errRefused})
	playFrom(t, func(f *fake) { f.then(Open, refused, refused); f.Deafen(errAway) }, func(t *testing.T, f *fake) {
		synctest.Wait()
		wantErr(t, "Acquire without a session", need.ErrOf(f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))), errRefused)
		need.Equal(t, "times that the refusal is logged", strings.Count(f.logged().String(), errRefused.Error()), 1)
		need.That(t, "another trouble is logged: "+f.logged().String(), !strings.Contains(f.logged().String(), errAway.Error()))
		time.Sleep(time.Second)
		for range 2 {
			f.Deafen(errAway)
		}
		need.Equal(t, "lines about missing notifications", strings.Count(f.logged().String(), errAway.Error()), 1)
		wantErr(t, "Err", f.Err(), errAway)
		f.Deafen(nil)
		wantErr(t, "Err", f.Err(), nil)
		f.noteAway(errAway, true)
		need.Equal(t, "times explained", strings.Count(f.explain(f.explain(context.Canceled)).Error(), errAway.Error()), 1)
	})
}

// The tier closes the store only when the last call of Do has returned.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		ended := false
		f.then(Enter, func(ctx context.Context, c Command, _ func() Answer) Answer {
			a := never(ctx, c, nil)
			time.Sleep(time.Millisecond)
			ended = true
			return a
		})
		go f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
		synctest.Wait()
		f.Tier.Close()
		need.That(t, "closed before", ended)
	})
}

func TestSessionThatEndsBeforeAContenderIsEnrolledIsNotUsed(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		x := f.status.Load().session
		f.meanwhile = func() {
			f.meanwhile = func() {}
			f.expire(x, errRefused)
		}
		h := f.acquire(second.Exclusive)
		need.That(t, "used under the session that had ended", h.session != x)
		h.Release()
		f.none()
	})
}

// A renewal that fails or is refused is repeated soon. A single failure must not cost the lease.
func TestRenewalThatFailsIsRepeatedSoon(t *testing.T) {
	each(t, map[string]Answer{
		"refused": {Outcome: Denied, Err: errRefused}, "failed": {Outcome: Failed}, "not served": {Outcome: Done, Away: errAway},
	}, func(t *testing.T, f *fake, a Answer) {
		h := f.acquire(second.Exclusive)
		for range 2 { // the retries are equally quick both times
			f.many(Beat, 8, says(a))
			f.then(Beat, nil)
		}
		time.Sleep(2 * ttl)
		wantErr(t, "after twice eight renewals", h.Err(), nil)
		need.Between(t, "renewals, those sixteen and one each quarter of the TTL", len(f.ops(Beat)), 20, 26)
		h.Release()
	})
}
