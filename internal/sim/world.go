// Package sim runs whole processes, each with a real client and a tier.Registry, against a ZooKeeper in memory, in
// virtual time, through random work and random faults, and checks after each change that the lock keeps its promises.
// It is for tests.
//
// What happens when follows from the seed alone. What does not is the order of goroutines that run at the same
// instant: that is the Go scheduler's, so a failure may take several runs of its seed to come back.
package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zktest"
)

// A World is a run: an ensemble, processes, and what is known about them.
type World struct {
	plan   Plan
	diary  *diary
	book   *book
	server *zktest.Server
	faults fault.Set

	ctx    context.Context // ends when the run gives up
	cancel context.CancelFunc
	tasks  sync.WaitGroup // jobs, and what the operator does

	operator     *zk.Conn
	operatorGone <-chan zk.Event
	restarts     int // used by the driver only

	mu       sync.Mutex // guards the fields below; never held across a call of a process or the server
	workers  []*worker
	jobs     []*job
	pending  map[int]func() // what is to be done later
	deferred int            // ever put there
}

// Run runs a plan to its end. It must be called in a synctest bubble, which then sees to it that no goroutine is left.
func Run(p Plan) Report {
	w := newWorld(p)
	w.begin()
	for i := range p.Steps {
		w.step(i)
		if w.diary.violated() {
			break
		}
	}
	w.heal()
	if w.drain() && !w.diary.violated() {
		w.checkQuiet()
	}
	w.close()
	report := w.diary.report(p)
	report.Turns = w.book.granted
	return report
}

func newWorld(p Plan) *World {
	w := &World{plan: p, diary: newDiary(), pending: make(map[int]func())}
	w.book = newBook(p, w.diary)
	w.ctx, w.cancel = context.WithCancel(context.Background()) // ends with the run
	w.server = zktest.NewServer(zktest.Config{ContainerCheck: 3 * time.Second, Tick: p.Tick})
	w.server.OnChange(w.book.changed)
	w.server.Intercept(w.intercept)
	return w
}

func (w *World) begin() {
	w.connectOperator()
	rng := rand.New(rand.NewPCG(w.plan.Seed, 1))
	for i := range w.plan.Processes {
		handOff, linger := drawShares(rng)
		p, err := w.dial(w.ctx, "p"+string(rune('0'+i)), handOff, linger)
		if err != nil {
			panic(err) // nothing is wrong yet
		}
		w.workers = append(w.workers, p)
	}
}

func drawShares(rng *rand.Rand) (handOff, linger time.Duration) {
	budgets := []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	lingers := []time.Duration{0, 0, 50 * time.Millisecond, time.Second}
	return budgets[rng.IntN(len(budgets))], lingers[rng.IntN(len(lingers))]
}

// step does one thing after a while. Its draws do not depend on those of other steps, so a shorter plan is the
// beginning of a longer one.
func (w *World) step(i int) {
	rng := rand.New(rand.NewPCG(w.plan.Seed, uint64(2+i)))
	time.Sleep(drawPause(rng))
	// All that happens at this instant is done: jobs that start now come after those before.
	synctest.Wait()
	w.book.audit()
	w.wear(i)
	n := rng.IntN(100)
	kind := allTroubles[rng.IntN(len(allTroubles))]
	switch {
	case n < 8:
		w.cancelOne(rng)
	case n < 30 && w.plan.has(kind):
		w.trouble(rng, kind)
	case n >= 97:
		w.stream(rng)
	default:
		w.book.tickets++
		burst := 1
		if rng.IntN(6) == 0 {
			burst += rng.IntN(6)
		}
		p := w.worker(rng.IntN(w.plan.Processes))
		for range burst {
			j := w.drawJob(rng, p)
			j.ticket = w.book.tickets
			w.start(j)
		}
	}
	synctest.Wait()
}

func drawPause(rng *rand.Rand) time.Duration {
	switch n := rng.IntN(100); {
	case n < 60:
		return around(rng, 10*time.Millisecond)
	case n < 92:
		return around(rng, 100*time.Millisecond)
	}
	return around(rng, 3*time.Second)
}

// cancelOne ends the wait of a job, or has no effect if it does not wait any more.
func (w *World) cancelOne(rng *rand.Rand) {
	if running := w.unfinished(); len(running) > 0 {
		j := running[rng.IntN(len(running))]
		w.diary.note("step: %v is cancelled", j)
		j.cancel()
	}
}

func (w *World) unfinished() []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*job
	for _, j := range w.jobs {
		if !j.done {
			list = append(list, j)
		}
	}
	return list
}

func (w *World) worker(i int) *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workers[i]
}

// later does something after d or when the run heals, whichever comes first.
func (w *World) later(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deferred++
	id := w.deferred
	w.pending[id] = f
	time.AfterFunc(d, func() { w.finish(id) })
}

func (w *World) finish(id int) {
	w.mu.Lock()
	f := w.pending[id]
	delete(w.pending, id)
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

// heal ends all faults.
func (w *World) heal() {
	w.faults.Clear()
	w.mu.Lock()
	ids := w.deferred
	w.mu.Unlock()
	w.diary.note("all faults end")
	for id := range ids {
		w.finish(id + 1)
	}
	w.server.Intercept(func(f *zktest.Frame) zktest.Action {
		w.book.requested(f)
		return w.latency(f)
	})
}

// drain waits until every job and operation is done, which is progress: without faults nobody waits for ever. It
// reports whether that came to pass.
func (w *World) drain() bool {
	done := make(chan struct{})
	go func() {
		w.tasks.Wait()
		close(done)
	}()
	var sections time.Duration
	for _, j := range w.unfinished() {
		sections += j.section + 2*time.Second // for a hand-over that comes upon what the faults left
	}
	select {
	case <-done:
		return true
	case <-time.After(sections + 20*sessionTimeout):
	}
	for _, j := range w.unfinished() {
		w.diary.violate("progress", "stuck: %s", j.describe())
	}
	w.cancel()
	select {
	case <-done:
	case <-time.After(20 * sessionTimeout):
		w.diary.violate("I9", "jobs go on though their contexts ended")
	}
	return false
}

// checkQuiet is P3 with I5 and I10: once nobody wants a lock, nothing is left of it.
func (w *World) checkQuiet() {
	// Nodes of former sessions go with them; a lingering node and those of the reaper have to go by themselves.
	time.Sleep(4 * sessionTimeout)
	synctest.Wait()
	w.checkAllPermits()
	synctest.Wait()
	for _, path := range append(w.plan.paths(), permitQueue, permitHome) {
		for _, name := range w.server.Children(path) {
			w.diary.violate("I5", "%s/%s is left", path, name)
		}
	}
	for _, p := range w.workers {
		if p.closing() {
			continue
		}
		if n := p.reaping(); n > 0 {
			w.diary.violate("I5", "%v: %d nodes are still to be reaped", p, n)
		}
	}
	// A watch on the children of a lock path, or of the two of a semaphore, stays until the next change there.
	if n := w.server.Watches(); n > len(w.workers)*(w.plan.Paths+2) {
		w.diary.violate("I10", "%d watches are left", n)
	}
}

// close ends the processes and the server.
func (w *World) close() {
	w.cancel()
	for _, p := range w.workers {
		p.close()
	}
	w.tasks.Wait()
	w.operator.Close()
	for range w.operatorGone { // closed as the last act of the library
	}
	synctest.Wait()
	if left := w.server.Sessions(); len(left) > 0 && !w.diary.violated() {
		w.diary.violate("P3", "sessions are left after everybody closed: %v", left)
	}
	w.server.Close()
}
