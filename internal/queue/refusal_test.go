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

var errFull = errors.New("no memory left")

// The map refusing lists the ways in which a store may fail commands of one kind while it answers all others.
var refusing = map[string]struct {
	reply reply
	why   error
}{
	"refused":             {says(Answer{Outcome: Failed, Err: errFull}), errFull},
	"refused by a server": {says(Answer{Outcome: Failed, Err: errFull, Away: errors.New("does not serve")}), errFull},
	"of unknown outcome":  {says(Answer{Outcome: Unknown, Err: errFull}), errFull},
	"not answered":        {never, context.DeadlineExceeded},
}

// A store may refuse all acquisitions while it answers renewals. The connection then looks fine, and only Refusal reports the problem.
func TestAcquisitionsThatAreRefusedAgainAndAgainAreTold(t *testing.T) {
	need.Each(t, refusing, func(t *testing.T, c struct {
		reply reply
		why   error
	}) {
		play(t, Config{}, func(t *testing.T, f *fake) {
			var changes []second.ConnectionState
			f.Notify(func(c second.Connection) { changes = append(changes, c.State) })
			f.many(Enter, 10_000, c.reply)
			f.many(Try, 10_000, c.reply)
			w := new(second.Wait)
			ctx, begun := within(t, time.Minute), time.Now()
			time.AfterFunc(2900*time.Millisecond, func() { wantErr(t, "Refusal within 3 s", f.Refusal(), nil) })
			for _, after := range []time.Duration{10 * time.Second, 30 * time.Second, 59 * time.Second} {
				time.AfterFunc(after+time.Millisecond, func() {
					for _, want := range []error{c.why, second.ErrUnavailable} {
						wantErr(t, fmt.Sprint("Refusal after ", after), f.Refusal(), want)
						wantErr(t, "Standing", w.Standing().Refusal, want)
					}
				})
			}
			_, err := f.claim(second.Exclusive).Acquire(ctx, w)
			need.Equal(t, "it took", time.Since(begun), time.Minute)
			for _, want := range []error{c.why, second.ErrUnavailable, context.DeadlineExceeded} {
				wantErr(t, "Acquire", err, want)
			}
			wantErr(t, "a try", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())), second.ErrUnavailable)
			synctest.Wait()
			lines := f.log.Lines(slog.LevelWarn, "the store refuses every request\" to=acquire")
			need.Between(t, "warnings in a minute, in "+f.log.String(), len(lines), 3, 5)
			need.Equal(t, "returns of the connection", strings.Count(f.log.String(), "connected again"), 0)
			need.List(t, "changes of the connection", changes, second.Connected)
			f.mu.Lock()
			clear(f.next)
			f.mu.Unlock()
			f.acquire(second.Exclusive).Release()
			wantErr(t, "Refusal once it is served", f.Refusal(), nil)
			synctest.Wait()
			need.Equal(t, "ends in "+f.log.String(), len(f.log.Lines(slog.LevelInfo, "the store serves requests again\" to=acquire")), 1)
			f.none()
		})
	})
}

func TestReleasesThatAreRefusedAgainAndAgainAreTold(t *testing.T) {
	need.Each(t, refusing, func(t *testing.T, c struct {
		reply reply
		why   error
	}) {
		play(t, Config{}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			f.many(Leave, 10_000, c.reply)
			h.Release()
			time.Sleep(10 * time.Second)
			wantErr(t, "Refusal", f.Refusal(), c.why)
			need.That(t, "no warning in "+f.log.String(), len(f.log.Lines(slog.LevelWarn, "the store refuses every request\" to=release")) > 0)
			f.mu.Lock()
			clear(f.next)
			f.mu.Unlock()
			time.Sleep(5 * time.Second)
			wantErr(t, "Refusal once it is gone", f.Refusal(), nil)
			f.none()
		})
	})
}

// An outage is reported as an outage. A request without an answer does not count as a refusal.
func TestOutageIsNoRefusal(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		for _, op := range []Op{Enter, Leave, Beat, Open} {
			f.many(op, 1000, never)
		}
		w := new(second.Wait)
		time.AfterFunc(29*time.Second, func() { wantErr(t, "Standing", w.Standing().Refusal, nil) })
		_, err := f.claim(second.Exclusive).Acquire(within(t, 30*time.Second), w)
		wantErr(t, "Acquire", err, errAway)
		wantErr(t, "Err", f.Err(), errAway)
		wantErr(t, "Err", f.Err(), second.ErrUnavailable)
		f.mu.Lock()
		clear(f.next)
		f.mu.Unlock()
		f.acquire(second.Exclusive).Release()
		time.Sleep(time.Minute)
		wantErr(t, "Refusal", f.Refusal(), nil)
		need.Equal(t, "refusals in "+f.log.String(), strings.Count(f.log.String(), "refuses"), 0)
		f.none()
	})
}

