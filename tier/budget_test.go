package tier

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudgetIsTwentyPricesWithinItsBounds(t *testing.T) { // I11
	for _, c := range []struct{ price, want time.Duration }{
		{time.Microsecond, 2 * time.Millisecond},
		{500 * time.Microsecond, 10 * time.Millisecond},
		{3 * time.Millisecond, 60 * time.Millisecond},
		{time.Hour, 100 * time.Millisecond},
	} {
		var b budget
		if got := b.current(); got != 10*time.Millisecond {
			t.Errorf("before any price: %v, want 10ms", got)
		}
		b.learn(c.price)
		if got := b.current(); got != c.want {
			t.Errorf("price %v: budget %v, want %v", c.price, got, c.want)
		}
	}
}

func TestOneOddPriceMovesTheBudgetByAnEighth(t *testing.T) {
	var b budget
	b.learn(time.Millisecond)
	b.learn(3 * time.Millisecond)
	if got, want := b.current(), 25*time.Millisecond; got != want {
		t.Errorf("prices of 1 and 3 ms: budget %v, want %v", got, want)
	}
}

func TestBudgetLearnsFromReleasesThatSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(d time.Duration, err error) func() error {
			return func() error { time.Sleep(d); return err }
		}
		var adaptive budget
		failure := errors.New("failure")
		if err := adaptive.give(takes(time.Millisecond, failure)); !errors.Is(err, failure) {
			t.Errorf("give: %v, want the error of the release", err)
		}
		if got := adaptive.current(); got != firstBudget {
			t.Errorf("after a failure: budget %v, want the first one", got)
		}
		adaptive.give(takes(2*time.Millisecond, nil))
		if got, want := adaptive.current(), 40*time.Millisecond; got != want {
			t.Errorf("after a release of 2 ms: budget %v, want %v", got, want)
		}
		fixed := budget{fixed: true, duration: time.Second}
		fixed.give(takes(2*time.Millisecond, nil))
		if got := fixed.current(); got != time.Second {
			t.Errorf("fixed: budget %v, want what was set", got)
		}
	})
}
