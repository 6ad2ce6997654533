package sim

import (
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

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
