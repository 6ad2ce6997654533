package notice

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

const (
	firstWarning = 3 * time.Second // about a connection that cannot be made at all
	rarest       = 5 * time.Minute // such warnings
)

// A report is what has been told of a connection.
type report struct {
	*Connection
	told     state
	session  string    // under which it was connected last, "" before the first
	warnings int       // about the present outage
	said     time.Time // when a return was logged last
}

// next is how long to wait before a warning, 0 if there will be none. An outage is warned of
// once. Where there never was a connection somebody waits for it, who may wait for ever: that
// is repeated, ever more rarely.
func (r *report) next() time.Duration {
	switch {
	case r.session == "":
		return min(firstWarning<<min(r.warnings, 10), rarest)
	case r.warnings == 0:
		return r.config.Patience()
	}
	return 0
}

func (r *report) warn() {
	text := r.config.Package + ": the connection to " + r.config.Store + " is away"
	if r.session == "" {
		text = r.config.Package + ": still no connection to " + r.config.Store
	}
	r.warnings++
	r.config.Logger.Warn(text, "since", r.told.since, "for", time.Since(r.told.since), "err", r.config.Why())
}

// tell tells how the present state differs from what was told.
func (r *report) tell() {
	now, listener, fresh := r.look()
	before := r.told
	r.told = now
	notify := func(c second.Connection) {
		if listener != nil && !fresh {
			listener(c)
		}
	}
	if fresh {
		defer func() { listener(second.Connection{State: now.is(), Err: r.config.Why()}) }()
	}
	was, same := before.is(), now.session == r.session
	if before.session != "" && now.session != before.session {
		r.config.Logger.Warn(r.config.Package+": session expired", "session", before.session)
		notify(second.Connection{State: second.Expired})
	}
	switch is := now.is(); {
	case is == second.Connected && (was != second.Connected || !same):
		var away time.Duration // none if there is another session at once
		if was != second.Connected {
			away = now.since.Sub(before.since)
		}
		r.back(now.session, same, away)
		notify(second.Connection{State: second.Connected, Away: away})
	case is == second.Suspended && was == second.Connected && same:
		notify(second.Connection{State: second.Suspended, Err: r.config.Why()})
	}
}

// back logs the return of the connection. Of one that comes and goes not each return is logged.
func (r *report) back(session string, same bool, away time.Duration) {
	first, warned := r.session == "", r.warnings > 0
	r.warnings = 0
	r.session = session
	switch {
	case first && !warned:
		r.config.Logger.Debug(r.config.Package+": connected", "session", session)
		return
	case first:
		r.config.Logger.Info(r.config.Package+": connected", "session", session, "after", away)
	case same && !warned && time.Since(r.said) < r.config.Patience():
		return
	case same:
		r.config.Logger.Info(r.config.Package+": connected again", "session", session, "away", away)
	default:
		r.config.Logger.Info(r.config.Package+": new session", "session", session, "away", away)
	}
	r.said = time.Now()
}
