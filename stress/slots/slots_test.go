package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

func TestMain(m *testing.M) {
	if twin.Role() != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// On each store, the process that runs the slots is killed, and the next one is stopped for longer than its lease. More faults take longer:
// see the Makefile's target slots.
func TestPromisesHoldOnEveryStore(t *testing.T) {
	for _, name := range store.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each run has a server of its own
			s := need.Get(store.Named(name))(t)
			p := plan{Store: s, Duration: time.Second / 2, Pause: time.Second / 2, Interval: 250 * time.Millisecond, Skew: 500 * time.Millisecond,
				Session: 2 * time.Second}
			if s == store.ZooKeeper {
				p.Session = 2600 * time.Millisecond // its shortest
			}
			v, err := p.run(t.Context(), os.Stderr)
			childtest.Check(t, err)
			t.Log(v)
			need.Empty(t, "violations", v.Violations)
			need.That(t, fmt.Sprintf("too little has happened: %v", v),
				v.Kills == 1 && v.Stops == 1 && v.Counts[slots.CaughtUp] > 0 && v.Slots > 4)
		})
	}
}

func TestClockOfAProcessIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := need.Get(memlock.NewServer().Connect())(t)
		defer locks.Close()
		ctx, end := context.WithCancel(t.Context())
		start := time.Now() // midnight
		_ = slots.New(locks.Mutex("/job"), slots.Every(time.Minute, time.Time{}), ahead(20*time.Second)).Run(ctx,
			func(context.Context, slots.Slot) error { end(); return nil })
		need.Equal(t, "the first slot began after", time.Since(start), 40*time.Second)
	})
}

// entry.on returns an entry of a slot, whose token is 10 more than the PID.
func (e entry) on(slot, attempt, pid int, at clock.Instant) entry {
	e.Time, e.Attempt, e.PID, e.Token, e.At = time.Unix(int64(slot), 0), attempt, pid, int64(10+pid), at
	return e
}

func TestJudgeFindsBrokenPromises(t *testing.T) {
	begins, ends, loses, ran := entry{What: began}, entry{What: ended}, entry{What: cut}, entry{What: slots.Ran}
	first := []entry{begins.on(1, 1, 1, 10), ends.on(1, 1, 1, 20), ran.on(1, 1, 1, 21)}
	open := begins.on(2, 1, 1, 30) // the process dies during this run
	retry := begins.on(2, 2, 2, 60)
	taken := retry
	taken.Token = open.Token
	type row struct {
		after []entry // after the first slot
		end   ledger  // zero: the ledger that agrees with the last beginning
		want  string
	}
	need.Each(t, map[string]row{
		"one slot":                    {nil, ledger{}, ""},
		"the next slot":               {[]entry{begins.on(2, 1, 2, 30), ends.on(2, 1, 2, 31)}, ledger{}, ""},
		"a retry":                     {[]entry{open, retry}, ledger{}, ""},
		"no outcome in the ledger":    {[]entry{open, ends.on(2, 1, 1, 40), retry}, ledger{}, ""},
		"a stopped run":               {[]entry{open, loses.on(2, 1, 1, 50), retry}, ledger{}, ""},
		"an entry written late":       {[]entry{retry, open}, ledger{retry.Time, "done", 2, 12}, ""},
		"a run without entries":       {[]entry{retry, entry{What: slots.Lost}.on(2, 1, 1, 61)}, ledger{}, ""},
		"two at a time":               {[]entry{open, retry, loses.on(2, 1, 1, 61)}, ledger{}, "had the lock"},
		"a slot that is done":         {[]entry{begins.on(1, 2, 2, 60)}, ledger{}, "again"},
		"an attempt twice":            {[]entry{open, begins.on(2, 1, 2, 60)}, ledger{}, "again"},
		"a slot of the past":          {[]entry{open, begins.on(1, 2, 2, 60)}, ledger{}, "not the slot after"},
		"a missing slot":              {[]entry{begins.on(3, 1, 1, 60)}, ledger{}, "not the slot after"},
		"no retry":                    {[]entry{open, begins.on(3, 1, 2, 60)}, ledger{}, "never retried"},
		"a token that goes back":      {[]entry{begins.on(2, 1, 0, 60)}, ledger{}, "I8"},
		"a token of two processes":    {[]entry{open, taken}, ledger{}, "I8"},
		"a skipped slot":              {[]entry{entry{What: slots.Skipped}.on(2, 0, 1, 60)}, ledger{}, "skipped"},
		"a failed slot":               {[]entry{entry{What: slots.Failed}.on(2, 1, 1, 60)}, ledger{}, "failed"},
		"a ledger of another slot":    {nil, ledger{time.Unix(2, 0), "done", 1, 11}, "the ledger is"},
		"a ledger without an outcome": {nil, ledger{time.Unix(1, 0), "begun", 1, 11}, "the ledger is"},
		"a ledger of another attempt": {nil, ledger{time.Unix(1, 0), "done", 2, 11}, "the ledger is"},
		"a ledger with another token": {nil, ledger{time.Unix(1, 0), "done", 1, 12}, "the ledger is"},
	}, func(t *testing.T, r row) {
		entries := append(first, r.after...)
		if r.end.State == "" {
			begun := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.What != began })
			last := begun[len(begun)-1]
			r.end = ledger{last.Time, "done", last.Attempt, last.Token}
		}
		var v verdict
		v.judge(entries, time.Second, r.end)
		all := strings.Join(v.Violations, "\n")
		need.That(t, fmt.Sprintf("got %q, want %q", all, r.want), (r.want == "") == (all == "") && strings.Contains(all, r.want))
	})
}
