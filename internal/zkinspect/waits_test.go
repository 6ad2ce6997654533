package zkinspect

import (
	"testing"

	"github.com/tierlock/tierlock/internal/interopdoc"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// rows of docs/interop.md by the sort of contender that they are about. Where a name stands for several
// rows, it tells only what they have in common.
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

// The table is checked against the real libraries; what is told of a queue follows from it.
func TestWhoWaitsForWhomIsWhatTheTableSays(t *testing.T) {
	type pair struct{ waiter, other sort }
	said := make(map[pair]map[bool]bool)
	for _, one := range interopdoc.Tables(t, "../../docs/interop.md") {
		for _, row := range one.Rows {
			for i, waits := range row.Waits {
				waiter, known1 := documented[row.Name]
				other, known2 := documented[one.Head[i]]
				if !known1 || !known2 {
					t.Fatalf("unknown: %q, %q", row.Name, one.Head[i])
				}
				p := pair{waiter, other}
				if said[p] == nil {
					said[p] = make(map[bool]bool)
				}
				said[p][waits] = true
			}
		}
	}
	if len(said) < 100 {
		t.Fatalf("only %d cells", len(said))
	}
	for p, cells := range said {
		want := perhaps
		switch {
		case !cells[false]:
			want = yes
		case !cells[true]:
			want = no
		}
		if got := p.waiter.waitsFor(p.other); got != want {
			t.Errorf("%v waits for %v: got %d, want %d (%v)", p.waiter, p.other, got, want, cells)
		}
	}
}

func TestForeignNamesAreReadAsTheOthersDo(t *testing.T) {
	for name, want := range map[string]bool{
		"config": false, "0000000007": true, "x-72057598332239872-0000000001": false, "lock-0000000001": true, "a__b__12": true, "leases": false,
	} {
		if got := knownToZKLock(name); got != want {
			t.Errorf("zk.Lock finds a number in %q: got %t", name, got)
		}
	}
	for name, want := range map[string]string{"-config": "-config", "0000000003": "0000000003", "_c_x-lock-0000000004": "0000000004"} {
		if got := curatorNumber(name, kindCurator); got != want {
			t.Errorf("Curator sorts %q by %q, want %q", name, got, want)
		}
	}
}
