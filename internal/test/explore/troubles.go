package explore

import (
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/zklock/zktest"
)

// A trouble is a fault that lasts until a step ends it.
type trouble struct {
	name string
	end  func()
}

// The method troubles returns the lasting faults that can begin in a ZooKeeper. Such a fault affects the ensemble, the server of a process,
// or the network between the two.
func (e *ensemble) troubles() (steps []Step) {
	w, s := e.world, e.world.scope
	lasts := func(on bool, whose []*process, name string, begin, end func()) {
		if !on || slices.ContainsFunc(e.lasting, func(x trouble) bool { return x.name == name }) {
			return
		}
		steps = append(steps, Step{Name: name, Fault: true, Touches: []string{Everything}, Take: func() {
			e.trouble(whose...)
			e.lasting = append(e.lasting, trouble{name, end})
			begin()
		}})
	}
	atOnce := func(on bool, p *process, name string, do func()) {
		if on {
			steps = append(steps, Step{Name: name, Fault: true, Touches: []string{Everything}, Take: func() {
				e.trouble(p)
				do()
			}})
		}
	}
	for _, at := range []string{path, other, third} {
		step := func(on bool, name string, do func()) {
			if on {
				steps = append(steps, Step{Name: name, Fault: true, Touches: []string{Everything}, Take: do})
			}
		}
		step(s.Wear && e.young(at), "the numbers of "+at+" wear", func() {
			w.mu.Lock()
			w.worn = true
			w.mu.Unlock()
			e.SetSequence(at, wornFrom-3)
		})
		step(s.Remove && len(e.Children(at)) > 0, "an operator removes "+at+" with all below", func() {
			e.trouble(w.processes...)
			go func() {
				for _, name := range e.Children(at) {
					e.operator.Delete(at+"/"+name, -1)
				}
				e.operator.Delete(at, -1)
			}()
		})
	}
	lasts(s.Still, w.processes, "the ensemble stands still", e.Freeze, e.Unfreeze)
	for _, p := range w.processes {
		if !p.begun || p.done() {
			continue
		}
		if at, i := w.placeOf(p); s.Remove && i >= 0 && e.znodes(at)[i].Pair != "" {
			second := e.znodes(at)[i].second()
			steps = append(steps, Step{Name: "an operator removes the second znode of " + p.name + " at " + at, Fault: true,
				Touches: []string{Everything}, Take: func() {
					p.disturb()
					w.takesAway()
					go e.operator.Delete(second, -1)
				}})
		}
		m, of := e.Member(p.name+port), []*process{p}
		lasts(s.Still, of, "the server of "+p.name+" stands still", m.Freeze, m.Unfreeze)
		lasts(s.Away, of, "the server of "+p.name+" refuses connections", func() { m.Refuse(); e.Break(p) }, m.Accept)
		lasts(s.Lag, of, "the server of "+p.name+" lags", m.Lag, m.CatchUp)
		lasts(s.Split, of, "the server of "+p.name+" has lost the leader", m.Isolate, m.Rejoin)
		lasts(s.Split, of, "the server of "+p.name+" is deposed", m.Depose, m.Rejoin)
		isolated := func(x trouble) bool { return x.name == "the server of "+p.name+" has lost the leader" }
		for _, n := range []int{1, 3} {
			atOnce(slices.ContainsFunc(e.lasting, isolated), p, fmt.Sprintf("the server of %s hears of the leader for %d requests", p.name, n),
				func() { m.Glimpse(n) })
		}
		for _, dir := range []zktest.Direction{zktest.Request, zktest.Reply} {
			session := e.session(p)
			lasts(s.Mute, of, fmt.Sprintf("nothing of %s gets through, each %v", p.name, dir),
				func() { e.Mute(session, dir) }, func() { e.Unmute(session, dir) })
		}
		atOnce(s.Forge, p, p.name+" is told that its session has expired", func() {
			e.mu.Lock()
			e.forged = p
			e.mu.Unlock()
			e.Break(p)
		})
		for _, m := range w.ordered() {
			if m.process != p || m.way == both {
				continue
			}
			lasts(s.Hole && m.process == p, of, m.name+" is lost, and later the connection", func() { w.settle(m, drop) }, func() { e.Break(p) })
			if m.way == toStore {
				atOnce(s.Refuse, p, m.name+" is refused", func() { w.settle(m, throttle) })
				atOnce(s.Refuse, p, m.name+" is lost between servers", func() { w.settle(m, between) })
			}
		}
	}
	return steps
}

// The method trouble records that a lasting fault affects the given processes.
func (e *ensemble) trouble(whose ...*process) {
	for _, p := range whose {
		p.disturb()
		e.world.mu.Lock()
		p.missed = true
		e.world.mu.Unlock()
	}
	e.world.takesAway()
	e.world.quiet = 0
	e.ledger.disturb()
}

// The method ends returns the steps that end lasting faults. While other steps are possible, they count as faults, because it is unusual
// for them to come so early.
func (e *ensemble) ends(busy bool) (steps []Step) {
	for _, x := range e.lasting {
		steps = append(steps, Step{Name: x.name + ": no longer", Fault: busy, Touches: []string{Everything}, Take: func() {
			e.lasting = slices.DeleteFunc(e.lasting, func(y trouble) bool { return x.name == y.name })
			e.world.quiet = 0
			e.ledger.disturb()
			x.end()
		}})
	}
	return steps
}

// session returns the newest session of a process.
func (e *ensemble) session(p *process) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newest[p]
}

// If the number of a lock node has reached wornFrom, the path of the lock has to be deleted and created again.
const wornFrom = 1 << 30

// young reports whether the numbers at a path are far below wornFrom, so that no number is used twice.
func (e *ensemble) young(at string) bool {
	_, stat, ok := e.Get(at)
	return ok && uint32(stat.Cversion+stat.NumChildren)/2 < wornFrom-3
}
