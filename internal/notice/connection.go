// Package notice tells people what no return value can carry: on the logger of a store, and to
// whoever asked for it, what becomes of its connection, and that a lock was lost.
package notice

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Connection follows the connection of this process to a store, and its sessions. It warns of
// an outage that lasts, and tells each change, in order and one at a time. All methods but Run
// return at once, so that they may be called under a mutex or in a callback.
//
// What changes while somebody is being told is told as one change: that bounds the log of a
// connection that keeps breaking, and a slow listener holds nobody up.
type Connection struct {
	config  Config
	begun   time.Time
	changed mutexbool.Bool

	quarantine atomic.Pointer[second.QuarantineError] // the last one; nil before the first

	mu     sync.Mutex // guards the fields below
	now    state
	notify func(second.Connection) // nil if nobody asked
	fresh  bool                    // and has been told nothing so far
	warned time.Time               // the end of the quarantine that the log was last warned of
	news   bool                    // it is yet to be
}

// A Config is what there is to know of a store.
type Config struct {
	Logger   *slog.Logger
	Package  string               // that logs
	Store    string               // its name
	Patience func() time.Duration // after how long an outage is worth a warning
	Why      func() error         // there is no connection; nil if there is
}

// A state is what is known at one time.
type state struct {
	reached bool   // the store answers
	session string // "" while there is none
	since   time.Time
}

func (s state) is() second.ConnectionState {
	switch {
	case s.session == "":
		return second.Expired
	case !s.reached:
		return second.Suspended
	}
	return second.Connected
}

// NewConnection returns one that is yet to be made.
func NewConnection(c Config) *Connection {
	now := time.Now()
	return &Connection{config: c, begun: now, now: state{since: now}}
}

// Reach says whether the store answers.
func (c *Connection) Reach(reached bool) {
	c.change(func(s *state) { s.reached = reached })
}

// Begin says that a session has begun, and with it that the one before is over.
func (c *Connection) Begin(session string) {
	c.change(func(s *state) { s.session = session })
}

// End says that a session is over.
func (c *Connection) End(session string) {
	c.change(func(s *state) {
		if s.session == session {
			s.session = ""
		}
	})
}

func (c *Connection) change(f func(*state)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.now
	f(&c.now)
	if c.now == before {
		return
	}
	if up := second.Connected; (before.is() == up) != (c.now.is() == up) {
		c.now.since = time.Now()
	}
	c.changed.Set()
}

// Notify has f called, from the goroutine of Run, with how things stand, and for each change from
// then on.
func (c *Connection) Notify(f func(second.Connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify, c.fresh = f, true
	c.changed.Set()
}

func (c *Connection) look() (now state, notify func(second.Connection), fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh, c.fresh = c.fresh, false
	return c.now, c.notify, fresh
}

// Run tells what becomes known until ctx is done.
func (c *Connection) Run(ctx context.Context) {
	r := &report{Connection: c, told: state{since: c.begun}}
	alarm := time.NewTimer(r.next())
	defer alarm.Stop()
	for ctx.Err() == nil {
		c.changed.Clear() // before the look: what comes later ends the wait
		c.warnOfQuarantine()
		if r.tell(); r.told.is() == second.Connected {
			alarm.Stop()
		} else if r.warnings == 0 {
			alarm.Reset(max(0, time.Until(r.told.since.Add(r.next()))))
		}
		select {
		case <-c.changed.C():
		case <-alarm.C:
			if !c.changed.IsSet() {
				r.warn()
			}
			if d := r.next(); d > 0 {
				alarm.Reset(d)
			}
		case <-ctx.Done():
			return
		}
	}
}
