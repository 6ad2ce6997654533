package report

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
)

func TestRTTIsPartOfTheWork(t *testing.T) {
	r := Result{Procs: 2, Goroutines: 3, Paths: 1, RTT: (20 * time.Millisecond).Nanoseconds(), Release: &durations.Quantiles{P50: 21e6}}
	need.Equal(t, "on a page", r.work(), "2 × 3, empty section, RTT of 20 ms")
	var text strings.Builder
	if err := r.Write(&text, false); err != nil || !strings.Contains(text.String(), ", rtt 20ms,") ||
		!strings.Contains(text.String(), "release     p50 21ms") {
		t.Errorf("as text: %v\n%s", err, &text)
	}
}

func TestTheSortOfLockIsShown(t *testing.T) {
	reads := 0.9
	for _, test := range []struct {
		result Result
		work   string
		text   []string
	}{
		{Result{}, "2 × 3, empty section", []string{"in the section 50.0 % of the time"}},
		{
			Result{Reads: &reads, Inside: 4.5, Readers: &Side{PerSecond: 900}, Writers: &Side{PerSecond: 100, Wait: durations.Quantiles{Max: 7e6}}},
			"2 × 3 with 90 % reads, empty section", []string{"4.5 inside on average", "readers     900/s", "writers     100/s", "max 7ms"},
		},
		{
			Result{Permits: 10, Weight: 2}, "2 × 3 of 10 permits, up to 2 at once, empty section",
			[]string{"5 permits in use on average, 50.0 %"},
		},
	} {
		r := test.result
		r.Procs, r.Goroutines, r.Busy = 2, 3, 0.5
		need.Equal(t, "work, on a page", r.work(), test.work)
		var text strings.Builder
		need.OK(t, r.Write(&text, false))
		need.Has(t, "as text", text.String(), test.text...)
	}
}
