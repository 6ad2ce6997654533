package load

import (
	"testing"

	"github.com/tierlock/tierlock/stress/internal/evidence"
)

func TestTheDeadLetGoUnderChaosOnly(t *testing.T) {
	if how := (&Config{Chaos: true}).judging(); how != evidence.ByKernel {
		t.Errorf("under chaos: got %v, want what the kernel does for the dead", how)
	}
	if how := (&Config{}).judging(); how != evidence.ByCount {
		t.Errorf("without: got %v, want what costs no time", how)
	}
}
