//go:build linux || darwin || freebsd || windows

package command

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

// An execution is one run of the command under the lock.
type execution struct {
	*keeper
	child *child

	clock  *clock.Clock
	valid  time.Duration // the end of the lease when it was last read, on the clock
	grace  time.Duration // for how long the command may run after the end of the lease
	margin time.Duration
	due    time.Duration // the time at which the command is killed, on the clock
	kill   *time.Timer   // runs when the command has to end
	result error
	ending bool // TERM was sent to the command
}

// mind returns when the command and all processes that it has started have ended.
func (e *execution) mind() error {
	e.kill = stopped()
	look, left := time.NewTimer(0), stopped()
	lost, heard := e.hold.Lost(), e.front.heard
	var killing sync.WaitGroup
	var asked <-chan struct{}
	if lock, ok := e.hold.(*tier.Hold); ok && e.revocable {
		asked = lock.RevokeRequested()
	}
	for {
		select {
		case sig := <-e.signals:
			e.child.forward(sig.(syscall.Signal))
			e.endsSlots(sig.(syscall.Signal))
		case <-look.C: // reads the lease without a question, because a stopped front sends none
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
			killing.Go(func() { e.child.kill(e.in.resisted) })
		case <-e.child.gone:
			killing.Wait() // otherwise a late KILL might reach the command of the next slot
			e.child.close()
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

// look records until when the lock is certainly held.
func (e *execution) look() {
	margin := e.locks.Margin()
	now := e.clock.Now() // read first: if the machine sleeps in between, the result is too early, but never too late
	if until := e.hold.ValidUntil(); !until.IsZero() {
		e.valid, e.margin = now+time.Until(until), margin
		if grace, err := e.within(margin); err == nil {
			e.grace = grace
		} else {
			e.grace = maxGrace(margin) // the timeout of the session has become shorter
		}
	}
}

// The method answer tells the front after which time it has to kill the command, if there is no new answer. That time ends a little after
// the keeper itself would kill the command.
func (e *execution) answer(question string) {
	e.front.say("for %d %s", e.valid+e.grace+e.margin/8-e.clock.Now(), strings.TrimPrefix(question, "ask "))
}

// lose ends the command after a loss. If the store cannot have granted the lock to another process yet, the command ends before the store
// can do so. Otherwise it is killed at once.
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

// abandon ends the command because the front has ended. The lock stays held until all processes of the command have ended.
func (e *execution) abandon() {
	if e.ending {
		return
	}
	e.result = e.alone()
	e.stop()
}

// giveWay ends the command because a revoke was requested. The lock stays held until all processes of the command have ended.
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

// killIn schedules a KILL after the given time. The time includes the sleep of the machine, because the store's lease includes it, too.
func (e *execution) killIn(left time.Duration) {
	e.due = e.clock.Now() + left
	e.kill.Reset(e.clock.Left(e.due))
}

// see records the end of the command. If the command was stopped, see acts as a shell would.
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

// exitOf returns the exit status of a process that has ended, in the form that a shell uses.
func exitOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// isStatus reports whether err ends this process with the exit status code.
func isStatus(err error, code int) bool {
	f := (*failure)(nil)
	return errors.As(err, &f) && f.status == code
}
