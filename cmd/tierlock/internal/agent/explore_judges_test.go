package agent

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// blameLocked records the first violation that a judge finds.
func (w *world) blameLocked(judge, format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf("%s: %s", judge, fmt.Sprintf(format, args...))
	}
}

// excludes reports whether two clients must not hold at the same time.
func (c *caller) excludes(d *caller) bool {
	if !slices.ContainsFunc(c.wish["path"], func(path string) bool { return slices.Contains(d.wish["path"], path) }) {
		return false
	}
	number := func(c *caller, name string) int {
		n, _ := strconv.Atoi(c.wish.Get(name))
		return n
	}
	if of := number(c, "of"); of > 0 {
		return number(c, "permits")+number(d, "permits") > of
	}
	return c.wish.Get("mode") != "read" || d.wish.Get("mode") != "read"
}

// grantedLocked records that an agent has granted a wish. A later owner has the token of an earlier one only after a clean release.
func (w *world) grantedLocked(c *caller, e event) {
	tokens := e.Tokens
	if tokens == nil {
		tokens = map[string]string{c.wish.Get("path"): e.Token}
	}
	x := &span{caller: c, tokens: make(map[string]int64), begin: -1, end: -1}
	for path, text := range tokens {
		x.tokens[path], _ = strconv.ParseInt(text, 10, 64)
	}
	for _, y := range w.spans {
		if !c.excludes(y.caller) || c.wish.Has("of") { // permits have no order
			continue
		}
		for path, token := range y.tokens {
			if later, same := x.tokens[path]; same && (later < token || later == token && !y.clean) {
				w.blameLocked("tokens", "%s gets token %d of %s after %s had %d, released cleanly %t", c.name, later, path, y.name, token, y.clean)
			}
		}
	}
	w.spans, c.span = append(w.spans, x), x
}

// judgeLocked checks what must hold after each step: no two clients count on locks that exclude each other. In each order of the
// independent steps, the time of one of them has to end before the time of the other one begins.
func (w *world) judgeLocked() {
	for _, c := range w.clients {
		if c.countsLocked() && !time.Now().Before(c.untilLocked()) {
			c.span.end = w.step
		}
	}
	for _, x := range w.spans {
		for _, y := range w.spans {
			if x.begin < 0 || x.begin < w.step || y.begin < 0 || x.caller == y.caller || !x.excludes(y.caller) {
				continue
			}
			if y.end < 0 || y.end >= x.begin || !w.before(y.end, x.begin) {
				w.blameLocked("exclusion", "%s begins in step %d, and %s counts on its hold from step %d to %d", x.name, x.begin, y.name, y.begin, y.end)
			}
		}
	}
}

// judgeEndLocked checks the end of a wait or a hold that the client has not ended itself.
func (w *world) judgeEndLocked(c *caller, how string) {
	if !w.disturbs && !c.unread && (c.state == waiting && c.span == nil || c.countsLocked()) {
		w.blameLocked("fails", "%s, in state %d, reads: %s", c.name, c.state, how)
	}
}

// judgeQuietLocked checks the agents while no message is under way, and no client wants to do anything.
func (w *world) judgeQuietLocked() {
	held := 0
	for _, h := range w.hosts {
		held += len(h.ids())
	}
	for _, c := range w.clients {
		if c.state == waiting && !c.stopped && (w.quiet >= w.patience() || w.quiet > 0 && held == 0 && !w.disturbs) {
			w.blameLocked("waits", "%s waits, %d s after the last change, and %d holds are left", c.name, w.quiet, held)
		}
		listens := c.span != nil && c.state == holding && !c.unread && c.wish.Get("listen") == "contended"
		if !listens || c.notified || c.span.end >= 0 || w.disturbs {
			continue
		}
		if i := slices.IndexFunc(w.clients, func(d *caller) bool { return d.state == waiting && d.span == nil && c.excludes(d) }); i >= 0 {
			w.blameLocked("contended", "%s does not learn that %s waits", c.name, w.clients[i].name)
		}
	}
	for _, h := range w.hosts {
		seats := 0
		for _, c := range w.clients {
			if c.site == h && c.state != over && c.state != idle {
				seats += len(c.wish["path"])
			}
		}
		if have := h.seats(); have > seats && !w.disturbs {
			w.blameLocked("left", "%s has %d clients at its locks, and %d are there", h.name, have, seats)
		}
		for _, path := range w.pathsLocked() {
			for _, c := range w.store.Queue(path) {
				if c.Label == h.name && h.seats() == 0 && !w.disturbs {
					w.blameLocked("left", "%s is in the queue of %s, and has no client", h.name, path)
				}
			}
		}
	}
}

// judgeRestLocked checks that nothing is left when all clients have gone.
func (w *world) judgeRestLocked() {
	for _, h := range w.hosts {
		if holds, seats := len(h.ids()), h.seats(); holds+seats > 0 {
			w.blameLocked("left", "%s has %d holds and %d clients at the end", h.name, holds, seats)
		}
		if n := h.agent.connections.Load(); n > 0 {
			w.blameLocked("left", "%s has %d connections at the end", h.name, n)
		}
	}
	for _, path := range w.pathsLocked() {
		if queue := w.store.Queue(path); len(queue) > 0 {
			w.blameLocked("left", "%d contenders are in the queue of %s at the end", len(queue), path)
		}
	}
}
