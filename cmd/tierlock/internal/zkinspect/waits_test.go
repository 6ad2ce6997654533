package zkinspect

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/interopdoc"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// The map documented assigns a sort of contender to rows of docs/interop.md. If a name stands for several rows, the sort has only the
// properties that these rows share.
var documented = map[string]sort{
	"tierlock":                 {kindTierlock, false},
	"tierlock WithKazoo":       {kindTierlock, true},
	"tierlock write":           {kindTierlockWrite, false},
	"tierlock write WithKazoo": {kindTierlockWrite, true},
	"tierlock read":            {kindTierlockRead, false},
	"tierlock read WithKazoo":  {kindTierlockRead, true},
	"zk.Lock":                  {kindZKLock, false},
	"Curator mutex":            {kindCurator, false},
	"Curator write":            {zkqueue.KindWrite, false},
	"Curator read":             {zkqueue.KindRead, false},
	"kazoo Lock":               {zkqueue.KindKazoo, false},
	"kazoo WriteLock":          {zkqueue.KindKazoo, false},
	"kazoo ReadLock":           {zkqueue.KindKazooRead, false},
	"kazoo Lock +":             {zkqueue.KindKazoo, false},
	"kazoo WriteLock +":        {zkqueue.KindKazoo, false},
	"kazoo ReadLock +":         {zkqueue.KindKazooRead, false},
}

// What the command prints about a queue has to agree with the table in docs/interop.md, which other tests check with the real libraries.
func TestWhoWaitsForWhomIsWhatTheTableSays(t *testing.T) {
	type pair struct{ waiter, other sort }
	said := make(map[pair]map[bool]bool)
	one := interopdoc.Read(t, "../../../../docs/interop.md")
	for _, row := range one.Rows {
		for i, waits := range row.Waits {
			waiter, known1 := documented[row.Name]
			other, known2 := documented[one.Head[i]]
			need.Must(t, fmt.Sprintf("unknown: %q, %q", row.Name, one.Head[i]), known1 && known2)
			p := pair{waiter, other}
			if said[p] == nil {
				said[p] = make(map[bool]bool)
			}
			said[p][waits] = true
		}
	}
	need.AtLeast(t, "cells", len(said), 100)
	for p, cells := range said {
		want := perhaps
		switch {
		case !cells[false]:
			want = yes
		case !cells[true]:
			want = no
		}
		need.Equal(t, fmt.Sprintf("%v waits for %v (%v)", p.waiter, p.other, cells), p.waiter.waitsFor(p.other), want)
	}
}

func TestForeignNamesAreReadAsTheOthersDo(t *testing.T) {
	for name, want := range map[string]bool{
		"config": false, "0000000007": true, "x-72057598332239872-0000000001": false, "lock-0000000001": true, "a__b__12": true, "leases": false,
	} {
		need.Equal(t, fmt.Sprintf("zk.Lock finds a number in %q", name), knownToZKLock(name), want)
	}
	for name, want := range map[string]string{"-config": "-config", "0000000003": "0000000003", "_c_x-lock-0000000004": "0000000004"} {
		need.Equal(t, fmt.Sprintf("what Curator sorts %q by", name), curatorNumber(name, kindCurator), want)
	}
}
