//go:build linux || darwin || freebsd || windows

package command

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

// An execution is a run of the command under the lock.
type execution struct {
	*keeper
	child *child

	clock  *clock.Clock
	valid  time.Duration // the end of the lease when last looked, on the clock
	grace  time.Duration // and for how long the command may go on after that
	margin time.Duration
	due    time.Duration // when the command is killed, on the clock
	kill   *time.Timer   // set when the command has to end
	result error
	ending bool // it is on its way to its end
}

// mind returns when nothing is left of the command, including all processes that it has started.
func (e *execution) mind() error {
	e.kill = stopped()
	look, left := time.NewTimer(0), stopped()
	lost, heard := e.hold.Lost(), e.front.heard
	var asked <-chan struct{}
	if lock, ok := e.hold.(*tier.Hold); ok && e.revocable {
		asked = lock.RevokeRequested()
	}
	for {
		select {
		case sig := <-e.signals:
			e.child.forward(sig.(syscall.Signal))
		case <-look.C: // the front may be stopped, and ask no more
			e.look()
			look.Reset(min((e.valid-e.clock.Now())/4, time.Second))
		case question, open := <-heard:
			if !open {
				heard = nil
				e.abandon()
				continue
			}
			e.look()
			e.answer(question)
		case <-lost:
			lost = nil
			look.Stop()
			e.lose()
		case <-asked:
			asked = nil
			e.giveWay()
		case <-e.kill.C:
			if left := e.clock.Left(e.due); left > 0 {
				e.kill.Reset(left)
				continue
			}
			go e.child.kill(e.in.resisted)
		case <-e.child.gone:
			return e.result
		case status := <-e.child.events:
			e.see(status)
			if e.child.ended {
				left.Reset(time.Second)
			}
		case <-left.C:
			e.in.say("the command has ended; the lock is held until these processes end: %v", e.child.left())
		}
	}
}

// look records until when the lock is certain to be held.
func (e *execution) look() {
	margin := e.locks.Margin()
	now := e.clock.Now() // first: if the machine sleeps in between, this is too early, never too late
	if until := e.hold.ValidUntil(); !until.IsZero() {
		e.valid, e.margin = now+time.Until(until), margin
		if grace, err := e.within(margin); err == nil {
			e.grace = grace
		} else {
			e.grace = maxGrace(margin) // of a session that has become shorter
		}
	}
}

// answer tells the front until when it has to wait: until a little after the keeper would kill the command.
func (e *execution) answer(question string) {
	e.front.say("for %d %s", e.valid+e.grace+e.margin/8-e.clock.Now(), strings.TrimPrefix(question, "ask "))
}

// lose ends the command after a loss: in time before the store gives the lock away, or at once if it may have done so.
func (e *execution) lose() {
	err := e.hold.Err()
	e.ending = true
	e.result = &failure{status: exitLost}
	if e.clock.Now() < e.valid {
		e.killIn(0)
		e.in.say("%s: %v; sending KILL at once, because another process may hold the lock", e.path, err)
		return
	}
	left := e.valid + e.grace - e.clock.Now()
	e.killIn(left)
	e.child.end()
	e.in.say("%s: %v; sending TERM, and KILL in %v", e.path, err, max(left, 0).Round(time.Millisecond))
}

// abandon ends the command because its caller is gone. The lock is still held.
func (e *execution) abandon() {
	if e.ending {
		return
	}
	e.result = e.alone()
	e.stop()
}

// giveWay ends the command because a revoke was requested. The lock is still held, and released when nothing
// of the command is left.
func (e *execution) giveWay() {
	if e.ending {
		return
	}
	e.stop()
	e.in.say("%s: revoke requested; sending TERM, and KILL in %v", e.path, e.grace.Round(time.Millisecond))
}

// stop ends the command while the lock is held.
func (e *execution) stop() {
	e.ending = true
	e.killIn(e.grace)
	e.child.end()
}

// killIn schedules a KILL after a time that counts the sleep of the machine, as the store's lease does.
func (e *execution) killIn(left time.Duration) {
	e.due = e.clock.Now() + left
	e.kill.Reset(e.clock.Left(e.due))
}

// see records the end of the command, and handles a stopped command as a shell would.
func (e *execution) see(status syscall.WaitStatus) {
	switch {
	case !status.Stopped():
		e.child.ended = true
		if code := exitOf(status); e.result == nil && code != exitOK {
			e.result = &failure{status: code}
		}
	case !e.child.goesOn(status.StopSignal()):
		e.front.say("stopped")
	}
}

// exitOf returns the status of a process that has ended, as a shell would.
func exitOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// isStatus reports whether err ends the process with a status.
func isStatus(err error, code int) bool {
	f := (*failure)(nil)
	return errors.As(err, &f) && f.status == code
}
