package main

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

func TestMain(m *testing.M) {
	if twin.Role() != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The formulas in docs/capacity.md have to agree with what a server counts.
func TestTheServerCountsWhatTheFormulasSay(t *testing.T) {
	childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true}) // skips the test if there is no server
	for name, p := range map[string]plan{
		"contended":              {Procs: 5, Goroutines: 2},
		"contended by two":       {Procs: 2, Goroutines: 3},
		"own locks":              {Procs: 3, Goroutines: 1, Private: true},
		"own locks, many waiter": {Procs: 3, Goroutines: 3, Private: true},
	} {
		p.Locks, p.Session, p.Turns = 20, 10*time.Second, 300*time.Millisecond
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := need.Get(p.measure(t.Context()))(t)
			for _, r := range rows {
				c, e := r.counted, r.expected
				check := func(what string, counted, expected, slack float64) {
					if math.Abs(counted-expected) > slack {
						t.Errorf("%s, %v, %.0f turns: %s: %.0f, want %.0f ± %.0f", r.stage, r.took, r.turns, what, counted, expected, slack)
					}
				}
				beats := 3 * float64(p.Procs)                        // each kind of heartbeat may be counted once more or once less
				if r.stage == "turns" || r.stage == "others queue" { // here many requests are sent in groups, so fewer may be counted
					e.Requests, e.Sent, e.Writes = min(e.Requests, c.Requests), min(e.Sent, c.Sent), min(e.Writes, c.Writes)
				}
				check("znodes", c.Znodes, e.Znodes, 0)
				check("watches", c.Watches, e.Watches, 0)
				check("writes", c.Writes, e.Writes, beats+0.02*e.Writes)
				check("requests", c.Requests, e.Requests, beats+0.1*e.Requests)
				check("sent", c.Sent, e.Sent, beats+0.1*e.Sent)
			}
		})
	}
}
