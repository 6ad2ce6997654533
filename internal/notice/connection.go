// Package notice reports events that no return value can carry: changes of the connection and lost locks, on the logger of a store and to
// the listener of its connection.
package notice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Connection follows the connection of this process to a store, and its sessions. It logs a warning when an outage lasts, and reports
// each change, in order and one at a time. All methods but Run return at once, so that they may be called under a mutex or in a callback.
//
// The log and the listener have a goroutine each, so that a listener that blocks delays no line. Changes during a call of the
// listener are combined into one.
type Connection struct {
	config   Config
	log      follower
	listener follower // once there is one

	mu     sync.Mutex // guards the fields below
	now    state
	ever   bool                    // it was connected
	notify func(second.Connection) // that Run has yet to begin with; nil if there is none

	// What Run has logged.
	warnings int       // about the present outage
	due      time.Time // when the next one is, if ever
	returned time.Time // when a return was logged last
}

// A follower receives each change of the state. Only its goroutine uses the fields after the first one.
type follower struct {
	changed mutexbool.Bool
	told    state
	session string // under which it was connected last, as was told, "" before the first
}

// A Config describes a store and its logger.
type Config struct {
	Logger   *slog.Logger
	Package  string               // that logs
	Store    string               // its name
	Patience func() time.Duration // after how long an outage is worth a warning
	Why      func() error         // there is no connection; nil if there is
}

// A state is what is known about the connection at one time.
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

// NewConnection returns a Connection to a store that was not reached yet.
func NewConnection(c Config) *Connection {
	begun := state{since: time.Now()}
	return &Connection{config: c, now: begun, log: follower{told: begun}}
}

// Reach records whether the store answers.
func (c *Connection) Reach(reached bool) {
	c.change(func(s *state) { s.reached = reached })
}

// Begin records that a session has begun, which also ends the one before.
func (c *Connection) Begin(session string) {
	c.change(func(s *state) { s.session = session })
}

// End records that a session has ended.
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
	c.ever = c.ever || c.now.is() == second.Connected
	c.log.changed.Set()
	c.listener.changed.Set()
}

// Notify registers a listener: a goroutine that Run starts calls f with the present state, and again for each change. Notify is called at
// most once. Once the ctx of Run is done, no call of f begins; a running call is not waited for.
func (c *Connection) Notify(f func(second.Connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = f
	c.log.changed.Set()
}

// Run logs changes until ctx is done, and calls the listener, if there is one.
func (c *Connection) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.log.changed.Clear() // before the look: what comes later ends the wait
		now, notify := c.look()
		if notify != nil {
			go c.tell(ctx, notify)
		}
		c.report(now)
		var alarm <-chan time.Time
		if !c.due.IsZero() {
			alarm = time.After(time.Until(c.due))
		}
		select {
		case <-c.log.changed.C():
		case <-alarm:
			if !c.log.changed.IsSet() {
				c.warn()
			}
		case <-ctx.Done():
		}
	}
}

// look returns the present state, and the listener if it was registered since the last call.
func (c *Connection) look() (now state, notify func(second.Connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	notify, c.notify = c.notify, nil
	return c.now, notify
}

// tell calls the listener for each change until ctx is done.
func (c *Connection) tell(ctx context.Context, notify func(second.Connection)) {
	c.mu.Lock()
	l, now := &c.listener, c.now
	is := now.is()
	if l.told = now; c.ever {
		l.session = now.session
	} else {
		is = second.Suspended // nothing was held that could be lost
	}
	c.mu.Unlock()
	news := []second.Connection{{State: is, Err: c.config.Why()}}
	for {
		for _, n := range news {
			if ctx.Err() != nil {
				return
			}
			notify(n)
		}
		select {
		case <-l.changed.C():
		case <-ctx.Done():
			return
		}
		l.changed.Clear()
		now, _ := c.look()
		news = l.news(now, c.config.Why)
	}
}

// news returns the changes since the last call.
func (f *follower) news(now state, why func() error) (news []second.Connection) {
	before, same := f.told, now.session == f.session
	was, is := before.is(), now.is()
	f.told = now
	if before.session != "" && before.session == f.session && now.session != before.session { // else that one was never connected
		news = append(news, second.Connection{State: second.Expired})
	}
	switch {
	case is == second.Connected && (was != second.Connected || !same):
		var away time.Duration // none if there is another session at once
		if was != second.Connected {
			away = now.since.Sub(before.since)
		}
		f.session = now.session
		news = append(news, second.Connection{State: second.Connected, Away: away})
	case is == second.Suspended && was == second.Connected && same:
		news = append(news, second.Connection{State: second.Suspended, Err: why()})
	}
	return news
}

// report logs the changes since the last call.
func (c *Connection) report(now state) {
	before, last := c.log.told.session, c.log.session
	for _, n := range c.log.news(now, c.config.Why) {
		switch n.State {
		case second.Expired:
			c.config.Logger.Warn(c.config.Package+": session expired", "session", before)
		case second.Connected:
			c.logReturn(last, now.session, n.Away)
			c.warnings, c.due = 0, time.Time{}
		}
	}
	switch {
	case now.is() == second.Connected || c.warnings > 0:
	case c.log.session == "":
		c.due = now.since.Add(firstWarning)
	default:
		c.due = now.since.Add(c.config.Patience())
	}
}

const (
	firstWarning = 3 * time.Second // about a connection that cannot be made at all
	rarest       = 5 * time.Minute // such warnings
)

// warn logs a warning about an outage, once. If there was no connection yet, the caller may be waiting for it without a time limit. The
// warning is then repeated, at growing intervals.
func (c *Connection) warn() {
	text := c.config.Package + ": lost the connection to " + c.config.Store + "; locks are lost when their lease ends"
	c.warnings++
	c.due = time.Time{}
	if c.log.session == "" {
		text = c.config.Package + ": still no connection to " + c.config.Store + "; no lock can be acquired"
		c.due = time.Now().Add(min(firstWarning<<min(c.warnings, 10), rarest))
	}
	c.config.Logger.Warn(text, "since", c.log.told.since, "for", time.Since(c.log.told.since), "err", c.config.Why())
}

// logReturn logs that the store answers again. For a connection that flaps it does not log each return.
func (c *Connection) logReturn(last, session string, away time.Duration) {
	level, text, warned := slog.LevelInfo, "connected", c.warnings > 0
	switch {
	case last == "" && !warned:
		level = slog.LevelDebug
	case last == "":
	case session != last:
		text = "new session"
	case time.Since(c.returned) < c.config.Patience(): // an outage that was warned of has lasted for longer
		return
	default:
		text = "connected again"
	}
	c.returned = time.Now()
	c.config.Logger.Log(context.Background(), level, c.config.Package+": "+text, "session", session, "away", away)
}
