package tier

import "testing"

// Whoever re-enters while the last hold is being released is too late: the node is on
// its way.
func TestOwnershipThatHasEndedIsNotReentered(t *testing.T) {
	own := new(ownership).begin(nil, nil)
	if own.reenter() == nil {
		t.Fatal("reenter of a live ownership: got nil")
	}
	if own.holds.Add(-2); own.reenter() != nil {
		t.Error("reenter of an ownership without holds: got a hold, want nil")
	}
}