// If the store refuses commands at one path only, and serves those at other paths, Refusal returns nil.
func TestStoreThatServesOthersIsNotSaidToRefuse(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		refuse := says(Answer{Outcome: Failed, Err: errFull})
		stuck := need.Get(f.Claim("/stuck", second.Options{}))(t)
		f.mu.Lock()
		f.next[Enter] = nil
		f.refuse = map[string]reply{"/stuck": refuse}
		f.mu.Unlock()
		go stuck.Acquire(within(t, time.Minute), new(second.Wait))
		for range 60 {
			f.acquire(second.Exclusive).Release()
			time.Sleep(time.Second)
			wantErr(t, "Refusal", f.Refusal(), nil)
		}
		f.none()
	})
}

// An hour after the last refused request, Refusal returns nil.
func TestRefusalFadesWhenNothingIsAskedFor(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.many(Enter, 100, says(Answer{Outcome: Failed, Err: errFull}))
		f.claim(second.Exclusive).Acquire(within(t, 10*time.Second), new(second.Wait))
		wantErr(t, "Refusal", f.Refusal(), errFull)
		time.Sleep(time.Minute)
		wantErr(t, "Refusal a minute later", f.Refusal(), nil)
	})
}

// If the store refuses the polls of a waiter, Refusal reports it, even while notifications arrive.
func TestLookThatIsRefusedIsTold(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.then(Enter, waits)
		f.many(Look, 10_000, says(Answer{Outcome: Failed, Err: errFull}))
		w := new(second.Wait)
		time.AfterFunc(time.Second/2, func() { wantErr(t, "Standing", w.Standing().Refusal, errFull) })
		_, err := f.claim(second.Exclusive).Acquire(within(t, time.Second), w)
		wantErr(t, "Acquire", err, errFull)
		wantErr(t, "contenders", need.ErrOf(func() ([]second.Contender, error) {
			f.many(List, 10_000, says(Answer{Outcome: Failed, Err: errFull}))
			return f.claim(second.Exclusive).Contenders(within(t, time.Second))
		}()), errFull)
	})
}

// Each error of a TryAcquire matches the right kind with errors.Is. Only mistakes of the caller have no kind.
func TestErrorsOfATryCanBeTold(t *testing.T) {
	type row struct {
		begin func(f *fake)
		want  error
	}
	each(t, map[string]row{
		"away":          {func(f *fake) { f.many(Beat, 9, never); f.noteAway(errAway, true) }, second.ErrUnavailable},
		"refused":       {func(f *fake) { f.then(Try, says(Answer{Outcome: Failed, Err: errFull})) }, second.ErrUnavailable},
		"unanswered":    {func(f *fake) { f.then(Try, never) }, second.ErrUnavailable},
		"no session":    {func(f *fake) { f.then(Try, f.expired) }, second.ErrUnavailable},
		"no renewal":    {func(f *fake) { f.refuse = nil; f.Tier.refuse(Beat, errRefused) }, second.ErrUnavailable},
		"no lease":      {func(f *fake) { f.many(Beat, 9, never); time.Sleep(ttl - ttl/4); f.noteAway(nil, true) }, second.ErrUnavailable},
		"not permitted": {func(f *fake) { f.then(Try, says(Answer{Outcome: Denied, Err: errRefused})) }, errRefused},
		"taken":         {func(f *fake) { f.then(Try, says(Answer{Outcome: Locked})) }, second.ErrLocked},
		"closed":        {func(f *fake) { f.Close() }, second.ErrClosed},
	}, func(t *testing.T, f *fake, c row) {
		c.begin(f)
		wantErr(t, "a try", need.ErrOf(f.claim(second.Exclusive).TryAcquire(t.Context())), c.want)
	})
}

// A guarded write may need several locks. None of these locks is idle, and may be handed off, before the write is answered.
func TestWriteUnderSeveralKeepsAllFromBeingIdle(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		all := []*Contender{f.acquire(second.Exclusive), f.acquire(second.Exclusive)}
		idle := func(want bool) {
			t.Helper()
			for i, c := range all {
				need.Equal(t, fmt.Sprintf("contender %d is idle", i), c.Idle(), want)
			}
		}
		check := func() error { idle(false); return nil }
		wantErr(t, "Write", Write(t.Context(), all, check, func() (Outcome, error) { idle(false); return Done, nil }), nil)
		idle(true)
		wantErr(t, "a check", Write(t.Context(), all, func() error { return second.ErrLost }, nil), second.ErrLost)
		idle(true)
		wantErr(t, "unknown", Write(t.Context(), all, check, func() (Outcome, error) { return Unknown, errAway }), second.ErrUnknown)
		idle(false)
		for _, c := range all {
			c.Release()
		}
	})
}
