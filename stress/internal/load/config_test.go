package load

import (
	"testing"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

func TestTheDeadLetGoUnderChaosOnly(t *testing.T) {
	need.Equal(t, "how it is judged under chaos", (&Config{Chaos: true}).judging(), evidence.ByKernel)
	need.Equal(t, "how it is judged without chaos", (&Config{}).judging(), evidence.ByCount)
}
