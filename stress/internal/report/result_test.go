package report

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
)

func TestRTTIsPartOfTheWork(t *testing.T) {
	r := Result{Procs: 2, Goroutines: 3, Paths: 1, RTT: (20 * time.Millisecond).Nanoseconds(), Release: &durations.Quantiles{P50: 21e6}}
	if got, want := r.work(), "2 × 3, empty section, RTT of 20 ms"; got != want {
		t.Errorf("on a page: got %q, want %q", got, want)
	}
	var text strings.Builder
	if err := r.Write(&text, false); err != nil || !strings.Contains(text.String(), ", rtt 20ms,") ||
		!strings.Contains(text.String(), "release     p50 21ms") {
		t.Errorf("as text: %v\n%s", err, &text)
	}
}
