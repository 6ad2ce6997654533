package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestReleaseThatFindsNothingTellsOfALossWhileTheLeaseRuns(t *testing.T) {
	gone := says(Answer{Outcome: Done, Removed: Missing})
	over := says(Answer{Outcome: Expired, Err: errors.New("no such session")})
	for name, leave := range map[string]reply{"the contender": gone, "the session": over} {
		t.Run(name+" within the lease", func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				h := f.acquire(second.Exclusive)
				f.then(Leave, leave)
				wantErr(t, "Release", h.Release(), second.ErrLost)
				need.That(t, "the context lives on", h.Context().Err() != nil)
				synctest.Wait()
				need.Equal(t, "losses in "+f.logged().String(), len(f.logged().Lines(slog.LevelWarn, "lock lost")), 1)
			})
		})
		// The lease had ended, but the lock was held when it was given up. Therefore Release returns nil.
		t.Run(name+" after the lease", func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, f *fake) {
				h := f.acquire(second.Exclusive)
				f.many(Beat, 5, never)
				f.then(Leave, func(ctx context.Context, c Command, usual func() Answer) Answer {
					time.Sleep(ttl)
					return leave(ctx, c, usual)
				})
				h.Release()
				time.Sleep(ttl)
				wantErr(t, "AwaitRelease", h.AwaitRelease(), nil)
			})
		})
	}
}

// A command that makes a writer a reader may have been executed although its answer says otherwise. From then on, the grant refuses writes.
func TestShareThatMayHaveBeenExecutedIsNotTakenBack(t *testing.T) {
	denied := Answer{Outcome: Denied, Err: errRefused}
	begun := denied
	begun.Begun = true
	type row struct {
		replies []reply
		shared  bool
	}
	each(t, map[string]row{
		"refused":           {[]reply{says(denied)}, false},
		"begun and refused": {[]reply{says(begun), says(denied), says(denied)}, true},
		"lost and refused":  {[]reply{lost, says(denied), says(denied)}, true},
	}, func(t *testing.T, f *fake, c row) {
		f.reader = true
		h := f.acquire(second.Writing)
		f.then(Share, c.replies...)
		need.Equal(t, "Share succeeds", h.Share(t.Context()) == nil, c.shared)
		need.Equal(t, "shared", h.Shared(), c.shared)
		told := len(f.logged().Lines(slog.LevelWarn, "cannot downgrade a write lock")) == 1
		need.Equal(t, "told", told, !c.shared)
		h.Release()
	})
}

// If each contender has its own lease, no audit is needed, because the store itself drops contenders that no Beat names.
func TestOnlyWhatMayEnterLateIsAudited(t *testing.T) {
	for _, c := range []struct {
		op   Op
		own  bool
		want bool
	}{{Enter, false, true}, {Enter, true, false}, {Look, false, false}, {Share, false, false}} {
		t.Run(fmt.Sprintf("%s, leases of their own %v", c.op, c.own), func(t *testing.T) {
			play(t, Config{OwnTTL: c.own}, func(t *testing.T, f *fake) {
				f.then(c.op, never)
				f.then(Enter, waits)
				f.reader = true
				h := f.acquire(second.Writing)
				wantErr(t, "Share", h.Share(t.Context()), nil)
				time.Sleep(ttl)
				need.Equal(t, "audited", len(f.ops(Audit)) > 0, c.want)
				h.Release()
				f.none()
			})
		})
	}
}

func TestRenewalThatIsRefusedIsToldOnce(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.many(Beat, 20, says(Answer{Outcome: Denied, Err: errRefused}))
		h := f.acquire(second.Exclusive)
		<-h.Context().Done()
		wantErr(t, "Err", f.Err(), errRefused)
		wantErr(t, "a try", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())), errRefused)
		need.Equal(t, "lines in "+f.logged().String(), strings.Count(f.logged().String(), errRefused.Error()), 1)
		time.Sleep(time.Minute)
		wantErr(t, "when it is renewed again", f.Err(), nil)
		h.Release()
		f.none()
	})
}

