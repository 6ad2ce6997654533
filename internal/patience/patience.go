// Package patience judges when people have to be told of a wait behind what their own process has. If that is the caller's own the wait
// has no end, and else nobody would know.
package patience

import "time"

const (
	long    = 10 * time.Second // is such a wait
	rarest  = time.Hour        // it is told of
	endless = 24 * time.Hour   // it is, where time costs nothing
	late    = time.Second      // is an alarm of a process that did not run meanwhile
)

// A Verdict says what a wait is.
type Verdict int

const (
	Fine    Verdict = iota
	Long            // people are to be told
	Endless         // where time costs nothing, it is to end
)

// An Alarm goes off when a wait may be long. Its user guards it with a mutex.
type Alarm struct {
	timer *time.Timer   // the last one, nil before the first wait
	set   bool          // it will go off
	due   time.Duration // when, on the clock of its user
	told  time.Duration // when a wait was told of last; 0 for never
}

// Waiting is where somebody waits. It is no function, which would be an allocation at each wait.
type Waiting interface {
	LookAtWait()
	Now() time.Duration
}

// Set has somebody look in a while, if the alarm is not set, who then calls Off.
func (a *Alarm) Set(at Waiting) {
	if !a.set {
		a.goOff(at.Now(), long, at)
	}
}

func (a *Alarm) goOff(now, in time.Duration, at Waiting) {
	a.set, a.due, a.timer = true, now+in, time.AfterFunc(in, at.LookAtWait)
}

// Off says that the alarm has gone off.
func (a *Alarm) Off() { a.set = false }

// Stop ends the alarm.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// Judge says, now, what a wait is that began at one time, behind what has been in the way since another. The alarm goes off again.
//
// Where it has gone off late, the process was stopped, or the machine asleep. Then nothing moved meanwhile, and what is in the way has as
// much time again.
func (a *Alarm) Judge(now, since, waits time.Duration, at Waiting) (v Verdict) {
	kept, next := now-max(since, waits), long
	switch {
	case kept < long:
		next -= kept
	case now-a.due > late:
	case a.told <= since && (a.told == 0 || now-a.told >= rarest):
		a.told, v = now, Long
	case kept >= endless:
		next, v = endless, Endless
	}
	a.goOff(now, next, at)
	return v
}
