package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/tier"
)

// blameLocked records the first violation that a judge finds.
func (w *world) blameLocked(judge, format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf("%s: %s", judge, fmt.Sprintf(format, args...))
	}
}

// room returns how many holds of weight 1 the locks of a client have room for, and the weight of its hold.
func (c *caller) room() (room oracle.Room, weight int64) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(c.wish.Get(name), 10, 64)
		return n
	}
	switch of := number("of"); {
	case of > 0:
		return oracle.Room(of), number("permits")
	case c.wish.Has("mode"):
		return oracle.Everybody, oracle.Weight(c.wish.Get("mode") == "read")
	}
	return oracle.Mutex, 1
}

// excludes reports whether two clients must not hold at the same time.
func (c *caller) excludes(d *caller) bool {
	room, weight := c.room()
	_, other := d.room()
	return !room.Fits(weight+other) && slices.ContainsFunc(c.wish["path"], d.wants)
}

func (c *caller) wants(path string) bool { return slices.Contains(c.wish["path"], path) }

// grantedLocked records that an agent has granted a wish, and checks the tokens. Clients of one host may have the same token, unless the
// hold of one of them did not end cleanly. Permits have no order.
func (w *world) grantedLocked(c *caller, e event) {
	tokens := e.Tokens
	if tokens == nil {
		tokens = map[string]string{c.wish.Get("path"): e.Token}
	}
	x := &span{caller: c, marks: make(map[string]oracle.Mark), begin: -1, end: -1}
	alone := func(c *caller) bool {
		room, weight := c.room()
		return room.Alone(weight)
	}
	for path, text := range tokens {
		token, _ := strconv.ParseInt(text, 10, 64)
		x.marks[path] = oracle.Mark{Token: token, Process: int64(slices.Index(w.hosts, c.site))}
		if c.wish.Has("of") {
			continue
		}
		var before oracle.Tokens
		for _, y := range w.spans {
			if !y.wants(path) {
				continue
			}
			before = before.With(y.marks[path], alone(y.caller))
			if c.excludes(y.caller) && !y.clean && y.marks[path].Token == token {
				w.blameLocked("tokens", "%s gets the token %d of %s, whose hold did not end cleanly", c.name, token, y.name)
			}
		}
		if err := before.Judge(x.marks[path], alone(c)); err != nil {
			w.blameLocked("tokens", "%s: %v", c.name, err)
		}
	}
	w.spans, c.span = append(w.spans, x), x
}

// apart reports whether one of two spans ends before the other begins, in every order of the independent steps.
func (w *world) apart(x, y *span) bool {
	ends := func(x, y *span) bool { return x.end >= 0 && x.end < y.begin && w.before(x.end, y.begin) }
	return x.caller == y.caller || x.begin < 0 || y.begin < 0 || ends(x, y) || ends(y, x)
}

// judgeLocked checks after each step that no clients count on locks at the same time that exclude each other.
func (w *world) judgeLocked() {
	for _, c := range w.clients {
		stops := time.Duration(0)
		if w.scope.seed == "a client stops too late" {
			stops = lease
		}
		if c.countsLocked() && !time.Now().Before(c.untilLocked().Add(stops)) {
			c.span.end = w.step
		}
		if h := c.site.hold(c.id); h != nil && c.unread && time.Since(c.full) > lease+c.site.agent.margin() {
			w.blameLocked("left", "%s has not read its stream for %v, and the agent keeps its hold", c.name, time.Since(c.full))
		}
	}
	w.judgeMarginLocked()
	for _, x := range w.spans {
		if x.begin < 0 || x.begin < w.step { // it was checked before
			continue
		}
		room, _ := x.room()
		for _, path := range x.wish["path"] {
			others := slices.DeleteFunc(slices.Clone(w.spans), func(y *span) bool { return y == x || !y.wants(path) })
			weight := func(y *span) int64 { _, weight := y.room(); return weight }
			if crowd := oracle.Crowd(room, x, others, weight, w.apart); crowd != nil {
				w.blameLocked("exclusion", "%s can count on %s while %s does", x.name, path, crowd[len(crowd)-1].name)
			}
		}
	}
}

// judgeMarginLocked checks that no client counts on its hold longer than until one margin before the agent's own lease ends. The agent may
// be stopped from now on, and could not end the hold of the client.
func (w *world) judgeMarginLocked() {
	for _, c := range w.clients {
		if !c.countsLocked() {
			continue
		}
		h := c.site.hold(c.id)
		if h == nil || h.held().Err() != nil {
			continue
		}
		for _, end := range h.ends() {
			if margin := end.Sub(c.untilLocked()); margin < c.site.agent.margin() {
				w.blameLocked("margin", "%s counts on its hold until %v before the lease of the agent ends", c.name, margin)
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
		if c.state == waiting && !c.stopped && (w.quiet >= w.patience() || w.quiet > 0 && held == 0 && c.span == nil && !w.disturbs) {
			w.blameLocked("waits", "%s waits, %d s after the last change, and %d holds are left", c.name, w.quiet, held)
		}
		if h := c.site.hold(c.id); h != nil && c.countsLocked() && !c.unread && errors.Is(h.held().Err(), tier.ErrLost) {
			w.blameLocked("told", "the agent has lost the hold of %s, and does not tell", c.name)
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
		said, _ := h.agent.status(nil)
		if n := said.(status).Connections; n > 0 {
			w.blameLocked("left", "%s has %d connections at the end", h.name, n)
		}
	}
	for _, path := range w.pathsLocked() {
		if queue := w.store.Queue(path); len(queue) > 0 {
			w.blameLocked("left", "%d contenders are in the queue of %s at the end", len(queue), path)
		}
	}
}
