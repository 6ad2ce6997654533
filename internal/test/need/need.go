// Package need provides assertions that fit into one line. Some end the test if a call fails; others check a result.
package need

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// OK ends the test unless err is nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get is for the results of a call: need.Get(f())(t) returns the value of f, or ends the test with its error.
func Get[V any](value V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		OK(t, err)
		return value
	}
}

// ErrOf returns the error of a call that also returns a value.
func ErrOf[V any](_ V, err error) error { return err }

// Within returns a context that ends after d, or earlier with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Each runs f for each case in a subtest with the name of the case.
func Each[C any](t *testing.T, cases map[string]C, f func(t *testing.T, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// Closed reports whether c is closed, or has a value to receive.
func Closed[E any](c <-chan E) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// WantErr fails unless err is or wraps want and all others. A nil want requires that err is nil.
func WantErr(t testing.TB, what string, err, want error, others ...error) {
	t.Helper()
	for _, want := range append(others, want) {
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
}

// Equal fails unless got equals want.
func Equal[V comparable](t testing.TB, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// That fails with the text trouble unless holds is true. The test continues.
func That(t testing.TB, trouble string, holds bool) {
	t.Helper()
	if !holds {
		t.Error(trouble)
	}
}

// Must is like That, but also ends the test.
func Must(t testing.TB, trouble string, holds bool) {
	t.Helper()
	if !holds {
		t.Fatal(trouble)
	}
}

// AtMost fails if got is more than most.
func AtMost[V cmp.Ordered](t testing.TB, what string, got, most V) {
	t.Helper()
	if got > most {
		t.Errorf("%s: got %v, want at most %v", what, got, most)
	}
}

// AtLeast fails if got is less than least.
func AtLeast[V cmp.Ordered](t testing.TB, what string, got, least V) {
	t.Helper()
	if got < least {
		t.Errorf("%s: got %v, want at least %v", what, got, least)
	}
}

// Between fails unless got is between least and most, inclusive.
func Between[V cmp.Ordered](t testing.TB, what string, got, least, most V) {
	t.Helper()
	AtLeast(t, what, got, least)
	AtMost(t, what, got, most)
}

// List fails unless got has exactly the wanted elements, in order.
func List[V comparable](t testing.TB, what string, got []V, want ...V) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// Len fails unless got has the wanted length.
func Len[V any](t testing.TB, what string, got []V, want int) {
	t.Helper()
	if len(got) != want {
		t.Errorf("%s: got %+v, want %d", what, got, want)
	}
}

// Empty fails unless got is empty.
func Empty[V any](t testing.TB, what string, got []V) {
	t.Helper()
	if len(got) != 0 {
		t.Errorf("%s: got %+v, want none", what, got)
	}
}

// Has fails unless a text contains all parts.
func Has(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: got %.5000q, want %q in it", what, text, part)
		}
	}
}

// WantMention fails unless err is an error whose text contains all parts.
func WantMention(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want it to mention %q", err, part)
		}
	}
}
