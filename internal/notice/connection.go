// Package notice reports events that no return value can report, such as lost locks and changes of the connection. It writes them to the
// logger of a store, and calls the program's listener for changes of the connection.
package notice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Connection tracks the connection of this process to a store, and the sessions of the process. It logs a warning when an outage lasts.
// It reports each change to the listener, in order and one at a time. All methods except Run return at once, so a caller may hold a mutex,
// or call them in a callback.
//
// The log and the listener have separate goroutines, so a listener that blocks delays no log line. Changes during a call of the listener
// are combined into one.
type Connection struct {
	config   Config
	log      follower
	listener follower // used only once a listener is registered

	mu     sync.Mutex // guards the fields below
	now    state
	ever   bool                    // there was a connection at least once
	notify func(second.Connection) // a listener for which Run has to start a goroutine; nil if there is none

	// Only Run uses these fields.
	warnings int       // how many warnings about the present outage were logged
	due      time.Time // when to log the next warning; zero if none is due
	returned time.Time // when it was last logged that the connection is back
}

// A follower is the log or the listener, which get each change of the state. All fields but changed are used only by its goroutine.
type follower struct {
	changed mutexbool.Bool
	told    state
	session string // the session of the last Connected that was reported; "" before the first
}

// A Config describes a store and its logger.
type Config struct {
	Logger   *slog.Logger
	Package  string               // the name of the package that logs
	Store    string               // the name of the store
	Patience func() time.Duration // returns how long an outage lasts before it is logged
	Why      func() error         // returns why there is no connection, and nil if there is one
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

// NewConnection returns a Connection that has not reached its store yet.
func NewConnection(c Config) *Connection {
	begun := state{since: time.Now()}
	return &Connection{config: c, now: begun, log: follower{told: begun}}
}

// Reach records whether the store answers.
func (c *Connection) Reach(reached bool) {
	c.change(func(s *state) { s.reached = reached })
}

// Begin records that a session has begun. This also ends the session before.
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

// Notify registers a listener. Run then starts a goroutine that calls f with the present state, and again after each change. Notify is
// called at most once. After the end of the ctx of Run, no call of f begins. Run does not wait for a running call.
func (c *Connection) Notify(f func(second.Connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = f
	c.log.changed.Set()
}

// Run logs changes until ctx is done, and calls the listener, if there is one.
func (c *Connection) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.log.changed.Clear() // before the state is read, so that a later change ends the wait below
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
		is = second.Suspended // not Expired: there was no session yet, so no lock can have been lost
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

// news returns the changes of the state since the last call. why returns why there is no connection.
func (f *follower) news(now state, why func() error) (news []second.Connection) {
	before, same := f.told, now.session == f.session
	was, is := before.is(), now.is()
	f.told = now
	// The last report was about a session that has ended since.
	if before.session != "" && before.session == f.session && now.session != before.session {
		news = append(news, second.Connection{State: second.Expired})
	}
	switch {
	case is == second.Connected && (was != second.Connected || !same):
		var away time.Duration // 0 if one session follows another without an outage
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
	firstWarning = 3 * time.Second // when the first warning is logged if the store was never reached
	rarest       = 5 * time.Minute // the longest time between two warnings
)

// warn logs a warning about an outage. Usually that is done once for each outage. But if there was never a connection, the program may be
// waiting for it without a time limit. The warning is then repeated at growing intervals.
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

// logReturn logs that there is a connection again. If the connection comes and goes quickly, it does not log each return.
func (c *Connection) logReturn(last, session string, away time.Duration) {
	level, text, warned := slog.LevelInfo, "connected", c.warnings > 0
	switch {
	case last == "" && !warned:
		level = slog.LevelDebug
	case last == "":
	case session != last:
		text = "new session"
	case time.Since(c.returned) < c.config.Patience(): // the outage was shorter than Patience, so no warning was logged
		return
	default:
		text = "connected again"
	}
	c.returned = time.Now()
	c.config.Logger.Log(context.Background(), level, c.config.Package+": "+text, "session", session, "away", away)
}
