package clock

import (
	"testing"
	"time"
)

func TestInstantsOfBothClocksAgree(t *testing.T) {
	before := Now()
	at := Tick()
	after := Now()
	const slack = 100 * time.Microsecond // an interruption between reading the two clocks may have shifted origin
	if at < before.Add(-slack) || at > after.Add(slack) {
		t.Errorf("got %d between %d and %d", at, before, after)
	}
}
