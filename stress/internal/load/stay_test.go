package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
)

// lateHold is a hold that is valid in its first checks, and lost in all later ones.
type lateHold struct {
	storetest.Hold
	looks int
}

func (h *lateHold) Err() error {
	if h.looks--; h.looks < 0 {
		return store.ErrLost
	}
	return nil
}

func (h *lateHold) Release() error { return h.Err() }

func TestHolderThatTheFenceRefusesMustSeeItsLoss(t *testing.T) {
	w, f := newTestWitness(t)
	access := evidence.Access{Token: 6, Process: 2}
	need.OK(t, f.Read(access, &evidence.Answer{}))
	h := turn(t, w, storetest.Hold{Fence: 5})
	need.That(t, fmt.Sprintf("Err is nil after all: %+v, want refused and blind", h), h.Refused && h.Blind && !h.Lost)
	h = turn(t, w, &lateHold{storetest.Hold{Fence: 5}, 1})
	need.That(t, fmt.Sprintf("Err tells: %+v, want refused and lost", h), h.Refused && !h.Blind && h.Lost && h.Over != 0)
	need.Equal(t, "accepted writes", f.Total().Accepted, 0)
}

func TestTurnIsWrittenDown(t *testing.T) {
	w, f := newTestWitness(t)
	h := turn(t, w, storetest.Hold{Fence: 5})
	need.That(t, fmt.Sprintf("%+v, %+v", h, f.Total()), h.Token == 5 && !h.Lost && h.Met == nil && f.Total().Accepted == 1)
	need.That(t, fmt.Sprintf("times out of order: %+v", h), h.Asked <= h.Got && h.Got <= h.Left && h.Left <= h.Valid && h.Valid <= h.Over)
	register := need.Get(evidence.NewRegister(w.worker.task.Dir, 0, w.worker.rule, w.worker.task.judging()))(t)
	inside := need.Get(register.Enter(1))(t)
	h = turn(t, w, storetest.Hold{Fence: 5})
	need.That(t, fmt.Sprintf("met another section inside: %+v", h), h.Met != nil && h.Met.From >= h.Got && h.Met.Until <= h.Left)
	need.OK(t, inside.Abandon())
}

func TestLossAtReleaseEndsTheClaimBefore(t *testing.T) {
	w, _ := newTestWitness(t)
	h := turn(t, w, &lateHold{storetest.Hold{Fence: 5}, 1})
	need.That(t, fmt.Sprintf("%+v, want lost, and valid no longer than at the first look", h), h.Lost && h.Valid != 0 && h.Valid <= h.Left)
}

// forgetful is a lateHold whose release succeeds.
type forgetful struct{ lateHold }

func (*forgetful) Release() error { return nil }

func TestReleaseThatSucceedsAfterALossIsRecorded(t *testing.T) {
	w, _ := newTestWitness(t)
	h := turn(t, w, &forgetful{lateHold{storetest.Hold{Fence: 5}, 0}})
	need.That(t, fmt.Sprintf("got %+v, want lost and blind", h), h.Lost && h.Blind && h.Valid == 0)
}

func TestLingeringSectionLastsUntilItsEndOrALoss(t *testing.T) {
	w, _ := newTestWitness(t)
	end := need.Get(Linger(w.worker.task.Dir, w.worker.task.Process))(t)
	h := turn(t, w, &lateHold{storetest.Hold{Fence: 5}, 3})
	need.That(t, fmt.Sprintf("%+v, want lost", h), h.Lost)
	over := make(chan evidence.Hold)
	go func() { over <- turn(t, w, storetest.Hold{Fence: 6}) }()
	select {
	case h := <-over:
		t.Errorf("the section of a valid hold has ended: %+v", h)
	case <-time.After(50 * time.Millisecond):
		end()
		h := <-over
		need.That(t, fmt.Sprintf("%+v, want not lost", h), !h.Lost && h.Over != 0)
	}
}

func newTestWitness(t *testing.T) (*witness, *evidence.Fence) {
	t.Helper()
	w := newTestWorker(t)
	f := evidence.NewFence(1)
	stop := need.Get(f.Serve(w.task.Dir))(t)
	t.Cleanup(stop)
	witness := need.Get(newWitness(w))(t)
	t.Cleanup(func() { _ = witness.fence.Close() })
	return witness, f
}

// The function turn makes one acquisition, which returns h. turn returns the record of that acquisition.
func turn(t *testing.T, w *witness, h store.Hold) evidence.Hold {
	t.Helper()
	acquire := func(context.Context, int64) (store.Hold, error) { return h, nil }
	need.OK(t, w.turn(t.Context(), rand.New(rand.NewPCG(1, 1)), acquire, 0))
	holds, err := evidence.ReadJournals(w.worker.task.Dir)
	need.Must(t, fmt.Sprintf("journal: %v, %v", holds, err), err == nil && len(holds) != 0)
	return holds[len(holds)-1]
}
