package patterns_test

import (
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/patterns"
)

func TestPathBelongsToTheFirstPatternThatItMatches(t *testing.T) {
	p := patterns.Patterns{"/jobs/nightly", "/jobs/*", "/customers/*/invoice"}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for lock, want := range map[string]string{
		"/jobs/nightly": "/jobs/nightly", "/jobs/hourly": "/jobs/*", "/customers/7/invoice": "/customers/*/invoice",
		"/jobs/a/b": patterns.Other, "/customers/7": patterns.Other, "": patterns.Other,
	} {
		if got := p.Of(lock); got != want {
			t.Errorf("%q is told as %q, want %q", lock, got, want)
		}
	}
	if got, want := p.All(), []string{"/jobs/nightly", "/jobs/*", "/customers/*/invoice", patterns.Other}; !slices.Equal(got, want) {
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
