package second

import (
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
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
		{"two were slow", append(nine(20 * ms)[:7], 3e9, 3e9), lease, 380 * ms, 415 * ms},
		{"three were slow", append([]time.Duration{3e9, 3e9, 3e9}, nine(0)[:6]...), lease, 910 * ms, time.Second},
		{"a tenth of the lease", nine(time.Second), lease, 910 * ms, time.Second},
		{"of a short one", nine(time.Second), 100 * ms, 20 * ms, 20 * ms},
		{"of a long one", nine(time.Hour), 1000 * time.Hour, 4690 * ms, 4700 * ms},
	} {
		need.Between(t, c.name, budgetFor([9]time.Duration(c.took), c.lease).Duration(), c.least, c.most)
	}
}

func TestABudgetThatNobodyCanSayIsTheLast(t *testing.T) {
	need.Equal(t, "the budget of a content that says 255", Budget(255).Duration(), LastBudget.Duration())
}

func TestPricesAreThoseOfTheLastTimes(t *testing.T) {
	var p Prices
	p.Paid(time.Hour)
	for i := range 20 {
		need.That(t, "a budget after two of nine", i != 1 || p.Budget(10*time.Second) == 0)
		p.Paid(20 * time.Millisecond)
	}
	need.Equal(t, "the budget", p.Budget(10*time.Second), 34)
	need.Equal(t, "what is said", p.Said(), 34)
	var none *Prices
	none.Paid(time.Hour)
	need.Equal(t, "without prices", none.Budget(time.Hour), 0)
}
