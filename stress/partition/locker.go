package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/twin"
	"github.com/tierlock/tierlock/tier"
)

// job tells a lock process what to do. The process acquires the lock and watches its hold.
type job struct {
	Store   string
	Servers []string
	Path    string
	Writes  bool // the process writes under the lock all the time
	Halted  bool // the process will be paused; the result is when it last believed in its hold
}

// event is a report of a lock process, with the time of the report.
type event struct {
	What string
	At   clock.Instant
	Why  string // the reason of a failure
}

const (
	queued = "queued"
	held   = "held"
	lost   = "lost"
	failed = "failed"
)

// lockerMain is the main function of a lock process.
func lockerMain() int {
	var j job
	ctx, err := begin(&j)
	if err == nil {
		err = j.do(ctx)
	}
	if err != nil {
		_ = twin.Say(event{What: failed, At: clock.Now(), Why: err.Error()})
		return exitBreach
	}
	return exitPass
}

func (j job) do(ctx context.Context) error {
	site := siteOf(j.Store)
	locks, err := site.dial(ctx, j.Servers)
	if err != nil {
		return err
	}
	defer locks.Close()
	mutex := locks.Mutex(j.Path)
	go awaitPlace(ctx, mutex)
	hold, err := mutex.Acquire(ctx)
	if err != nil {
		return err
	}
	_ = twin.Say(event{What: held, At: clock.Now()})
	if j.Writes {
		go site.writeOn(ctx, hold, j.Path)
	}
	e := event{What: lost, At: awaitEnd(hold)}
	if !j.Halted {
		e.At = clock.Now()
	}
	_ = twin.Say(e)
	<-ctx.Done()
	return nil
}

// awaitPlace waits until this process has a node in the queue, and reports that.
func awaitPlace(ctx context.Context, mutex *tier.Mutex) {
	ours := func(c tier.Contender) bool { return c.PID == os.Getpid() }
	for ctx.Err() == nil {
		if queue, _ := mutex.Contenders(ctx); slices.ContainsFunc(queue, ours) {
			_ = twin.Say(event{What: queued, At: clock.Now()})
			return
		}
		clock.Sleep(10*time.Millisecond, ctx.Done())
	}
}

// The function awaitEnd checks the hold until a check finds it lost. It returns the time of the last check that found the hold valid.
func awaitEnd(hold *tier.Hold) (believed clock.Instant) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		look := clock.Now()
		if hold.Err() != nil {
			return believed
		}
		believed = look
		select {
		case <-hold.Lost():
		case <-tick.C:
		}
	}
}

// writeOn makes guarded writes as long as the lock is held. No write waits for the one before it, and therefore some are always unanswered.
func (s *site) writeOn(ctx context.Context, hold *tier.Hold, path string) {
	for hold.Err() == nil && ctx.Err() == nil {
		go s.write(ctx, hold, path)
		clock.Sleep(50*time.Millisecond, ctx.Done())
	}
}

// locker is the lab's side of a lock process.
type locker struct {
	*twin.Twin
	events chan event
}

func startLocker(j job) (*locker, error) {
	cmd, err := twin.Command(context.Background(), "locker")
	if err != nil {
		return nil, err
	}
	c, err := twin.Start(cmd, j)
	if err != nil {
		return nil, err
	}
	l := &locker{c, make(chan event, 4)} // no process sends more than four reports
	go func() {
		defer close(l.events)
		var e event
		for c.Out.Decode(&e) == nil {
			l.events <- e
		}
	}()
	return l, nil
}

// errLate is the error if a process does not report something in time.
var errLate = errors.New("not in time")

// The method await waits until the process reports the event what, and returns its time. It ignores other reports. If that takes longer
// than long, it returns errLate.
func (l *locker) await(ctx context.Context, what string, long time.Duration) (clock.Instant, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, long, errLate)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case e, ok := <-l.events:
			switch {
			case !ok:
				return 0, fmt.Errorf("%s: the process is gone", what)
			case e.What == what:
				return e.At, nil
			case e.What == failed:
				return 0, fmt.Errorf("%s: %s", what, e.Why)
			}
		}
	}
}

// kill ends the process like kill -9.
func (l *locker) kill() {
	_ = l.Cmd.Process.Kill()
	_ = l.Cmd.Wait()
}
