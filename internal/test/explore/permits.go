package explore

import (
	"fmt"
	"slices"
	"time"
)

// longest is how long permits may stay in a process while others wait.
func (s Scope) longest() time.Duration { return 3 * time.Duration(s.permits()) * budget }

// stayedTooLong reports whether permits have stayed longer, as far as their process knows.
func (w *queues) stayedTooLong(x *span) bool {
	since := func(t time.Time) bool { return !t.IsZero() && time.Since(t) >= w.scope.longest() }
	return x.call.permits() > 0 && since(x.contended) && since(x.got)
}

// noteContendedLocked records since when a process that waits for permits has known that another one waits, too.
func (w *queues) noteContendedLocked(p *process) {
	here, there := false, false
	for _, q := range w.store.Queue(permitsOf + path) {
		here = here || q.Permits == 0 && q.Label == p.name
		there = there || q.Permits == 0 && q.Label != p.name
	}
	if !here || !there {
		p.contended = time.Time{}
	} else if p.contended.IsZero() && !w.anyUnderWayLocked(p) {
		p.contended = time.Now()
	}
}

// judgePermitsLocked checks that the store counts the right number of permits for a process, once it has received all releases.
func (w *queues) judgePermitsLocked(p *process) {
	if w.scope.ZooKeeper || p.disturbed || p.closing || p.gaveUp || time.Now().Before(p.owes) || w.draining || w.anyUnderWayLocked(p) ||
		slices.ContainsFunc(p.callers, func(c *caller) bool { return c.state == waiting || c.state == releasing }) {
		return
	}
	_, has := w.hasLocked(p)
	counted := 0
	for _, q := range w.store.Queue(permitsOf + path) {
		if q.Label == p.name {
			counted += q.Permits
		}
	}
	if counted != has {
		w.blameLocked("left", "%s has %d permits, and the store counts %d", p.name, has, counted)
	}
}

func permitsText(n int) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprint(n, " permits")
}
