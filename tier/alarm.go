package tier

import (
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// This file decides when to warn about a wait behind a hold, or permits, of the waiter's own process. Such a wait is often a
// self-deadlock.
const (
	longWait    = 10 * time.Second // a longer wait causes a warning
	rarest      = time.Hour        // the shortest time between two warnings about one path
	endlessWait = 24 * time.Hour   // a longer wait in virtual time is a deadlock
	lateAlarm   = time.Second      // if the timer is later than this, the process was stopped
)

// An alarm fires when the first waiter of a stake may have waited for too long. The mutex of the stake guards the alarm.
type alarm struct {
	timer *time.Timer   // the latest one, nil before the first wait
	set   bool          // the timer will fire
	due   time.Duration // when it will fire, on the clock of the leases
	told  time.Duration // when the last warning was logged; 0 if there was none
}

// A waiting is a stake, with the method that the alarm calls. It is an interface, because a function would cost an allocation for each
// wait.
type waiting interface{ lookAtWait() }

// setAlarmLocked sets the alarm if it is not set.
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

// judgeLocked logs a warning if the first waiter is blocked by this process for long. The parameter since is the start of the blocking
// hold, or of the blocking permits. The parameter waits is the start of the wait.
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

// judge decides about a wait that is blocked by this process. The wait began at waits, and what blocks it exists since since. If the wait
// is long, a warning has to be logged. If the wait is endless, a test in virtual time has to end. judge also sets the alarm for the next
// check.
//
// If the alarm fires late, the process was stopped, or the machine slept. No work was done during that time, so the blocking hold gets the
// same time again.
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
