package tier

import (
	"errors"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
)

// Whoever re-enters while the last hold is being released is too late: the node is on
// its way.
func TestOwnershipThatHasEndedIsNotReentered(t *testing.T) {
	for _, reads := range []bool{false, true} {
		own := &ownership{mutex: &Mutex{mode: map[bool]second.Mode{true: second.Reading}[reads]}}
		own.begin(nil, nil, 0, found)
		if hold, err := own.reenter(reads); hold == nil || err != nil {
			t.Fatalf("reenter of a live ownership: got %v, %v", hold, err)
		}
		own.holds.Add(-2 * weight(reads))
		if hold, err := own.reenter(reads); hold != nil || err != nil {
			t.Errorf("reenter of an ownership without holds: got %v, %v, want neither", hold, err)
		}
	}
}

// A writer may read, and write again as long as it still does.
func TestOwnershipThatOnlyReadsIsNotToWrite(t *testing.T) {
	own := &ownership{mutex: new(Mutex)}
	own.begin(nil, nil, 0, found)
	own.reenter(true)
	if hold, err := own.reenter(false); hold == nil || hold.Shared() || err != nil {
		t.Errorf("reenter to write of an ownership that writes: got %v, %v", hold, err)
	}
	own.holds.Add(-2 * writeHold)
	if hold, err := own.reenter(false); hold != nil || !errors.Is(err, ErrUpgrade) {
		t.Errorf("reenter to write of an ownership that only reads: got %v, %v, want %v", hold, err, ErrUpgrade)
	}
	if n := own.count(); n != 1 {
		t.Errorf("%d holds, want 1", n)
	}
}
