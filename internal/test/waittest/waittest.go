// Package waittest provides helpers for tests of a store. They wait for events that have to happen, and check that other events do not
// happen, however slow the machine is.
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

// Soon returns a context that limits the time of a call that has to end.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until holds returns true.
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

// Err checks that err is or wraps want; a nil want requires that err is nil.
func Err(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// Release releases a grant or a hold, and checks that it was not lost.
func Release(t testing.TB, g interface{ Release() error }) {
	t.Helper()
	if err := g.Release(); err != nil {
		t.Fatal(err)
	}
}

// Path returns the path of the test's own lock.
func Path(t testing.TB) string { return "/locks/" + strings.ReplaceAll(t.Name(), "/", "-") }

// A Lock is a second.Claim whose Acquire takes no second.Wait, for tests that do not ask for the place of the contender.
type Lock struct{ second.Claim }

// At returns the lock of a process at path.
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

// Granted returns the contender of a grant, and ends the test if there is an error.
func Granted(t testing.TB, g second.Grant, err error) *queue.Contender {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return g.(*queue.Contender)
}

// Acquire acquires a lock, and returns its contender.
func Acquire(t testing.TB, l Lock) *queue.Contender {
	t.Helper()
	g, err := l.Acquire(Soon(t))
	return Granted(t, g, err)
}

// A Wait is an acquisition that is under way.
type Wait struct {
	Cancel context.CancelFunc
	Done   chan struct{} // closed when the acquisition has ended
	Err    error         // valid when Done is closed
	grant  second.Grant
}

// Begin starts an acquisition. The acquisition ends with the test at the latest.
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

// Queue starts an acquisition. It returns when the length of the queue, as reported by the function length, has grown.
func Queue(t testing.TB, l Lock, length func() int) *Wait {
	t.Helper()
	before := length()
	w := Begin(t, l.Acquire)
	Eventually(t, "a contender in the queue", func() bool { return length() > before })
	return w
}

// Must waits until the acquisition is granted, and returns the contender.
func (w *Wait) Must(t testing.TB) *queue.Contender {
	t.Helper()
	<-w.Done
	return Granted(t, w.grant, w.Err)
}

// Within is like Must, with a time limit.
func (w *Wait) Within(t testing.TB, limit time.Duration) *queue.Contender {
	t.Helper()
	select {
	case <-w.Done:
	case <-time.After(limit):
		t.Fatalf("not granted within %v", limit)
	}
	return w.Must(t)
}

// Pending checks that the acquisition still waits.
func (w *Wait) Pending(t testing.TB) {
	t.Helper()
	select {
	case <-w.Done:
		t.Fatalf("did not wait: granted %v, %v", w.grant, w.Err)
	case <-time.After(50 * time.Millisecond):
	}
}

// Refused passes each option to give, and checks that the result is an error that contains the text of the option.
func Refused[O any](t *testing.T, give func(O) error, options map[string]O) {
	t.Helper()
	for text, option := range options {
		if err := give(option); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
}
