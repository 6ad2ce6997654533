//go:build unix

package witness_test

import (
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/witness"
)

func TestMain(m *testing.M) {
	if witness.Role() == "" {
		os.Exit(m.Run())
	}
	w := witness.Witness(os.Getenv("WITNESS"))
	if err := w.Work("a", 1, witness.Stopped); err != nil {
		panic(err)
	}
}

func TestWorkAtTheSameTimeIsNoticed(t *testing.T) {
	w := witness.Witness(t.TempDir())
	first := start(t, w, 1)
	second := start(t, w, 2)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	second.Kill()
	if err := start(t, w, 3).Stop(); err != nil { // after the end of one and the death of the other
		t.Error(err)
	}
	entries, err := w.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for i, overlap := range []bool{false, true, false} {
		if entries[i].Overlap != overlap {
			t.Errorf("entry %d, at the same time as another: %t, want %t", i+1, entries[i].Overlap, overlap)
		}
	}
}

func TestSlotsAreCounted(t *testing.T) {
	w := witness.Witness(t.TempDir())
	for _, slot := range []int64{1, 2, 2, 3, 3, 3} {
		if err := w.Work("a", slot, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Work("b", 1, func() {}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Tally(t, "a"), (witness.Count{Slots: 3, Twice: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := w.Tally(t, ""), (witness.Count{Slots: 4, Twice: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// start starts a process and returns when it works, as number n.
func start(t *testing.T, w witness.Witness, n int) *witness.Process {
	t.Helper()
	p := witness.Start(t, "worker", "WITNESS="+string(w))
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if entries, err := w.Entries(); err == nil && len(entries) == n {
			return p
		}
	}
	t.Fatalf("there is no entry %d", n)
	return nil
}
