//go:build linux || darwin || freebsd || windows

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// A due is a slot that has been begun. Its command has to run now.
type due struct {
	slot  slots.Slot
	hold  *tier.Hold
	ended chan<- error // gets the result of the command
}

// The variable endingSlots has the signals that end the schedule. Between two slots, all other signals have no effect.
var endingSlots = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}

// errSignaled is the cause of the end of a schedule that a signal has ended.
var errSignaled = errors.New("a signal has ended the schedule")

// runSlots runs the command for each slot until a signal ends the schedule or the front dies. This goroutine alone handles signals,
// messages of the front, and the command.
func (k *keeper) runSlots() error {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	k.endSlots = end
	begun, ended := make(chan due), make(chan error, 1)
	go func() { ended <- k.work(ctx, begun) }()
	heard := k.front.heard
	for {
		select {
		case d := <-begun:
			d.ended <- k.runSlot(ctx, d)
		case sig := <-k.signals:
			k.interrupts(sig)
		case text, open := <-heard:
			switch {
			case !open:
				heard = nil
				k.alone()
			case text == "rest":
				k.resting--
			}
		case err := <-ended:
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, errSignaled):
				return nil
			case cause != nil:
				return cause
			}
			return err
		}
	}
}

// work connects to the store and begins the slots. It returns when ctx has ended, or if retrying cannot help.
func (k *keeper) work(ctx context.Context, begun chan<- due) error {
	if err := k.connect(ctx); err != nil {
		return err
	}
	slog.SetDefault(k.in.logger()) // for the warning about another schedule
	mutex := k.locks.Mutex(k.path)
	job := slots.New(mutex, k.slot.schedule, append(k.slot.options, slots.OnSlot(k.report))...)
	err := job.Run(ctx, func(ctx context.Context, slot slots.Slot) error {
		ended := make(chan error, 1)
		begun <- due{slot, tier.HoldFrom(ctx, mutex), ended}
		return <-ended
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return usage(err)
	}
	return err
}

// runSlot runs the command for one slot. It returns when all processes of the command have ended.
func (k *keeper) runSlot(ctx context.Context, d due) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k.hold = d.hold
	k.slotEnv = []string{"TIERLOCK_SLOT=" + slotTime(d.slot), fmt.Sprintf("TIERLOCK_ATTEMPT=%d", d.slot.Attempt)}
	err := k.underLock()
	k.front.say("rest")
	k.resting++
	return err
}

// endsSlots reports whether sig ends the schedule, and ends it.
func (k *keeper) endsSlots(sig syscall.Signal) bool {
	if k.endSlots == nil || !slices.Contains(endingSlots, sig) {
		return false
	}
	k.endSlots(errSignaled)
	return true
}

// report prints what has happened to a slot. It prints a slot that ran as expected only with -v.
func (k *keeper) report(e slots.Event) {
	say := func(format string, args ...any) {
		k.in.say("%s: slot %s "+format, append([]any{k.path, slotTime(e.Slot)}, args...)...)
	}
	took := e.Took.Round(time.Millisecond)
	switch e.Kind {
	case slots.Ran:
		if k.verbose {
			say("ran for %v", took)
		}
	case slots.Failed:
		why := e.Err.Error()
		if why == "" {
			why = fmt.Sprintf("exit status %d", status(e.Err))
		}
		say("failed after %v: %s", took, why)
	case slots.Lost:
		say("was cut off, because the lock was lost; tierlock waits for the lock again")
	case slots.Retried:
		say("runs again, attempt %d", e.Slot.Attempt)
	case slots.CaughtUp:
		say("starts %v late", e.Slot.Late.Round(time.Millisecond))
	case slots.Skipped:
		switch {
		case e.Slot.Attempt > 0:
			say("was cut off, and does not run again; see -after-crash")
		case e.Count == 1:
			say("was missed, and does not run; see -catch-up")
		default:
			say("and the %d slots before it were missed, and do not run; see -catch-up", e.Count-1)
		}
	}
}

func slotTime(s slots.Slot) string { return s.Time.UTC().Format(time.RFC3339Nano) }
