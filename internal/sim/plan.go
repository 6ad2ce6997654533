package sim

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Trouble is a way in which a run may go wrong.
type Trouble string

const (
	Hole     Trouble = "hole"     // a frame is lost, and some time later its connection
	Cut      Trouble = "cut"      // a connection ends, before or after a request is applied
	Delay    Trouble = "delay"    // a frame takes longer than a context, or than a session
	Refusal  Trouble = "refusal"  // a request is answered with an error that means: not now
	Mute     Trouble = "mute"     // nothing gets through in one direction
	Freeze   Trouble = "freeze"   // the ensemble stands still
	Member   Trouble = "member"   // one server stands still, refuses, or loses its connections
	Lag      Trouble = "lag"      // servers fall behind the leader
	Split    Trouble = "split"    // a server loses its leader, for good, for a while, or but for a moment
	Forgery  Trouble = "forgery"  // a session is said to have expired while its nodes live on
	Expiry   Trouble = "expiry"   // a session is ended before its time
	Deletion Trouble = "deletion" // an operator deletes a lock node, or the parent with all below
	Restart  Trouble = "restart"  // a process ends, and another one starts in its place
)

var allTroubles = []Trouble{
	Hole, Cut, Delay, Refusal, Mute, Freeze, Member, Lag, Split, Forgery, Expiry, Deletion, Restart,
}

// A Plan is what a seed decides. Runs of one plan do the same things at the same virtual times; only the order of
// goroutines that run at the same instant is the Go scheduler's.
type Plan struct {
	Seed      uint64
	Processes int
	Members   int           // of the ensemble
	Tick      time.Duration // of the ensemble; without one the leader hears of each request at once
	Paths     int           // of locks
	Steps     int
	Latency   time.Duration // the most that a frame takes
	Bridged   bool          // some processes make their nodes with kazoo
	Worn      bool          // the sequence numbers of paths come to where they have to begin anew
	Troubles  []Trouble
	Uses      [4]Use // of paths
	Permits   int    // of the semaphore, 0 if there is none
	Reads     int    // percent of the jobs with a reader/writer lock that read
}

// A Use says by which locks a path is used.
type Use string

const (
	OfMutex   Use = "mutex"
	OfReaders Use = "rw"
	OfBoth    Use = "mutex and rw"
)

// drawMode decides in which mode a job asks for the lock of a path.
func (p Plan) drawMode(rng *rand.Rand, path int) second.Mode {
	use := p.Uses[path]
	switch reads := rng.IntN(100) < p.Reads; {
	case use == OfMutex || use == OfBoth && rng.IntN(3) == 0:
		return second.Exclusive
	case reads:
		return second.Reading
	}
	return second.Writing
}

// NewPlan draws a plan. Not every run has every trouble: one that is always there hides what happens without it.
func NewPlan(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{
		Seed:      seed,
		Processes: 2 + rng.IntN(4),
		Members:   1 + 2*rng.IntN(2),
		Paths:     []int{1, 2, 2, 4}[rng.IntN(4)], // with several, requests leave in groups
		Steps:     100 + rng.IntN(110),
		Latency:   []time.Duration{0, 300 * time.Microsecond, 3 * time.Millisecond}[rng.IntN(3)],
	}
	if rng.IntN(4) > 0 {
		for _, t := range allTroubles {
			if rng.IntN(5) < 2 {
				p.Troubles = append(p.Troubles, t)
			}
		}
	}
	p.Bridged = rng.IntN(2) == 0
	p.Worn = rng.IntN(2) == 0
	p.Tick = []time.Duration{0, sessionTimeout / 12, sessionTimeout / 6, sessionTimeout/4 - 100*time.Millisecond}[rng.IntN(4)]
	for i := range p.Uses {
		p.Uses[i] = []Use{OfMutex, OfMutex, OfReaders, OfReaders, OfReaders, OfBoth}[rng.IntN(6)]
	}
	p.Permits = []int{0, 0, 0, 1, 2, 5}[rng.IntN(6)]
	p.Reads = []int{20, 50, 90}[rng.IntN(3)]
	return p
}

// Smaller yields plans that do less, the boldest reductions first.
func (p Plan) Smaller() iter.Seq[Plan] {
	return func(yield func(Plan) bool) {
		var smaller []Plan
		reduce := func(change func(*Plan)) {
			q := p
			q.Troubles = slices.Clone(p.Troubles)
			change(&q)
			smaller = append(smaller, q)
		}
		if p.Steps > 4 {
			reduce(func(q *Plan) { q.Steps /= 2 })
			reduce(func(q *Plan) { q.Steps = q.Steps * 4 / 5 })
		}
		if p.Processes > 1 {
			reduce(func(q *Plan) { q.Processes-- })
		}
		for i := range p.Troubles {
			reduce(func(q *Plan) { q.Troubles = slices.Delete(q.Troubles, i, i+1) })
		}
		if p.Members > 1 {
			reduce(func(q *Plan) { q.Members = 1 })
		}
		if p.Tick > 0 {
			reduce(func(q *Plan) { q.Tick = 0 })
		}
		if p.Bridged {
			reduce(func(q *Plan) { q.Bridged = false })
		}
		if p.Worn {
			reduce(func(q *Plan) { q.Worn = false })
		}
		if p.Paths > 1 {
			reduce(func(q *Plan) { q.Paths /= 2 })
		}
		if p.Permits > 0 {
			reduce(func(q *Plan) { q.Permits = 0 })
		}
		for i := range p.Paths {
			if p.Uses[i] == OfBoth {
				reduce(func(q *Plan) { q.Uses[i] = OfReaders })
			}
			if p.Uses[i] != OfMutex {
				reduce(func(q *Plan) { q.Uses[i] = OfMutex })
			}
		}
		for _, q := range smaller {
			if !yield(q) {
				return
			}
		}
	}
}

func (p Plan) has(t Trouble) bool { return slices.Contains(p.Troubles, t) }

// networked reports whether requests and replies may get lost or come late.
func (p Plan) networked() bool {
	return slices.ContainsFunc(p.Troubles, func(t Trouble) bool { return t != Deletion })
}

// maxSection bounds how long a lock is held in one go. Without faults sections are short, so that the bound on
// waiting is tight.
func (p Plan) maxSection() time.Duration {
	if len(p.Troubles) == 0 {
		return 20 * time.Millisecond
	}
	return 2 * sessionTimeout
}

func (p Plan) paths() []string {
	return []string{"/locks/a", "/locks/deep/b", "/locks/c", "/locks/d"}[:p.Paths]
}

func (p Plan) String() string {
	troubles := make([]string, len(p.Troubles))
	for i, t := range p.Troubles {
		troubles[i] = string(t)
	}
	return fmt.Sprintf("seed %d: %d processes, %d members, tick %v, %d paths, %d steps, latency %v, "+
		"bridged %t, worn %t, uses %q, reads %d, permits %d, troubles [%s]",
		p.Seed, p.Processes, p.Members, p.Tick, p.Paths, p.Steps, p.Latency,
		p.Bridged, p.Worn, p.Uses[:p.Paths], p.Reads, p.Permits, strings.Join(troubles, " "))
}
