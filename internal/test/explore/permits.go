package explore

import (
	"fmt"
	"slices"
	"time"
)

// longest returns how long permits may stay in a process while other processes wait.
func (s Scope) longest() time.Duration { return 3 * time.Duration(s.permits()) * budget }

// stayedTooLong reports whether the process knows that its permits have stayed longer than longest.
func (w *queues) stayedTooLong(x *span) bool {
	since := func(t time.Time) bool { return !t.IsZero() && time.Since(t) >= w.scope.longest() }
	return x.call.permits() > 0 && since(x.contended) && since(x.got)
}

// If a process waits for permits, noteContendedLocked records since when it has known that another process waits for permits, too.
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

// judgePermitsLocked checks that the store counts the right number of permits for a process. It checks only when the store has received all
// releases.
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
