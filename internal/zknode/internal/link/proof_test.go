package link

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
)

// In each row, requests are sent and answered at the given times. want is the proven time, or 0 if nothing is proven. The handshake was
// sent at 1 and answered at 2, and half a tick is 10.
func TestProofNeedsASyncHalfATickLaterAndAWriteBehindIt(t *testing.T) {
	type request struct {
		op             int32
		sent, answered time.Duration
		want           time.Duration
	}
	for name, requests := range map[string][]request{
		"a write behind the handshake": {{wire.OpCreate, 5, 6, 1}},
		"reads prove nothing":          {{wire.OpExists, 20, 21, 0}, {wire.OpCreate, 22, 23, 1}},
		"a sync alone proves nothing":  {{wire.OpSync, 20, 21, 0}},
		"a sync behind the handshake":  {{wire.OpSync, 12, 13, 0}, {wire.OpCreate, 14, 15, 1}},
		"two syncs and a write":        {{wire.OpSync, 12, 13, 0}, {wire.OpSync, 23, 24, 0}, {wire.OpCreate, 25, 26, 12}},
		"all writes after that": {
			{wire.OpSync, 12, 13, 0}, {wire.OpSync, 23, 24, 0}, {wire.OpCreate, 25, 26, 12}, {wire.OpCreate, 90, 91, 12},
		},
		"a sync within half a tick counts for none": {
			{wire.OpSync, 12, 13, 0}, {wire.OpSync, 22, 24, 0}, {wire.OpCreate, 25, 26, 1}, {wire.OpSync, 27, 28, 0}, {wire.OpCreate, 29, 30, 12},
		},
	} {
		p := opened(1, 2, 10)
		for i, q := range requests {
			sent := p.sent(q.op, q.sent)
			var heard time.Duration
			switch q.op {
			case wire.OpSync:
				p.synced(sent, q.answered)
			case wire.OpCreate:
				if since, ok := p.wrote(sent); ok {
					heard = since
				}
			}
			need.Equal(t, fmt.Sprintf("%s: the time that request %d proves", name, i), heard, q.want)
		}
	}
}

// A sync waits for the newest report of the follower. The write may have reached the leader before that report, but not before the previous
// one. Only the previous report is proven.
func TestWriteProvesNoReportThatIsNotAheadOfIt(t *testing.T) {
	p := opened(1, 2, 10)
	p.synced(p.sent(wire.OpSync, 12), 13)
	second := p.sent(wire.OpSync, 23)
	early := p.sent(wire.OpCreate, 24)
	p.synced(second, 25)
	if heard, ok := p.wrote(early); !ok || heard != 1 {
		t.Errorf("proves %v, %t, want the time of the first sync", heard, ok)
	}
	p.synced(p.sent(wire.OpSync, 36), 37)
	if heard, ok := p.wrote(early); ok {
		t.Errorf("proves %v although two reports have come since", heard)
	}
}

func TestOnlyWritesThatSucceededAreCommitted(t *testing.T) {
	multi := func(first int32) []byte {
		var e wire.Encoder
		e.Int32(first)
		e.Bool(false)
		e.Int32(0)
		return e
	}
	for _, tt := range []struct {
		op   int32
		body []byte
		want bool
	}{
		{wire.OpCreate, nil, true}, {wire.OpDelete, nil, true}, {wire.OpSetData, nil, true},
		{wire.OpMulti, multi(wire.OpCheck), true}, {wire.OpMulti, multi(wire.OpError), false}, {wire.OpMulti, nil, false},
		{wire.OpExists, nil, false}, {wire.OpGetData, nil, false}, {wire.OpGetChildren2, nil, false}, {wire.OpSync, nil, false},
		{wire.OpSetWatches, nil, false}, {wire.OpSetAuth, nil, false}, {wire.OpPing, nil, false},
	} {
		need.Equal(t, fmt.Sprintf("%s with body %v", wire.OpName(tt.op), tt.body), committed(tt.op, wire.Decoder{Rest: tt.body}), tt.want)
	}
}
