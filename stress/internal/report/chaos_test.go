package report

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestInterruptedChaosNeedsNoProgress(t *testing.T) {
	c := &Chaos{Interrupted: true, AfterFaults: 0, Stalls: 1}
	for _, v := range c.violations() {
		need.Equal(t, "times "+v.what, v.n, 0)
	}
}
