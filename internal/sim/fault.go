package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zktest"
)

// arm lets frames of a process meet a fault.
func (w *World) arm(name string, p *worker, f fault.Fault) {
	about, before := f.About, f.Before
	f.About = func(f *zktest.Frame) bool { return w.book.owner(f.Session) == p && (about == nil || about(f)) }
	f.Before = func(f *zktest.Frame) {
		w.diary.note("fault: %s on %v", name, f)
		if before != nil {
			before(f)
		}
	}
	w.faults.Arm(f)
}

// ordinary is what frames of any request are about but handshakes and their counterpart.
func ordinary(f *zktest.Frame) bool {
	return f.Op != "connect" && f.Op != "closeSession" && f.Op != "event"
}

// intercept decides the fate of a frame.
func (w *World) intercept(f *zktest.Frame) zktest.Action {
	p := w.book.owner(f.Session)
	if f.Dir == zktest.Request {
		w.book.requested(f)
	}
	if p == operator {
		return zktest.Pass
	}
	if action, ok := w.faults.Meet(f); ok {
		return action
	}
	return w.latency(f)
}

// latency follows from the frame and the seed, not from the order in which frames come.
func (w *World) latency(f *zktest.Frame) zktest.Action {
	if w.plan.Latency == 0 {
		return zktest.Pass
	}
	op := fnv.New64a()
	op.Write([]byte(f.Op))
	h := mix(w.plan.Seed, op.Sum64(), uint64(f.Dir), uint64(f.Nth))
	return zktest.Delay(time.Duration(h % uint64(w.plan.Latency)))
}

// anyOp stands for any request but a handshake.
const anyOp = ""

// interesting are the operations that a lock consists of.
var interesting = []string{
	"create", "create", "delete", "multi", "getData", "getChildren2",
	"exists", "sync", "ping", "setWatches", "createContainer", anyOp,
}

// lay arms a fault for frames of one kind of a process.
func (w *World) lay(rng *rand.Rand, trouble Trouble, p *worker) {
	f := fault.Fault{
		Times: 1 + rng.IntN(3),
		Op:    interesting[rng.IntN(len(interesting))],
		At:    zktest.Direction(1 + rng.IntN(2)),
	}
	if rng.IntN(8) == 0 {
		f.Op, f.At = "event", zktest.Reply
	}
	d := around(rng, []time.Duration{20 * time.Millisecond, time.Second, 4 * time.Second, 2 * sessionTimeout}[rng.IntN(4)])
	switch trouble {
	case Hole:
		// A stream has no holes: it breaks, sooner or later.
		f.Do = zktest.Drop
		f.Before = func(f *zktest.Frame) { w.later(d, func() { w.server.Cut(f.Session) }) }
	case Cut:
		f.Do = zktest.Cut
		if rng.IntN(4) == 0 {
			f.Op = "connect"
		}
	case Delay:
		f.Do = zktest.Delay(d)
		if rng.IntN(6) == 0 {
			f.Op = "connect"
		}
	case Refusal:
		f.At, f.Do = zktest.Request, zktest.Throttled
		if rng.IntN(3) == 0 {
			f.Do = fault.Refusal(-4) // connection loss between servers: the client cannot know whether it was applied
		}
		if f.Op == "event" {
			f.Op = anyOp
		}
	}
	if f.Op == anyOp {
		f.About = ordinary
	}
	w.diary.note("step: %s of %v waits for %d × %v %v, %v", trouble, p, f.Times, f.Op, f.At, d)
	w.book.disturb(d + sessionTimeout)
	w.arm(string(trouble), p, f)
}

// forge makes a process believe that its session has expired, at times in the middle of a create.
func (w *World) forge(rng *rand.Rand, p *worker) {
	w.diary.note("step: forged expiry of %v", p)
	w.book.disturb(2 * sessionTimeout)
	w.arm("forgery", p, fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 1})
	if rng.IntN(2) == 0 {
		op := []string{"create", "multi", "delete", "getData"}[rng.IntN(4)]
		w.arm("cut before forgery", p, fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Cut, Times: 1})
		return
	}
	w.cut(p)
}

// cut breaks the connections of a process.
func (w *World) cut(p *worker) {
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
