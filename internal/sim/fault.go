package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// A trap is a fault that waits for a frame.
type trap struct {
	process *process // nil: of anybody
	op      zktest.Op
	stage   zktest.Stage
	left    int // frames to come
	spring  func(f *zktest.Frame) zktest.Action
	name    string
}

// anyOp makes a trap wait for any request but a handshake.
const anyOp zktest.Op = -1000

func (t *trap) catches(f *zktest.Frame, p *process) bool {
	if t.process != nil && t.process != p || t.stage != f.Stage {
		return false
	}
	return t.op == f.Op || t.op == anyOp && f.Op != zktest.OpConnect && f.Op != zktest.OpClose
}

// intercept decides the fate of a frame.
func (w *World) intercept(f *zktest.Frame) zktest.Action {
	p := w.book.owner(f.Session)
	if f.Stage == zktest.Request {
		w.book.requested(f)
	}
	if p == operator {
		return zktest.Pass
	}
	if t := w.trapFor(f, p); t != nil {
		w.diary.note("fault: %s on %v", t.name, f)
		return t.spring(f)
	}
	return w.latency(f)
}

func (w *World) trapFor(f *zktest.Frame, p *process) *trap {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, t := range w.traps {
		if t.catches(f, p) {
			if t.left--; t.left == 0 {
				w.traps = slices.Delete(w.traps, i, i+1)
			}
			return t
		}
	}
	return nil
}

// latency follows from the frame and the seed, not from the order in which frames come.
func (w *World) latency(f *zktest.Frame) zktest.Action {
	if w.plan.Latency == 0 {
		return zktest.Pass
	}
	h := mix(w.plan.Seed, uint64(f.Op), uint64(f.Stage), uint64(f.Nth))
	return zktest.Delay(time.Duration(h % uint64(w.plan.Latency)))
}

func (w *World) set(t *trap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, t)
}

// interesting are the operations that a lock consists of.
var interesting = []zktest.Op{
	zktest.OpCreate, zktest.OpCreate, zktest.OpDelete, zktest.OpMulti, zktest.OpGetData, zktest.OpGetChildren2,
	zktest.OpExists, zktest.OpSync, zktest.OpPing, zktest.OpSetWatches, zktest.OpCreateContainer, anyOp,
}

// lay sets a trap for frames of one kind of a process.
func (w *World) lay(rng *rand.Rand, fault Fault, p *process) {
	t := &trap{
		name: string(fault), process: p, left: 1 + rng.IntN(3),
		op:    interesting[rng.IntN(len(interesting))],
		stage: zktest.Stage(1 + rng.IntN(2)),
	}
	if rng.IntN(8) == 0 {
		t.op, t.stage = zktest.OpEvent, zktest.Event
	}
	d := around(rng, []time.Duration{20 * time.Millisecond, time.Second, 4 * time.Second, 2 * sessionTimeout}[rng.IntN(4)])
	switch fault {
	case Hole:
		// A stream has no holes: it breaks, sooner or later.
		t.spring = func(f *zktest.Frame) zktest.Action {
			w.later(d, func() { w.server.Cut(f.Session) })
			return zktest.Drop
		}
	case Cut:
		t.spring = func(*zktest.Frame) zktest.Action { return zktest.Cut }
		if rng.IntN(4) == 0 {
			t.op = zktest.OpConnect
		}
	case Delay:
		t.spring = func(*zktest.Frame) zktest.Action { return zktest.Delay(d) }
		if rng.IntN(6) == 0 {
			t.op = zktest.OpConnect
		}
	case Refusal:
		code := zktest.Code(-127) // throttled
		if rng.IntN(3) == 0 {
			code = -4 // connection loss between servers: the client cannot know whether it was applied
		}
		t.stage = zktest.Request
		t.spring = func(*zktest.Frame) zktest.Action { return zktest.Error(code) }
		if t.op == zktest.OpEvent {
			t.op = anyOp
		}
	}
	w.diary.note("step: %s of %v waits for %d × %v %v, %v", fault, p, t.left, t.op, t.stage, d)
	w.book.disturb(d + sessionTimeout)
	w.set(t)
}

// forge makes a process believe that its session has expired, at times in the middle of a create.
func (w *World) forge(rng *rand.Rand, p *process) {
	w.diary.note("step: forged expiry of %v", p)
	w.book.disturb(2 * sessionTimeout)
	w.set(&trap{
		name: "forgery", process: p, op: zktest.OpConnect, stage: zktest.Request, left: 1,
		spring: func(f *zktest.Frame) zktest.Action { return zktest.Expired },
	})
	if rng.IntN(2) == 0 {
		w.set(&trap{
			name: "cut before forgery", process: p, stage: zktest.Reply, left: 1,
			op:     []zktest.Op{zktest.OpCreate, zktest.OpMulti, zktest.OpDelete, zktest.OpGetData}[rng.IntN(4)],
			spring: func(*zktest.Frame) zktest.Action { return zktest.Cut },
		})
		return
	}
	w.cut(p)
}

// cut breaks the connections of a process.
func (w *World) cut(p *process) {
	for _, s := range w.server.Sessions() {
		if w.book.owner(s.ID) == p {
			w.server.Cut(s.ID)
		}
	}
}

// mix is a hash that spreads well enough (splitmix64).
func mix(values ...uint64) (h uint64) {
	for _, v := range values {
		h += v + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
