package load

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
)

// lostHold is a hold that is lost already in the section.
type lostHold struct{ storetest.Hold }

func (lostHold) Err() error     { return store.ErrLost }
func (lostHold) Release() error { return store.ErrLost }

func TestSectionOfALostHoldIsNotCounted(t *testing.T) {
	w := newTestWorker(t)
	acquire := func(context.Context, int64) (store.Hold, error) { return lostHold{}, nil }
	need.OK(t, w.turn(t.Context(), acquire, 0, 1, 0))
	r := w.tally(0, 0)
	need.Equal(t, "lost", r.Lost, 1)
	need.That(t, fmt.Sprintf("reported are %d sections", r.Sections[0]), r.Sections[0] == 0 && w.registers[0].Counted() == 0)
}

func TestTurnAfterTheEndDoesNotEnter(t *testing.T) {
	w := newTestWorker(t)
	ctx, cancel := context.WithCancel(t.Context())
	acquire := func(context.Context, int64) (store.Hold, error) {
		cancel()
		return storetest.Hold{}, nil
	}
	need.OK(t, w.turn(ctx, acquire, 0, 1, 0))
	need.Equal(t, "sections counted", w.registers[0].Counted(), 0)
	need.Equal(t, "late turns", w.tally(0, 0).Late, 1)
}

func TestErrorsAreCountedByTheirRoot(t *testing.T) {
	w := newTestWorker(t)
	root := errors.New("root")
	for _, path := range []string{"/a", "/b"} {
		w.fail(fmt.Errorf("%s: %w", path, errors.Join(root, errors.New("other"))))
	}
	need.Equal(t, "times that the root of an error was found", w.tally(0, 0).Errors["root"], 2)
}

func newTestWorker(t *testing.T) *worker {
	t.Helper()
	w := need.Get(newWorker(Task{Config: Config{Store: store.ZooKeeper, Lock: "mutex", Goroutines: 1}, Process: 1, LockPaths: []string{"/x"},
		Dir: t.TempDir()}, nil))(t)
	return w
}
