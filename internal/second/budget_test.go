package second

import (
	"slices"
	"testing"
	"time"
)

func TestABudgetKeepsALockInUse(t *testing.T) {
	const ms, lease = time.Millisecond, 10 * time.Second
	nine := func(d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, 9) }
	for _, c := range []struct {
		name        string
		took        []time.Duration
		lease       time.Duration
		least, most time.Duration // that the budget may be
	}{
		{"nothing measured", nine(0), lease, 20 * ms, 20 * ms},
		{"near", nine(ms), lease, 20 * ms, 20 * ms},
		{"a busy server", nine(3 * ms), lease, 57 * ms, 62 * ms},
		{"far", nine(20 * ms), lease, 380 * ms, 415 * ms},
		{"four were slow", append(nine(20 * ms)[:5], 3e9, 3e9, 3e9, 3e9), lease, 380 * ms, 415 * ms},
		{"five were slow", append([]time.Duration{3e9, 3e9, 3e9, 3e9, 3e9}, nine(0)[:4]...), lease, 910 * ms, time.Second},
		{"a tenth of the lease", nine(time.Second), lease, 910 * ms, time.Second},
		{"of a short one", nine(time.Second), 100 * ms, 20 * ms, 20 * ms},
		{"of a long one", nine(time.Hour), 1000 * time.Hour, 4690 * ms, 4700 * ms},
	} {
		if d := budgetFor(c.took, c.lease).Duration(); d < c.least || d > c.most {
			t.Errorf("%s: %v, want %v to %v", c.name, d, c.least, c.most)
		}
	}
}

func TestPricesAreThoseOfTheLastTimes(t *testing.T) {
	var p Prices
	p.Paid(time.Hour)
	for i := range 20 {
		if i == 3 && p.Budget(10*time.Second) != 0 {
			t.Errorf("after four of nine: %d", p.Said())
		}
		p.Paid(20 * time.Millisecond)
	}
	if b := p.Budget(10 * time.Second); b != 34 || p.Said() != b {
		t.Errorf("got %d, said %d", b, p.Said())
	}
	var none *Prices
	none.Paid(time.Hour)
	if b := none.Budget(time.Hour); b != 0 {
		t.Errorf("without prices: %d", b)
	}
}
