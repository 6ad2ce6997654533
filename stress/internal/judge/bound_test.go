package judge

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

func TestAwayBound(t *testing.T) {
	const far, slow, nobody = 2 * leastHandOff, 2 * time.Millisecond, 0
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
		price   time.Duration
		handOff *time.Duration
		want    time.Duration
	}{
		{"strict", "mutex", 4, 0, 0, &strict, 3 * 5 * time.Millisecond},
		{"default", "mutex", 3, 0, 0, nil, 2 * (leastHandOff + 5*time.Millisecond)},
		{"default, far away", "mutex", 3, far, 0, nil, 2 * (far + 5*time.Millisecond)},
		{"default, slow", "mutex", 3, 0, slow, nil, 2 * (21*slow + 5*time.Millisecond)},
		{"strict, far away", "mutex", 4, time.Second, 0, &strict, 3 * 5 * time.Millisecond},
		{"alone", "mutex", 1, 0, 0, nil, nobody},
		{"peer", "zk", 4, 0, 0, nil, nobody},
	} {
		r := measured
		r.Lock, r.Procs, r.RTT = test.lock, test.procs, test.rtt.Nanoseconds()
		r.HandOver.P99 = test.price.Nanoseconds()
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
