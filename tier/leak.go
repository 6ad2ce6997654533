package tier

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"
)

// The type leaks finds forgotten holds: holds that were not released, and to which the program has no reference any more. It keeps a trace
// of each unreleased hold. The key of the trace is a weak.Pointer[Hold].
type leaks struct{ traces sync.Map }

// A trace describes a hold, but does not refer to it.
type trace struct {
	own     *ownership
	callers []uintptr
}

// traced returns the hold that the caller of Acquire gets. With [WithLeakDetection] it is a copy to which the ownership does not refer. If
// the program drops the copy without a release, the runtime's cleanup goroutine logs a warning.
func (m *Mutex) traced(h *Hold) *Hold {
	if !m.options.traced {
		return h
	}
	if h == &h.own.first {
		h = &Hold{own: h.own, shared: h.shared}
	}
	h.traced = true
	r, key, callers := m.registry, weak.Make(h), make([]uintptr, 16)
	r.leaks.traces.Store(key, trace{h.own, callers[:runtime.Callers(2, callers)]})
	runtime.AddCleanup(h, func(key weak.Pointer[Hold]) {
		if left, ok := r.leaks.traces.LoadAndDelete(key); ok {
			r.forgotten(left.(trace))
		}
	}, key)
	return h
}

func (r *Registry) forgotten(t trace) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.closed { // otherwise the lock is lost, and no warning is needed
		r.second.Logger().Warn("tier: a hold was dropped without Release; the lock stays taken until the registry is closed",
			"path", t.own.cohort.key.path, "token", t.own.grant.Token(), "since", r.at(t.own.since), "acquired", t.place())
	}
}

// The method released records that h was released, and is not forgotten.
func (l *leaks) released(h *Hold) { l.traces.Delete(weak.Make(h)) }

// The method places returns the lines at which the holds of c were acquired, if they are known.
func (l *leaks) places(c *cohort) string {
	var places []string
	l.traces.Range(func(_, left any) bool {
		if left := left.(trace); left.own.cohort == c {
			places = append(places, left.place())
		}
		return true
	})
	return strings.Join(places, "; ")
}

// The method place returns the lines of the program from which this package was called, the innermost line first.
func (t trace) place() string {
	var lines []string
	frames := runtime.CallersFrames(t.callers)
	for more := true; more && len(lines) < 4; {
		var f runtime.Frame
		f, more = frames.Next()
		if !strings.HasPrefix(f.Function, "github.com/tierlock/tierlock/tier.") && !strings.HasPrefix(f.Function, "runtime.") {
			lines = append(lines, fmt.Sprintf("%s:%d", f.File, f.Line))
		}
	}
	return strings.Join(lines, ", from ")
}
