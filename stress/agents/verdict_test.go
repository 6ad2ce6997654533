package main

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

func TestClientsThatNeverRenewAreFound(t *testing.T) {
	const second = clock.Instant(time.Second)
	// Two clients, in Go and Python, have many long sections each, one after the other. spoil may change those of the client in Python.
	need.Each(t, map[string]struct {
		spoil func(i int, h *evidence.Hold)
		hits  []hit
		want  int
	}{
		"each kept the lock":             {spoil: func(int, *evidence.Hold) {}},
		"each was lost":                  {spoil: func(_ int, h *evidence.Hold) { h.Lost = true }, want: 1},
		"each was valid for less":        {spoil: func(_ int, h *evidence.Hold) { h.Valid = h.Got + second/2 }, want: 1},
		"all but one were lost":          {spoil: func(i int, h *evidence.Hold) { h.Lost = i > 0 }},
		"each was lost, and one is open": {spoil: func(i int, h *evidence.Hold) { h.Lost = true; h.Over *= clock.Instant(min(i, 1)) }},
		"each was lost, one by a fault": {
			spoil: func(_ int, h *evidence.Hold) { h.Lost = true }, hits: []hit{{client: 2, from: 10*second + 1, until: 11 * second}},
		},
		"each was lost, one by a fault of the agent": {
			spoil: func(_ int, h *evidence.Hold) { h.Lost = true }, hits: []hit{{agent: 1, from: 10*second + 1, until: 11 * second}},
		},
		"each was lost, and a fault hit another client": {
			spoil: func(_ int, h *evidence.Hold) { h.Lost = true }, hits: []hit{{client: 1, from: 0, until: 90 * second}}, want: 1,
		},
		"each was short and lost": {spoil: func(_ int, h *evidence.Hold) { h.Long, h.Lost = false, true }},
	}, func(t *testing.T, row struct {
		spoil func(i int, h *evidence.Hold)
		hits  []hit
		want  int
	},
	) {
		clients := []*client{{program: program{language: "go"}}, {program: program{language: "python"}}}
		var holds []evidence.Hold
		for i := range manyLong {
			got := clock.Instant(10+4*i) * second
			mine := evidence.Hold{Process: 1, Agent: 2, Long: true, Got: got, Valid: got + 3*second/2, Over: got + 3*second/2 + 1}
			other := mine
			other.Process, other.Agent = 2, 1
			row.spoil(i, &other)
			holds = append(holds, mine, other)
		}
		v := &verdict{ByLanguage: []tally{{language: "go"}, {language: "python"}}}
		d := faults{hits: row.hits}
		v.renewals(clients, holds, time.Second, func(h evidence.Hold) bool { return d.touched(h, time.Second) })
		need.Equal(t, "violations", len(v.Other), row.want)
		if row.want > 0 {
			need.Has(t, "the violation", v.Other[0], "python")
		}
	})
}
