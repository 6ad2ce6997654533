package patterns_test

import (
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/contrib/internal/patterns"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
)

func TestPathBelongsToTheFirstPatternThatItMatches(t *testing.T) {
	p := patterns.Patterns{"/jobs/nightly", "/jobs/*", "/customers/*/invoice", "/jobs/*"}
	need.OK(t, p.Check())
	for lock, want := range map[string]string{
		"/jobs/nightly": "/jobs/nightly", "/jobs/hourly": "/jobs/*", "/customers/7/invoice": "/customers/*/invoice",
		"/jobs/a/b": patterns.Other, "/customers/7": patterns.Other, "": patterns.Other,
	} {
		need.Equal(t, "the label of "+lock, p.Of(lock), want)
	}
	need.List(t, "all", p.All(), "/customers/*/invoice", "/jobs/*", "/jobs/nightly", patterns.Other)
	need.Equal(t, "the label of /a, without patterns", patterns.Patterns(nil).Of("/a"), patterns.Other)
}

func TestMalformedPatternIsRefused(t *testing.T) {
	need.WantErr(t, "a pattern that is none", (patterns.Patterns{"/a", "/jobs/["}).Check(), path.ErrBadPattern)
}

// A run is overdue from the time of the next slot until the run ends.
func TestLongestOverdueSlotOfEachPattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r patterns.Runs
		p := patterns.Patterns{"/jobs/*"}
		want := func(when string, want time.Duration) {
			t.Helper()
			all := r.Overdue(p)
			need.Equal(t, when+": overdue for", all["/jobs/*"], want)
			need.Equal(t, when+": others", all[patterns.Other], 0)
		}
		want("at first", 0)
		start := func(path string, next time.Time) { r.Event(slots.Event{Kind: slots.Started, Path: path, Next: next}) }
		start("/jobs/a", time.Now().Add(time.Minute))
		start("/jobs/b", time.Now().Add(2*time.Minute))
		start("/jobs/last", time.Time{}) // no slot comes after it
		time.Sleep(time.Minute)
		want("the next slot has just come", 0)
		time.Sleep(90 * time.Second)
		want("two", 90*time.Second)
		for _, kind := range []slots.Kind{slots.CaughtUp, slots.Retried, slots.Skipped} {
			r.Event(slots.Event{Kind: kind, Path: "/jobs/a"})
		}
		want("the runs go on", 90*time.Second)
		r.Event(slots.Event{Kind: slots.Ran, Path: "/jobs/a"})
		want("one has ended", 30*time.Second)
		start("/jobs/b", time.Now().Add(time.Minute)) // a retry
		want("a run begins again", 0)
		time.Sleep(2 * time.Minute)
		want("and is late", time.Minute)
		r.Event(slots.Event{Kind: slots.Lost, Path: "/jobs/b"})
		want("both have ended", 0)
	})
}

// The end of a wait contains when the wait really began. That is a little earlier than its recorded beginning, because the clock was read
// later.
func TestOldestOfTheLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w patterns.Waits
		want := func(when string, want time.Duration) {
			t.Helper()
			need.Equal(t, when+": the oldest lasts for", w.Oldest("/jobs/*"), want)
		}
		want("at first", 0)
		first := time.Now()
		time.Sleep(5 * time.Second)
		second := time.Now()
		time.Sleep(5 * time.Second)
		w.Long("/jobs/*", time.Since(second)-time.Millisecond)
		w.Long("/jobs/*", time.Since(first)-time.Millisecond)
		w.Long(patterns.Other, time.Hour)
		want("two", 10*time.Second-time.Millisecond)
		w.Over("/jobs/*", time.Now())
		want("one that was short is over", 10*time.Second-time.Millisecond)
		w.Over("/jobs/*", second)
		want("the second is over", 10*time.Second-time.Millisecond)
		w.Long("/jobs/*", time.Since(second)-time.Millisecond)
		w.Over("/jobs/*", first)
		want("the first is over", 5*time.Second-time.Millisecond)
		w.Over("/jobs/*", second)
		want("both are over", 0)
	})
}
