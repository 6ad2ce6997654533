// Package waittest bounds what tests of a store wait for, however slow the machine is.
package waittest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Soon returns a context for what has to end.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until something holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for ctx := Soon(t); !holds(); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

// Ended waits until done is closed.
func Ended(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-Soon(t).Done():
		t.Fatalf("never: %s", what)
	}
}

// Err checks that an error is, or wraps, another one; nil if there is to be none.
func Err(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// Release gives a grant or a hold up, which was held to the end.
func Release(t testing.TB, g interface{ Release() error }) {
	t.Helper()
	if err := g.Release(); err != nil {
		t.Fatal(err)
	}
}
