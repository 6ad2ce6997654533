package patterns_test

import (
	"errors"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/patterns"
)

func TestPathBelongsToTheFirstPatternThatItMatches(t *testing.T) {
	p := patterns.Patterns{"/jobs/nightly", "/jobs/*", "/customers/*/invoice", "/jobs/*"}
	need.OK(t, p.Check())
	for lock, want := range map[string]string{
		"/jobs/nightly": "/jobs/nightly", "/jobs/hourly": "/jobs/*", "/customers/7/invoice": "/customers/*/invoice",
		"/jobs/a/b": patterns.Other, "/customers/7": patterns.Other, "": patterns.Other,
	} {
		if got := p.Of(lock); got != want {
			t.Errorf("%q is told as %q, want %q", lock, got, want)
		}
	}
	if got, want := p.All(), []string{"/customers/*/invoice", "/jobs/*", "/jobs/nightly", patterns.Other}; !slices.Equal(got, want) {
		t.Errorf("all are %q, want %q", got, want)
	}
	if got := patterns.Patterns(nil).Of("/a"); got != patterns.Other {
		t.Errorf("without patterns, /a is told as %q", got)
	}
}

func TestMalformedPatternIsRefused(t *testing.T) {
	if err := (patterns.Patterns{"/a", "/jobs/["}).Check(); !errors.Is(err, path.ErrBadPattern) {
		t.Errorf("got %v, want ErrBadPattern", err)
	}
}

// A wait is over under the time at which it really began; it was noted by a clock that was read a little later.
func TestOldestOfTheLongWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w patterns.Waits
		want := func(when string, want time.Duration) {
			t.Helper()
			if got := w.Oldest("/jobs/*"); got != want {
				t.Errorf("%s: the oldest lasts for %v, want %v", when, got, want)
			}
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
