package judge

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

func TestAwayBound(t *testing.T) {
	const far, nobody = 2 * defaultHandOff, 0
	strict := time.Duration(0)
	measured := report.Result{
		Busy: 0.5, Duration: int64(time.Second), Acquisitions: 500, // sections of 1 ms
		HandOver: durations.Quantiles{Max: int64(3 * time.Millisecond)}, Away: &durations.Quantiles{},
	}
	for _, test := range []struct {
		name    string
		lock    string
		procs   int
		rtt     time.Duration
		handOff *time.Duration
		want    time.Duration
	}{
		{"strict", "mutex", 4, 0, &strict, 3 * 5 * time.Millisecond},
		{"default", "mutex", 3, 0, nil, 2 * (defaultHandOff + 5*time.Millisecond)},
		{"default, far away", "mutex", 3, far, nil, 2 * (far + 5*time.Millisecond)},
		{"strict, far away", "mutex", 4, time.Second, &strict, 3 * 5 * time.Millisecond},
		{"alone", "mutex", 1, 0, nil, nobody},
		{"peer", "zk", 4, 0, nil, nobody},
	} {
		r := measured
		r.Lock, r.Procs, r.RTT = test.lock, test.procs, test.rtt.Nanoseconds()
		if got, ok := AwayBound(&r, test.handOff); got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: got %v, %t, want %v", test.name, got, ok, test.want)
		}
	}
	r := measured
	r.Lock, r.Procs, r.Away = "mutex", 4, nil
	if got, ok := AwayBound(&r, nil); ok {
		t.Errorf("where nobody wants the lock all the time: got %v", got)
	}
}
