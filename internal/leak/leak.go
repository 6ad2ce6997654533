// Package leak finds what was acquired and forgotten: nothing in the program refers to it any more, and it was not released.
package leak

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"weak"
)

// A Detector knows what was acquired and not released yet: values of type T, each with what is to be said of it, which must not refer
// to it.
type Detector[T, About any] struct {
	traces sync.Map // each a trace, by its weak.Pointer[T]
}

type trace[About any] struct {
	about   About
	callers []uintptr
}

// Acquired has forgotten called once nothing refers to t any more, unless Released was called before: with what is known of it, by
// the goroutine of the runtime that does so for all of the program.
func (d *Detector[T, About]) Acquired(t *T, about About, forgotten func(about About, place string)) {
	callers := make([]uintptr, 16)
	key := weak.Make(t)
	d.traces.Store(key, trace[About]{about, callers[:runtime.Callers(2, callers)]})
	runtime.AddCleanup(t, func(key weak.Pointer[T]) {
		if left, ok := d.traces.LoadAndDelete(key); ok {
			left := left.(trace[About])
			forgotten(left.about, left.place())
		}
	}, key)
}

// Released says that t is not forgotten.
func (d *Detector[T, About]) Released(t *T) { d.traces.Delete(weak.Make(t)) }

// Places returns where those were acquired that are asked for, as far as that is known.
func (d *Detector[T, About]) Places(asked func(About) bool) string {
	var places []string
	d.traces.Range(func(_, left any) bool {
		if left := left.(trace[About]); asked(left.about) {
			places = append(places, left.place())
		}
		return true
	})
	return strings.Join(places, "; ")
}

// place returns the lines of the program that called package tier, the innermost one first.
func (t trace[About]) place() string {
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
