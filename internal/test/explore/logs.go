package explore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A log checks each line that is written to it.
type log struct {
	slog.Handler
	world *queues
}

func (log) Enabled(context.Context, slog.Level) bool { return true }

func (l log) Handle(_ context.Context, r slog.Record) error {
	about := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool {
		about[a.Key] = a.Value
		return true
	})
	text, _, _ := strings.Cut(strings.TrimPrefix(r.Message, "memory: "), ";")
	switch text {
	case "connected", "new session", "connected again":
		l.world.noteSession(text, about["session"].String())
	case "lost the connection to memory", "still no connection to memory":
		l.world.noteAway(about["err"].Any())
	case "cannot downgrade a write lock":
		l.world.noteAlone()
	case "tier: a goroutine is blocked by a hold of its own process":
		if !l.world.scope.seed.quiet {
			l.world.noteLong(long, 1)
		}
		l.world.noteTrace(about["acquired"].String())
	case "lock notifications are unavailable":
		l.world.noteAway(about["err"].Any())
	case "lock lost":
		cause, _ := about["cause"].Any().(error)
		if !l.world.scope.seed.quiet {
			l.world.noteLogged(about["path"].String(), about["token"].Int64(), cause)
		}
	}
	return nil
}

// noteSession checks a log line about a session: that it is the first one, a new one, or the same one again.
func (w *queues) noteSession(text, session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	number, _, _ := strings.Cut(session, "/")
	p := w.named("p" + number)
	want := "new session"
	switch p.logged {
	case "":
		want = "connected"
	case session:
		want = "connected again"
	}
	if p.logged = session; text != want {
		w.blameLocked("words", "%q is logged of session %s, want %q", text, session, want)
	}
	if text == "connected again" && time.Since(p.returned) < lease/3 {
		w.blameLocked("words", "%q is logged of session %s again after %v", text, session, time.Since(p.returned))
	}
	p.returned = time.Now()
}

// A wait behind a hold of the same process is logged as a long wait after the time long. After the time endless it counts as a deadlock.
const (
	long    = 10 * time.Second
	endless = 24 * time.Hour
)

// The variable patient contains the world that lets time pass until a wait counts as a deadlock.
var patient atomic.Pointer[queues]

func init() {
	otherwise := second.Deadlock
	second.Deadlock = func(what string) {
		if w := patient.Load(); w != nil && strings.Contains(what, "blocked by a hold of its own process") {
			w.noteLong(endless, 2)
		} else {
			otherwise(what)
		}
	}
}

// waitedLocked returns how long a caller has waited behind a hold of its own process.
func (w *queues) waitedLocked() (d time.Duration) {
	for _, p := range w.processes {
		for _, c := range p.callers {
			for _, x := range p.callers {
				if c.state == holding && x.state == waiting && x.call != Try && w.scope.oneMutex() {
					d = max(d, min(time.Since(c.got), time.Since(x.since)))
				}
			}
		}
	}
	return d
}

// noteLong checks a log line about a long wait or a deadlock. There must be exactly one of each kind in a process.
func (w *queues) noteLong(least time.Duration, what int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longs[what-1]++
	if waited := w.waitedLocked(); w.scope.oneMutex() && (waited < least || w.longs[what-1] > w.scope.Processes && !w.scope.Long) {
		w.blameLocked("told", "a wait of %v is logged as one of at least %v, %d times", waited, least, w.longs[what-1])
	}
}

// judgeLongLocked checks that a long wait was logged.
func (w *queues) judgeLongLocked() {
	waited := w.waitedLocked()
	if _, frames := w.store.(*ensemble); frames { // the log of an ensemble is not checked
		return
	}
	if waited >= long && w.longs[0] == 0 || waited >= endless+long && w.longs[1] == 0 {
		w.blameLocked("told", "a wait of %v is not logged", waited)
	}
}

// noteTrace checks the stack trace in a log line about a hold. In a scope with Traced, it must have the largest permitted number of lines.
func (w *queues) noteTrace(places string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lines := strings.Count(places, ".go:"); w.scope.Traced && lines != frames {
		w.blameLocked("words", "a hold is said to have been acquired in %d lines: %s", lines, places)
	}
}

// noteAway checks that a log line about a missing connection gives a reason. The line needs none while the process waits for its first
// session, or for a new session after one has ended.
func (w *queues) noteAway(why any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if why == nil && !w.expired && !w.scope.Early && !(w.scope.Long && w.losses) { // with Long, several processes may have lost their sessions
		w.blameLocked("words", "a line about a missing connection gives no reason")
	}
}

// noteAlone checks the log line that the store lets no readers in. The store must really have refused to do so.
func (w *queues) noteAlone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.denied {
		w.blameLocked("words", "it is logged that the store lets no readers in")
	}
}

// noteLogged records that the loss of a lock was logged.
func (w *queues) noteLogged(at string, token int64, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(queueAt, at) || !errors.Is(cause, tier.ErrLost) {
		w.blameLocked("words", "a loss is logged of %q, because of %v", at, cause)
	}
	if slices.Contains(w.logged, token) {
		w.blameLocked("told", "the loss of %d is logged again", token)
	}
	if !w.losses && w.scope.seed.remove == 0 {
		w.blameLocked("told", "the loss of %d is logged, although no fault takes locks away: %v", token, cause)
	}
	w.logged = append(w.logged, token)
}

// judgeLogLocked checks that each loss of a lock was logged, except the losses of a closed process, and that no other loss was.
func (w *queues) judgeLogLocked() {
	anonymous := func(c Call) bool { return c == Both || c.permits() > 0 } // the spans of these calls have no token
	if _, memory := w.store.(*scripted); !memory || w.scope.any(anonymous) {
		return
	}
	gaveUp := slices.ContainsFunc(w.processes, func(p *process) bool { return p.gaveUp })
	for _, token := range w.logged {
		if !gaveUp && !slices.ContainsFunc(w.spans, func(x *span) bool { return x.token == token }) {
			w.blameLocked("told", "the loss of %d is logged, which no caller had", token)
		}
	}
	for _, x := range w.spans {
		if x.token != 0 && !x.closing && errors.Is(x.hold.Err(), tier.ErrLost) && !slices.Contains(w.logged, x.token) {
			w.blameLocked("told", "the loss of %d is not logged", x.token)
		}
	}
}
