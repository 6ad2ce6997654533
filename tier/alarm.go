package tier

import (
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// This file decides when to warn about a wait behind a hold, or permits, of the waiter's own process. Such a wait is often a
// self-deadlock.
const (
	longWait    = 10 * time.Second // after which a wait causes a warning
	rarest      = time.Hour        // between two warnings about one path
	endlessWait = 24 * time.Hour   // after which a wait in virtual time is a deadlock
	lateAlarm   = time.Second      // by which the timer of a stopped process is late at least
)

// An alarm fires when the first waiter of a stake may have waited for long. The mutex of the stake guards it.
type alarm struct {
	timer *time.Timer   // the latest one, nil before the first wait
	set   bool          // the timer will fire
	due   time.Duration // when, on the clock of the leases
	told  time.Duration // when the last warning was; 0 for never
}

// A waiting is a stake as its alarm uses it. It is an interface and not a function, because a function would be an allocation at each
// wait.
type waiting interface{ lookAtWait() }

// setAlarmLocked sets the alarm, unless it is set.
func (m *members) setAlarmLocked(at waiting) {
	if !m.alarm.set {
		m.alarm.goOff(m.registry.now(), longWait, at)
	}
}

func (a *alarm) goOff(now, in time.Duration, at waiting) {
	a.set, a.due, a.timer = true, now+in, time.AfterFunc(in, at.lookAtWait)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// judgeLocked warns about the first waiter if it has waited for long, since waits, behind a hold or permits that this process has had for
// long, since since.
func (m *members) judgeLocked(since, waits time.Duration, at waiting, text string, about ...any) {
	now := m.registry.now()
	long, endless := m.alarm.judge(now, since, waits, at)
	tell := m.registry.second.Logger().Warn
	switch {
	case endless:
		tell = second.TellDeadlock
	case !long:
		return
	}
	about = slices.Concat([]any{"path", m.key.path}, about, []any{"since", m.registry.at(since), "waited", now - waits})
	m.spawn(func() { tell(text, about...) })
}

// judge reports whether a wait is long, so that a warning is due, or endless, so that a test in virtual time has to end. The wait began
// at waits, and what blocks it has been there since since. It also sets the alarm for the next check.
//
// If the alarm fires late, the process was stopped, or the machine slept. Since nothing made progress meanwhile, the blocking hold gets
// as much time again.
func (a *alarm) judge(now, since, waits time.Duration, at waiting) (long, endless bool) {
	kept, next := now-max(since, waits), longWait
	switch {
	case kept < longWait:
		next -= kept
	case now-a.due > lateAlarm:
	case a.told <= since && (a.told == 0 || now-a.told >= rarest):
		a.told, long = now, true
	case kept >= endlessWait:
		next, endless = endlessWait, true
	}
	a.goOff(now, next, at)
	return long, endless
}
