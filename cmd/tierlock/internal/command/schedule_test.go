package command

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Cron expressions have the same times in every time zone of the process.
func TestCronExpressions(t *testing.T) {
	after := time.Date(2026, 6, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"0 3 * * *":                       "2026-07-01T03:00:00Z",
		"@monthly":                        "2026-07-01T00:00:00Z",
		"CRON_TZ=Europe/Berlin 0 3 * * *": "2026-07-01T01:00:00Z",
		"TZ=Asia/Tokyo @daily":            "2026-06-30T15:00:00Z",
	} {
		next := need.Get(parseCron(text))(t)
		need.Equal(t, "the slot of "+text, next(after).UTC().Format(time.RFC3339), want)
	}
	for text, want := range map[string]string{
		"":                              "empty",
		"0 3 * *":                       "exactly 5 fields",
		"0 25 * * *":                    "above maximum",
		"0 0 31 2 *":                    "no slot",
		"@every 1h":                     "use the flag -every",
		"@reboot":                       "unrecognized descriptor",
		"CRON_TZ=Europe/Berlin":         "the fields after the time zone are missing",
		"CRON_TZ=Europe/Bonn 0 3 * * *": "Europe/Bonn",
	} {
		_, err := parseCron(text)
		need.Must(t, text+" is taken", err != nil)
		need.Has(t, "the error of "+text, err.Error(), want)
	}
}
