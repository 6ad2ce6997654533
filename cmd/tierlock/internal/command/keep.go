//go:build linux || darwin || freebsd || windows

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

// A keeper is the process that holds the lock and is the parent of the command.
type keeper struct {
	*runOptions
	in      *invocation
	path    string
	signals <-chan os.Signal
	front   line

	locks *Locks
	hold  hold

	endSlots context.CancelCauseFunc // ends the schedule; nil if there is none
	slotEnv  []string                // what the environment of the command has about its slot
	resting  int                     // how many messages "rest" the front has not answered yet
}

// keeper.alone is called when the front, the process that the shell has started, has died. It ends the schedule, and returns the error.
func (k *keeper) alone() error {
	err := fail(exitInternal, "tierlock run is gone")
	if k.endSlots != nil {
		k.endSlots(err)
	}
	return err
}

// keep acquires the lock, runs the command, and releases the lock.
func (o *runOptions) keep(_ context.Context, in *invocation) error {
	in.speakAside()
	if err := o.check(in); err != nil {
		return err
	}
	front, err := takeLine(o.line)
	if err != nil {
		return err
	}
	k := &keeper{runOptions: o, in: in, path: in.args[0], signals: catchInBackground(), front: front}
	defer k.close()
	if o.slot.schedule != nil {
		err := k.runSlots()
		front.say("done")
		return err
	}
	if err = k.acquire(); err == nil {
		err = k.underLock()
	}
	front.say("done")
	if k.hold == nil {
		return err
	}
	return k.release(err)
}

func (k *keeper) close() {
	if k.locks != nil {
		k.locks.Close() // the end of the session removes everything that is left in the queue
	}
}

// release releases the lock. If the release shows that the lock was lost, the error says so, and the status of the command is not used.
func (k *keeper) release(status error) error {
	err := k.hold.Release()
	switch {
	case err == nil:
	case errors.Is(err, tier.ErrLost) && !isStatus(status, exitLost):
		return fail(exitLost, "%s: the lock was lost before the command ended: %w", k.path, err)
	case !errors.Is(err, tier.ErrLost):
		k.in.say("%v", err)
	}
	return status
}

// acquire waits for the lock. It gives up when a signal arrives or the front dies.
func (k *keeper) acquire() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	acquired := make(chan error, 1)
	go func() { acquired <- k.queue(ctx) }()
	heard := k.front.heard
	for {
		select {
		case err := <-acquired:
			if end := context.Cause(ctx); end != nil {
				return end
			}
			return err
		case sig := <-k.signals:
			if k.interrupts(sig) {
				cancel(interrupted(k.path, sig))
			}
		case _, open := <-heard:
			if !open {
				heard = nil
				cancel(k.alone())
			}
		}
	}
}

// interrupts reports whether sig ends the keeper while no command runs. It ends the schedule, if there is one.
func (k *keeper) interrupts(sig os.Signal) bool {
	if suspends(sig) {
		k.front.say("stopped")
	}
	if k.endSlots != nil {
		return k.endsSlots(sig.(syscall.Signal))
	}
	return slices.Contains(ending, sig.(syscall.Signal))
}

func interrupted(path string, sig os.Signal) error {
	return fail(exitSignal+int(sig.(syscall.Signal)), "%s: %v; the command was not started", path, sig)
}

// connect connects to the store. If it cannot, it returns a failure with an exit status.
func (k *keeper) connect(ctx context.Context) (err error) {
	k.locks, err = k.in.dial(ctx, Options{Session: k.session, Label: k.label(k.in.command[0]), Logger: k.logger(k.in)})
	if err == nil {
		_, err = k.within(k.locks.Margin())
	}
	return err
}

// queue connects to the store and acquires the lock. If it cannot, it returns a failure with an exit status.
func (k *keeper) queue(ctx context.Context) error {
	err := k.connect(ctx)
	if err != nil {
		return err
	}
	s := k.locks
	w := &waiting{in: k.in, locks: s.Registry, path: k.path, claim: k.claim(s.Registry, k.path), begun: time.Now(), verbose: k.verbose}
	if k.try {
		k.hold, err = w.claim.try(ctx)
	} else {
		k.hold, err = w.acquire(ctx, k.wait)
	}
	away := s.Err() != nil && gracePeriodOf(s.Err()) == nil
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tier.ErrLocked), errors.Is(err, errWaited) && !away:
		return fail(k.notAcquired, "%s: not acquired%s: %s", k.path, w.limit(k.wait), w.inTheWay(err))
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, tier.ErrTooManyPermits):
		return usage(err)
	case away:
		return fail(exitUnavailable, "%w", err)
	}
	return err
}

// underLock runs the command as soon as the front is watching. It returns when all processes of the command have ended. Its error has the
// exit status.
func (k *keeper) underLock() error {
	k.front.say("held")
	for {
		select {
		case sig := <-k.signals:
			if k.interrupts(sig) {
				return interrupted(k.path, sig)
			}
		case <-k.hold.Lost():
			return fail(exitLost, "%s: %w; the command was not started", k.path, k.hold.Err())
		case text, open := <-k.front.heard:
			switch {
			case !open:
				return k.alone()
			case text == "rest":
				k.resting--
			case k.resting == 0: // otherwise it is a question about the command of an earlier slot
				return k.start(text)
			}
		}
	}
}

// start starts the command after the front has learned how long the command may live.
func (k *keeper) start(question string) error {
	e := &execution{keeper: k, clock: clock.New()}
	e.look()
	if err := k.hold.Err(); err != nil {
		return fail(exitLost, "%s: %w; the command was not started", k.path, err)
	}
	e.answer(question)
	env := append([]string{"TIERLOCK_PATH=" + k.path, fmt.Sprintf("TIERLOCK_TOKEN=%d", k.hold.Token())}, k.slotEnv...)
	var err error
	if e.child, err = startChild(k.in.command, env, k.endSlots == nil); err != nil {
		return cannotRun(err)
	}
	k.front.say("running %d", e.child.pid)
	return e.mind()
}
