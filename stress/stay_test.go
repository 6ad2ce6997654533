package main

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tierlock/tierlock/tier"
)

// tokenHeld is a hold with a token that is never lost.
type tokenHeld struct {
	brokenHeld
	token int64
}

func (h tokenHeld) Token() int64 { return h.token }

// lateHeld is one that is lost after some looks.
type lateHeld struct {
	tokenHeld
	looks int
}

func (h *lateHeld) Err() error {
	if h.looks--; h.looks < 0 {
		return tier.ErrLost
	}
	return nil
}

func (h *lateHeld) Release() error { return h.Err() }

func TestHolderThatTheFenceRefusesMustSeeItsLoss(t *testing.T) {
	w, f := newTestWitness(t)
	readBy(t, f, 6, 2)
	if h := turn(t, w, tokenHeld{token: 5}); !h.Refused || !h.Blind || h.Lost {
		t.Errorf("Err is nil after all: got %+v, want refused and blind", h)
	}
	if h := turn(t, w, &lateHeld{tokenHeld{token: 5}, 1}); !h.Refused || h.Blind || !h.Lost || h.Over == 0 {
		t.Errorf("Err tells: got %+v, want refused and lost", h)
	}
	if n := f.total().accepted; n != 0 {
		t.Errorf("accepted %d writes, want 0", n)
	}
}

func TestTurnIsWrittenDown(t *testing.T) {
	w, f := newTestWitness(t)
	h := turn(t, w, tokenHeld{token: 5})
	if h.Token != 5 || h.Lost || h.Met != nil || f.total().accepted != 1 {
		t.Errorf("got %+v, %+v", h, f.total())
	}
	if !(h.Asked <= h.Got && h.Got <= h.Left && h.Left <= h.Valid && h.Valid <= h.Over) {
		t.Errorf("times out of order: %+v", h)
	}
	inside := enter(t, open(t, w.worker.task.Dir, 0, w.worker.task.judging()))
	h = turn(t, w, tokenHeld{token: 5})
	if h.Met == nil || h.Met.From < h.Got || h.Met.Until > h.Left {
		t.Errorf("met somebody inside: got %+v", h)
	}
	if err := inside.abandon(); err != nil {
		t.Fatal(err)
	}
}

func TestLossAtReleaseEndsTheClaimBefore(t *testing.T) {
	w, _ := newTestWitness(t)
	h := turn(t, w, &lateHeld{tokenHeld{token: 5}, 1})
	if !h.Lost || h.Valid == 0 || h.Valid > h.Left {
		t.Errorf("got %+v, want lost, and valid no longer than at the first look", h)
	}
}

func newTestWitness(t *testing.T) (*witness, *fence) {
	t.Helper()
	w := newTestWorker(t)
	f := &fence{cells: make([]cell, 1)}
	stop, err := f.serve(w.task.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	witness, err := newWitness(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = witness.fence.Close() })
	return witness, f
}

// turn is one with h, as it was written down.
func turn(t *testing.T, w *witness, h held) hold {
	t.Helper()
	acquire := func(context.Context) (held, error) { return h, nil }
	if err := w.turn(t.Context(), rand.New(rand.NewPCG(1, 1)), acquire, 0); err != nil {
		t.Fatal(err)
	}
	holds, err := readJournals(w.worker.task.Dir)
	if err != nil || len(holds) == 0 {
		t.Fatalf("journal: %v, %v", holds, err)
	}
	return holds[len(holds)-1]
}
