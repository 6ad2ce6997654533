// Package waittest has tests of a store wait for what has to come, and for what must not, however slow the machine is.
package waittest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
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

// Path is that of the test's own lock.
func Path(t testing.TB) string { return "/locks/" + strings.ReplaceAll(t.Name(), "/", "-") }

// A Lock is a claim of which nobody asks where its contender stands.
type Lock struct{ second.Claim }

// At is the lock of a process at path.
func At(t testing.TB, process second.Tier, path string, o second.Options) Lock {
	t.Helper()
	c, err := process.Claim(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return Lock{c}
}

func (l Lock) Acquire(ctx context.Context) (second.Grant, error) {
	return l.Claim.Acquire(ctx, new(second.Wait))
}

func (l Lock) Requeue(ctx context.Context, old second.Grant) (second.Grant, error) {
	return l.Claim.Requeue(ctx, old, new(second.Wait))
}

// Granted returns the contender that has been granted a lock.
func Granted(t testing.TB, g second.Grant, err error) *queue.Contender {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g.(*queue.Contender)
}

// Acquire returns who has the lock.
func Acquire(t testing.TB, l Lock) *queue.Contender {
	t.Helper()
	g, err := l.Acquire(Soon(t))
	return Granted(t, g, err)
}

// A Wait is an acquisition under way.
type Wait struct {
	Cancel context.CancelFunc
	Done   chan struct{} // closed when it has ended
	Err    error         // valid then
	grant  second.Grant
}

// Begin begins an acquisition, which ends at the latest with the test.
func Begin(t testing.TB, acquire func(context.Context) (second.Grant, error)) *Wait {
	t.Helper()
	ctx, cancel := context.WithCancel(Soon(t))
	w := &Wait{Cancel: cancel, Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.grant, w.Err = acquire(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.Done
	})
	return w
}

// Queue begins an acquisition, and returns when the queue, of that length, has got longer.
func Queue(t testing.TB, l Lock, length func() int) *Wait {
	t.Helper()
	before := length()
	w := Begin(t, l.Acquire)
	Eventually(t, "a contender in the queue", func() bool { return length() > before })
	return w
}

// Must returns the contender that is granted the lock.
func (w *Wait) Must(t testing.TB) *queue.Contender {
	t.Helper()
	<-w.Done
	return Granted(t, w.grant, w.Err)
}

// Within is Must of one who is granted the lock within a time.
func (w *Wait) Within(t testing.TB, limit time.Duration) *queue.Contender {
	t.Helper()
	select {
	case <-w.Done:
	case <-time.After(limit):
		t.Fatalf("not granted within %v", limit)
	}
	return w.Must(t)
}

// Pending checks that the acquisition waits.
func (w *Wait) Pending(t testing.TB) {
	t.Helper()
	select {
	case <-w.Done:
		t.Fatalf("did not wait: granted %v, %v", w.grant, w.Err)
	case <-time.After(50 * time.Millisecond):
	}
}

// Refused checks that each option leads to an error that has its text.
func Refused[O any](t *testing.T, give func(O) error, options map[string]O) {
	t.Helper()
	for text, option := range options {
		if err := give(option); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
