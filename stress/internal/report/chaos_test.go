package report

import "testing"

func TestInterruptedChaosNeedsNoProgress(t *testing.T) {
	c := &Chaos{Interrupted: true, AfterFaults: 0, Stalls: 1}
	for _, v := range c.violations() {
		if v.n != 0 {
			t.Errorf("got %d %s", v.n, v.what)
		}
	}
}
