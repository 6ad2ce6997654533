package cronlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/slots"
)

// According to the documentation of package slots, the parser decides what happens when clocks change.
func TestCronSlotsWhenClocksChange(t *testing.T) {
	for spec, want := range map[string]string{
		"CRON_TZ=Europe/Berlin 30 2 * * *": "03-28 01:30, 03-30 00:30, 03-31 00:30", // 02:30 does not exist on the 29th
		"CRON_TZ=Europe/Berlin 0 * * * *":  "03-28 00:00, 03-28 01:00, 03-28 02:00",
		"30 2 * * *":                       "03-28 02:30, 03-29 02:30, 03-30 02:30", // in UTC, whatever the zone of the process
	} {
		if got := times(t, spec, time.Date(2026, 3, 27, 23, 0, 0, 0, time.UTC)); got != want {
			t.Errorf("%s in spring: %s, want %s", spec, got, want)
		}
	}
	const twice = "10-24 00:30, 10-25 00:30, 10-25 01:30" // 02:30 is there twice on the 25th
	if got := times(t, "CRON_TZ=Europe/Berlin 30 2 * * *", time.Date(2026, 10, 23, 23, 0, 0, 0, time.UTC)); got != twice {
		t.Errorf("in autumn: %s, want %s", got, twice)
	}
}

// times returns the first three slots of a schedule, in UTC.
func times(t *testing.T, spec string, after time.Time) string {
	t.Helper()
	parsed, err := cron.ParseStandard(spec)
	if err != nil {
		t.Fatal(err)
	}
	var schedule slots.Schedule = parsed.Next
	var all []string
	for range 3 {
		after = schedule(after.UTC())
		all = append(all, fmt.Sprint(after.UTC().Format("01-02 15:04")))
	}
	return strings.Join(all, ", ")
}