func TestServerThatForgetsEachSessionIsNotAskedWithoutEnd(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		over := says(Answer{Outcome: Expired, Err: errors.New("no such session")})
		f.many(Enter, 100_000, over)
		f.many(Beat, 100_000, over)
		wantErr(t, "Acquire", need.ErrOf(f.claim(second.Exclusive).Acquire(within(t, time.Second), nil)), context.DeadlineExceeded)
		need.AtMost(t, "sessions in a second", len(f.ops(Open)), 200)
	})
}

// An outage, the end of a session and the loss of a lock are each logged once, because no return value reports them. The loss of a place in
// the queue is not logged.
func TestLossAndOutageAreLoggedOnce(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.then(Enter, waits)
		go f.claim(second.Exclusive).Acquire(t.Context(), new(second.Wait))
		synctest.Wait()
		f.then(Look, never, never, never, never, never)
		f.then(Beat, never, never, never, never, but(func(a *Answer) { a.Views = nil }), f.expired)
		<-h.Context().Done()
		h.Release()
		time.Sleep(2 * ttl)
		for text, with := range map[string]string{"lock lost": "path=/l", "lost the connection to Fake": "since=", "session expired": ""} {
			lines := f.logged().Lines(slog.LevelWarn, text)
			need.Equal(t, "lines with "+text, len(lines), 1)
			need.Has(t, text, strings.Join(lines, ""), with)
		}
		for _, text := range []string{"new session", "connected again"} {
			need.Equal(t, "lines with "+text, len(f.logged().Lines(slog.LevelInfo, text)), 1)
		}
	})
}

// If several losses are detected, Release returns the first one. When the owner of a lost contender queues again, that contender is removed
// at once.
func TestEndOfWhatWasLost(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		gone, there := f.acquire(second.Exclusive), f.acquire(second.Exclusive)
		f.remove(gone.id)
		for _, c := range []*Contender{gone, there} {
			c.session.Lose(c, second.Lost(second.ByOther, "a test"))
		}
		need.Equal(t, "the cause of the loss", second.CauseOf(gone.Release()), second.ByOther)
		wantErr(t, "Requeue", need.ErrOf(f.claim(second.Exclusive).Requeue(t.Context(), there, new(second.Wait))), nil)
		synctest.Wait()
		need.That(t, "others wait behind it", !f.queues(there))
	})
}

// If the command that removes a contender does not find it while its lease runs, Release returns a loss.
func TestContenderThatIsFoundMissingAsItIsGivenUp(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.remove(h.id)
		f.config.Lost = func(Ref) string {
			h.abandon()
			return "it was removed"
		}
		h.Missing()
		need.That(t, "released without a loss", errors.Is(h.AwaitRelease(), second.ErrLost))
	})
}

// Each answer of a server in a grace period says how long the period still lasts. The warning is repeated only if the period has grown,
// even if answers arrive late.
func TestGracePeriodIsWarnedOfOnceAndAgainWhenItGrows(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		answer := func(left, late time.Duration) {
			sent := time.Now()
			time.Sleep(late)
			f.InGracePeriod(left, sent, "the server is new")
		}
		warned := func(times int) {
			t.Helper()
			synctest.Wait()
			need.Equal(t, "warnings in "+f.logged().String(), len(f.logged().Lines(slog.LevelWarn, "fake: grace period; ")), times)
		}

		need.Equal(t, "a grace period before there is one", f.GracePeriod(), nil)
		answer(0, 0)
		warned(0)
		end := time.Now().Add(10 * time.Second)
		answer(10*time.Second, 0)
		if q := f.GracePeriod(); q == nil || !q.Until.Equal(end) ||
			q.Error() != "no grants until "+end.Format(time.TimeOnly)+": the server is new" {
			t.Errorf("grace period %v, want one until %v", q, end)
		}
		answer(10*time.Second, 3*time.Second)
		if q := f.GracePeriod(); q == nil || !q.Until.After(end) {
			t.Errorf("grace period %v, want one as long as it may be", q)
		}
		answer(7*time.Second, 3*time.Second)
		answer(5*time.Second, 0) // servers round, so a second more than before is not logged
		warned(1)
		answer(time.Minute, time.Second) // the period has grown, because another process has a longer lease
		warned(2)
		time.Sleep(time.Minute)
		need.Equal(t, "a grace period that is over", f.GracePeriod(), nil)
		answer(10*time.Second, 0)
		warned(3)
	})
}
