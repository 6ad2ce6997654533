package command

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/tier"
)

func TestScreenSaysThatNothingIsGranted(t *testing.T) {
	q := &tier.QuarantineError{Until: time.Now(), Reason: "the server is new"}
	waits := []inspect.Contender{{Node: "first", Kind: inspect.KindTierlock, State: inspect.Quarantined, Readable: true}}
	s := &screen{path: "/jobs", store: "Store"}
	text := strings.Join(s.lines(inspect.Sight{
		Quarantine: q, Complete: true,
		Queues: []*inspect.Queue{{Path: "/jobs/a", Contenders: waits, Quarantine: q}, {Path: "/jobs/b", Quarantine: q}},
	}, 24), "\n")
	for _, want := range []string{"Ctrl-C ends; " + q.Error(), "\n/jobs/a  1     -         none yet\n", "\n/jobs/b  -     -         free\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}
