package report

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
)

func TestRTTIsPartOfTheWork(t *testing.T) {
	r := Result{Procs: 2, Goroutines: 3, Paths: 1, RTT: (20 * time.Millisecond).Nanoseconds(), Release: &durations.Quantiles{P50: 21e6}}
	need.Equal(t, "on a page", r.Work(), "2 × 3, empty section, RTT of 20 ms")
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
		need.Equal(t, "work, on a page", r.Work(), test.work)
		var text strings.Builder
		need.OK(t, r.Write(&text, false))
		need.Has(t, "as text", text.String(), test.text...)
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Amount(0), "0"},
		{Amount(0.00001234), "0.0000123"},
		{Amount(0.000123), "0.000123"},
		{Amount(0.9996), "1"},
		{Amount(2.40), "2.4"},
		{Amount(999.6), "1,000"},
		{Amount(1234567), "1,230,000"},
		{Rounded(1.0123, 4), "1.012"},
		{Duration(0), "0 ns"},
		{Duration(999), "999 ns"},
		{Duration(1500 * time.Microsecond), "1.5 ms"},
		{Duration(90 * time.Second), "90 s"},
	} {
		need.Equal(t, "said", test.got, test.want)
	}
}
