// Package notice tells people what no return value can carry: on the logger of a store, and to
// whoever asked for it, what becomes of its connection, and that a lock was lost.
package notice

import (
	"context"
	"log/slog"
	"sync"
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
	changed mutexbool.Bool

	mu     sync.Mutex // guards the fields below
	now    state
	notify func(second.Connection) // does nothing if nobody asked
	fresh  bool                    // it has been told nothing so far

	// What Run has told.
	told     state
	session  string    // under which it was connected last, "" before the first
	warnings int       // about the present outage
	due      time.Time // when the next one is, if ever
	returned time.Time // when a return was logged last
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
	begun := state{since: time.Now()}
	return &Connection{config: c, now: begun, told: begun, notify: func(second.Connection) {}}
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

// Run tells what becomes known until ctx is done.
func (c *Connection) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.changed.Clear() // before the look: what comes later ends the wait
		c.tell()
		var alarm <-chan time.Time
		if !c.due.IsZero() {
			alarm = time.After(time.Until(c.due))
		}
		select {
		case <-c.changed.C():
		case <-alarm:
			if !c.changed.IsSet() {
				c.warn()
			}
		case <-ctx.Done():
		}
	}
}

// tell tells how the present state differs from what was told.
func (c *Connection) tell() {
	c.mu.Lock()
	before, now, notify, fresh := c.told, c.now, c.notify, c.fresh
	c.told, c.fresh = now, false
	c.mu.Unlock()
	var news []second.Connection
	was, is, same := before.is(), now.is(), now.session == c.session
	if before.session != "" && now.session != before.session {
		c.config.Logger.Warn(c.config.Package+": session expired", "session", before.session)
		news = append(news, second.Connection{State: second.Expired})
	}
	switch {
	case is == second.Connected && (was != second.Connected || !same):
		var away time.Duration // none if there is another session at once
		if was != second.Connected {
			away = now.since.Sub(before.since)
		}
		c.logReturn(now.session, away)
		c.session, c.warnings, c.due = now.session, 0, time.Time{}
		news = append(news, second.Connection{State: second.Connected, Away: away})
	case is == second.Suspended && was == second.Connected && same:
		news = append(news, second.Connection{State: second.Suspended, Err: c.config.Why()})
	}
	switch {
	case is == second.Connected || c.warnings > 0:
	case c.session == "":
		c.due = now.since.Add(firstWarning)
	default:
		c.due = now.since.Add(c.config.Patience())
	}
	if fresh {
		if c.session == "" {
			is = second.Suspended // nothing was held that could be lost
		}
		news = []second.Connection{{State: is, Err: c.config.Why()}}
	}
	for _, n := range news {
		notify(n)
	}
}

const (
	firstWarning = 3 * time.Second // about a connection that cannot be made at all
	rarest       = 5 * time.Minute // such warnings
)

// warn warns of an outage, once. Where there never was a connection somebody waits for it, who may wait for ever: that is
// repeated, ever more rarely.
func (c *Connection) warn() {
	text := c.config.Package + ": the connection to " + c.config.Store + " is away"
	c.warnings++
	c.due = time.Time{}
	if c.session == "" {
		text = c.config.Package + ": still no connection to " + c.config.Store
		c.due = time.Now().Add(min(firstWarning<<min(c.warnings, 10), rarest))
	}
	c.config.Logger.Warn(text, "since", c.told.since, "for", time.Since(c.told.since), "err", c.config.Why())
}

// logReturn logs the return of the connection. Of one that comes and goes not each return is logged.
func (c *Connection) logReturn(session string, away time.Duration) {
	level, text, warned := slog.LevelInfo, "connected", c.warnings > 0
	switch {
	case c.session == "" && !warned:
		level = slog.LevelDebug
	case c.session == "":
	case session != c.session:
		text = "new session"
	case time.Since(c.returned) < c.config.Patience(): // an outage that was warned of has lasted for longer
		return
	default:
		text = "connected again"
	}
	c.returned = time.Now()
	c.config.Logger.Log(context.Background(), level, c.config.Package+": "+text, "session", session, "away", away)
}
