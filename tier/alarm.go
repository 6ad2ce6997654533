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
	lateAlarm   = time.Second      // if the timer fires later than this, the process was stopped meanwhile
)

// An alarm fires when the first waiter for a lock, or for permits, may have waited for too long. The mutex of the cohort or pool guards it.
type alarm struct {
	timer *time.Timer   // the latest one, nil before the first wait
	set   bool          // the timer will fire
	due   time.Duration // when it will fire, on the clock of the leases
	told  time.Duration // when the last warning was logged; 0 if there was none
}

// A waiting is a cohort or a pool, with the method that the alarm calls. It is an interface, because a function value would cost an
// allocation for each wait.
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

// judgeLocked logs a warning if a hold, or permits, of this process have blocked the first waiter for too long. The parameter since is the
// start of the blocking hold, or of the blocking permits. The parameter waits is the start of the wait.
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

// judge decides about a wait that began at waits, behind a hold or permits of this process that began at since. If the result long is true,
// the caller logs a warning. If endless is true, the caller ends the test in virtual time. judge also sets the alarm for the next check.
//
// If the alarm fires late, the process was stopped, or the machine slept. The owner of the blocking hold could not work meanwhile, so judge
// waits again before it warns.
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
