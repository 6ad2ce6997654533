package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zktest"
)

// trouble brings one about.
func (w *World) trouble(rng *rand.Rand, kind Trouble) {
	i := rng.IntN(w.plan.Processes)
	p := w.worker(i)
	if holder := w.book.holder(); rng.IntN(2) == 0 && holder != nil {
		p = holder
	} else if rng.IntN(3) == 0 {
		w.occupy(rng, p)
	}
	d := around(rng, []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second, 2 * sessionTimeout}[rng.IntN(4)])
	switch kind {
	case Hole, Cut, Delay, Refusal:
		w.lay(rng, kind, p)
	case Forgery:
		w.forge(rng, p)
	case Mute:
		w.mute(p, zktest.Direction(1+rng.IntN(2)), rng.IntN(3) == 0, d)
	case Freeze:
		w.during(d, "the ensemble is frozen", w.server.Freeze, w.server.Unfreeze)
	case Member:
		w.member(rng.IntN(3), w.server.Member(memberAddr(rng.IntN(w.plan.Members))), d)
	case Lag:
		m := w.server.Member(memberAddr(rng.IntN(w.plan.Members)))
		w.during(d, "a member lags", m.Lag, m.CatchUp)
		if rng.IntN(2) == 0 {
			w.arm("cut while a member lags", p, fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1})
		}
	case Split:
		w.split(rng, p, d)
	case Expiry:
		w.expire(p)
	case Deletion:
		paths := w.plan.paths()
		w.deleteFromOutside(paths[rng.IntN(len(paths))], rng.IntN(4))
	case Restart:
		w.restart(rng, i)
	}
}

// occupy has a process hold a lock for long: a fault tells most when it hits a holder.
func (w *World) occupy(rng *rand.Rand, p *worker) {
	j := w.drawJob(rng, p)
	j.section = around(rng, 2*sessionTimeout)
	w.arrive(j)
	time.Sleep(around(rng, 20*time.Millisecond))
}

// during starts something that ends after d or when the run heals.
func (w *World) during(d time.Duration, what string, begin, end func()) {
	w.diary.note("step: %s for %v", what, d)
	w.book.disturb(d)
	begin()
	w.later(d, func() {
		w.diary.note("no longer: %s", what)
		end()
	})
}

func (w *World) mute(p *worker, dir zktest.Direction, both bool, d time.Duration) {
	for _, s := range w.server.Sessions() {
		if w.book.owner(s.ID) != p {
			continue
		}
		for _, dir := range []zktest.Direction{dir, 3 - dir} {
			w.during(d, fmt.Sprintf("%v is muted in direction %d", p, dir),
				func() { w.server.Mute(s.ID, dir) },
				func() { w.server.Unmute(s.ID, dir) })
			if !both {
				break
			}
		}
	}
}

func (w *World) member(kind int, m *zktest.Member, d time.Duration) {
	switch kind {
	case 0:
		w.during(d, "a member is frozen", m.Freeze, m.Unfreeze)
	case 1:
		w.during(d, "a member refuses", func() { m.Refuse(); m.Cut() }, m.Accept)
	case 2:
		w.during(0, "a member loses its connections", m.Cut, func() {})
	}
}

// split takes the leader away from the servers that a process is connected to.
func (w *World) split(rng *rand.Rand, p *worker, d time.Duration) {
	deposed, flaps := rng.IntN(3) == 0, rng.IntN(2) == 0
	for _, s := range w.server.Sessions() {
		if w.book.owner(s.ID) != p || s.Member == "" {
			continue
		}
		m := w.server.Member(s.Member)
		if deposed {
			w.during(d, "a leader is deposed", m.Depose, m.Rejoin)
			continue
		}
		if flaps {
			d = 2 * sessionTimeout
		}
		w.during(d, "a member is cut off from the leader", m.Isolate, m.Rejoin)
		if flaps {
			w.flap(rng, p, m)
		}
	}
}

// flap lets the link to the leader stand for a moment, long enough for some of the requests that wait. One of them is
// young: it says little of when the leader heard of the session.
func (w *World) flap(rng *rand.Rand, p *worker, m *zktest.Member) {
	time.Sleep(time.Duration(rng.Int64N(int64(sessionTimeout * 2 / 3))))
	j := w.drawJob(rng, p)
	w.arrive(j)
	synctest.Wait()
	w.diary.note("a moment with the leader")
	m.Glimpse(1 + rng.IntN(6))
}

// expire ends the sessions of a process before their time, which no lease can foresee.
func (w *World) expire(p *worker) {
	for _, s := range w.server.Sessions() {
		if w.book.owner(s.ID) == p {
			w.diary.note("step: session %#x of %v ends early", s.ID, p)
			w.book.disturb(0)
			w.book.ends(s.ID)
			w.server.Expire(s.ID)
		}
	}
}

// deleteFromOutside does what an operator may: remove the nth node of a queue, or the whole lock path.
func (w *World) deleteFromOutside(lock string, n int) {
	w.tasks.Go(func() {
		queue := w.book.queue(lock)
		if n < len(queue) {
			w.diary.note("operator deletes %s: %v", short(queue[n]), w.operator.Delete(queue[n], -1))
			return
		}
		for _, path := range append(queue, lock) {
			w.diary.note("operator deletes %s: %v", short(path), w.operator.Delete(path, -1))
		}
	})
}

// restart ends a process and starts another one in its place. Meanwhile the old one refuses work.
func (w *World) restart(rng *rand.Rand, i int) {
	old := w.worker(i)
	if old.closing() {
		return
	}
	handOff, linger := drawShares(rng)
	w.restarts++
	name := fmt.Sprintf("p%d.%d", i, w.restarts)
	w.book.disturb(sessionTimeout)
	w.diary.note("step: %v restarts as %s", old, name)
	old.end()
	w.tasks.Go(func() {
		old.close()
		p, err := w.dial(w.ctx, name, handOff, linger)
		if err != nil {
			w.diary.note("%s did not start: %v", name, err)
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.workers[i] = p
	})
}

// connectOperator makes a connection that no fault but those of the whole ensemble concerns.
func (w *World) connectOperator() {
	conn, events, err := zkconn.Open(w.ctx, append(w.servers(), w.servers()...), 5*sessionTimeout,
		func(network, address string, _ time.Duration) (net.Conn, error) {
			return w.dialerOf(operator)(w.ctx, network, address)
		})
	if err != nil {
		panic(err) // nothing is wrong yet
	}
	w.operator, w.operatorGone = conn, events
	for _, lock := range w.plan.paths() {
		if _, err := conn.Create(register(lock), nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			panic(err) // nothing is wrong yet
		}
	}
}

// operator stands for whoever else works on the ensemble.
var operator = &worker{name: "operator"}

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
	"exists", "sync", "ping", anyOp,
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
