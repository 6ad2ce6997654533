package durations

import (
	"testing"
	"time"
)

func TestCurveEndsAtTheLongestDuration(t *testing.T) {
	h := NewHistogram()
	for i := range 1000 {
		h.Keep(time.Duration(i + 1))
	}
	curve := h.Curve()
	last, longest := curve[len(curve)-1], h.Quantiles().Max
	if len(curve) > 40 || last.Q != 1 || last.NS != longest {
		t.Errorf("got %d points, the last at %+v, want up to 40 that end at %d", len(curve), last, longest)
	}
	for i := range curve[1:] {
		if curve[i+1].Q <= curve[i].Q || curve[i+1].NS < curve[i].NS {
			t.Errorf("point %d goes back: %+v after %+v", i+1, curve[i+1], curve[i])
		}
	}
}
