package patterns_test

import (
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/contrib/internal/patterns"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestPathBelongsToTheFirstPatternThatItMatches(t *testing.T) {
	p := patterns.Patterns{"/jobs/nightly", "/jobs/*", "/customers/*/invoice", "/jobs/*"}
	need.OK(t, p.Check())
	for lock, want := range map[string]string{
		"/jobs/nightly": "/jobs/nightly", "/jobs/hourly": "/jobs/*", "/customers/7/invoice": "/customers/*/invoice",
		"/jobs/a/b": patterns.Other, "/customers/7": patterns.Other, "": patterns.Other,
	} {
		need.Equal(t, "what "+lock+" is told as", p.Of(lock), want)
	}
	need.List(t, "all", p.All(), "/customers/*/invoice", "/jobs/*", "/jobs/nightly", patterns.Other)
	need.Equal(t, "what /a is told as, without patterns", patterns.Patterns(nil).Of("/a"), patterns.Other)
}

func TestMalformedPatternIsRefused(t *testing.T) {
	need.WantErr(t, "a pattern that is none", (patterns.Patterns{"/a", "/jobs/["}).Check(), path.ErrBadPattern)
}

// A wait ends with the time at which it really began. Its recorded beginning is a little later, because the clock was read later.
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
