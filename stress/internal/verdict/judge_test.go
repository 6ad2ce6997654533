package verdict

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/report"
)

func TestTheJudgeCountsAPlantedOverlap(t *testing.T) {
	const second = clock.Instant(time.Second)
	for name, test := range map[string]struct {
		ownerKnows clock.Instant // when the owner learns of the loss; 0: never
		woke       clock.Instant
		want       verdict
	}{
		"the owner knows before":        {3 * second, 0, verdict{0, 0}},
		"the owner knows at the time":   {5 * second, 0, verdict{0, 0}},
		"the owner knows after":         {6 * second, 0, verdict{1, time.Second}},
		"the owner knows once it wakes": {3 * second, 6 * second, verdict{0, 0}},
		"the owner wakes and believes":  {7 * second, 6 * second, verdict{1, time.Second}},
		"the owner never knows":         {0, 0, verdict{1, 4 * time.Second}},
	} {
		turns := []turn{{"owner", 1, test.ownerKnows}, {"waiter", 5 * second, 7 * second}, {"waiter", 10 * second, 11 * second}}
		need.Equal(t, name, judge(turns, test.woke, 9*second), test.want)
	}
}

func TestTheDocumentNamesTheTrialsThatShowAnOverlap(t *testing.T) {
	f := &findings{where: &report.Environment{}, trials: 2, outcomes: []outcome{
		{Subject: "redsync", Fault: "cut", Number: 1},
		{Subject: "redsync", Fault: "cut", Number: 2, Choice: "mute for 9.0 s", verdict: verdict{1, time.Second}},
	}}
	need.Has(t, "the document", f.document(), "| redsync | 1 of 2 | 1.000 s | 0 | 0 | `redsync/cut` 2 (mute for 9.0 s) |")
}
