package tier

import (
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// This file judges when a wait is to be told of, behind what this process has itself. If that is the caller's own, the wait has no end,
// and else nobody would know.
const (
	longWait    = 10 * time.Second // is such a wait
	rarest      = time.Hour        // it is told of
	endlessWait = 24 * time.Hour   // it is, where time costs nothing
	lateAlarm   = time.Second      // is that of a process that did not run meanwhile
)

// An alarm goes off when the first wait at a stake may be long. The mutex of the stake guards it.
type alarm struct {
	timer *time.Timer   // the last one, nil before the first wait
	set   bool          // it will go off
	due   time.Duration // when, on the clock of the leases
	told  time.Duration // when a wait was told of last; 0 for never
}

// A waiting is a stake as its alarm knows it. It is no function, which would be an allocation at each wait.
type waiting interface{ lookAtWait() }

// setAlarmLocked has somebody look in a while, if the alarm is not set.
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

// judgeLocked tells of the first who waits, since a time, behind what this process has had since another, if that is long by now.
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

// judge says, now, whether a wait that began at one time, behind what has been in the way since another, is long, so that people are to
// be told; or endless, so that it is to end where time costs nothing. The alarm goes off again.
//
// Where it has gone off late, the process was stopped, or the machine asleep. Then nothing moved meanwhile, and what is in the way has as
// much time again.
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
