package verdict

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// task tells a process what to do. Each such process has one contender. The programs in other languages (see [Subject]) read the task as
// JSON from the first line of their input. Each further line is an order. The programs write events to their output, as JSON.
type task struct {
	Subject string
	Servers []string
	Path    string
	Lease   time.Duration
}

// event is a report of a process that contends for the lock, with the time of the report.
type event struct {
	What    string
	At      clock.Instant // the time; in an over event, until when the owner believed in its hold, 0 if never
	Why     string        // the error of a failed or released event, "" for none
	Version string        // in a ready event: the version of the library
}

const (
	ready    = "ready"    // the process can take orders
	granted  = "held"     // its acquisition has returned
	over     = "over"     // it does not believe in its hold any more, or is about to release it
	released = "released" // its release has returned
	failed   = "failed"   // its acquisition has returned an error, and it tries again
)

// These are the orders that the coordinator sends to a process.
const (
	acquire = "acquire"
	release = "release"
)

// partyMain is the main function of a process that contends for the lock. It calls Release even for a lost lock, as a deferred call would.
func partyMain() int {
	var t task
	orders, err := twin.Begin(&t)
	if err != nil {
		return 1
	}
	ctx := context.Background()
	s, err := subjectNamed(t.Subject)
	if err != nil {
		return 1
	}
	contend, err := t.dial(ctx, s)
	if err != nil {
		_ = twin.Say(event{What: failed, At: clock.Now(), Why: err.Error()})
		return 1
	}
	_ = twin.Say(event{What: ready, At: clock.Now(), Version: s.version()})
	leave := make(chan struct{}, 1)
	for orders.Scan() {
		switch orders.Text() {
		case acquire:
			leave = make(chan struct{}, 1)
			go takeTurn(ctx, contend, leave)
		case release:
			select {
			case leave <- struct{}{}:
			default: // a release is already ordered
			}
		}
	}
	return 0
}

func (t task) dial(ctx context.Context, s Subject) (store.Contender, error) {
	locker, err := s.Dial(ctx, store.Options{Servers: t.Servers, Goroutines: 1, SessionTimeout: t.Lease})
	if err != nil {
		return nil, err
	}
	return locker.Contender(t.Path)
}

// takeTurn tries until it has acquired the lock. It keeps the lock until leave is signaled or the lock is lost.
func takeTurn(ctx context.Context, contend store.Contender, leave <-chan struct{}) {
	hold, err := contend(ctx, 1)
	for err != nil {
		_ = twin.Say(event{What: failed, At: clock.Now(), Why: err.Error()})
		time.Sleep(200 * time.Millisecond)
		hold, err = contend(ctx, 1)
	}
	_ = twin.Say(event{What: granted, At: clock.Now()})
	believed := believe(hold, leave)
	_ = twin.Say(event{What: over, At: believed})
	why := ""
	if err := hold.Release(); err != nil {
		why = err.Error()
	}
	_ = twin.Say(event{What: released, At: clock.Now(), Why: why})
}

// The function believe checks the hold again and again, until a check finds it lost or leave is signaled. It returns the time of the last
// check that found it valid. After a pause, its first action is a check, as in a careful program.
func believe(hold store.Hold, leave <-chan struct{}) (believed clock.Instant) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		look := clock.Now()
		if hold.Err() != nil {
			return believed
		}
		believed = look
		select {
		case <-leave:
			return believed
		case <-tick.C:
		}
	}
}

// party is a process that contends for the lock, as the coordinator sees it.
type party struct {
	*twin.Twin
	name   string
	events chan event
	turns  []turn
	away   bool   // its last release has returned
	failed string // the reason of its last failure
	began  event  // its report that it is ready
}

// turn is a hold, as its owner sees it.
type turn struct {
	who         string
	from, until clock.Instant // until is 0 while the hold lasts
}

func startParty(ctx context.Context, name string, s Subject, t task) (*party, error) {
	cmd, err := s.command()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = nil // libraries log the effects of the faults
	before := clock.Now()
	c, err := twin.Start(cmd, t)
	if err != nil {
		return nil, err
	}
	p := &party{Twin: c, name: name, events: make(chan event, 1<<12)}
	go func() {
		defer close(p.events)
		for {
			var e event // a new variable each time, because programs leave out fields that are empty
			if c.Out.Decode(&e) != nil {
				return
			}
			p.events <- e
		}
	}()
	err = p.await(ctx, ready, patience)
	if err == nil && (p.began.At < before || p.began.At > clock.Now()) {
		err = fmt.Errorf("%s reads another clock: it was ready at %d, and started after %d", name, p.began.At, before)
	}
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

func (p *party) order(what string) { _, _ = fmt.Fprintln(p.In, what) }

// errLate is the error if a process does not report something in time.
var errLate = errors.New("not in time")

// The method await reads the reports of the process until it has reported an event of the kind what.
func (p *party) await(ctx context.Context, what string, long time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, long, errLate)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, %s: %w (%s)", p.name, what, context.Cause(ctx), p.failed)
		case e, ok := <-p.events:
			if !ok {
				return fmt.Errorf("%s, %s: the process is gone (%s)", p.name, what, p.failed)
			}
			p.note(e)
			if e.What == what {
				return nil
			}
		}
	}
}

func (p *party) note(e event) {
	switch e.What {
	case ready:
		p.began = e
	case granted:
		p.turns, p.away = append(p.turns, turn{who: p.name, from: e.At}), false
	case over:
		p.turns[len(p.turns)-1].until = max(e.At, p.turns[len(p.turns)-1].from)
	case released:
		p.away = true
	case failed:
		p.failed = e.Why
	}
}

// The method take reads those reports that have already arrived.
func (p *party) take() {
	for len(p.events) > 0 {
		p.note(<-p.events)
	}
}

// awaitRelease waits until the release of the last hold has returned.
func (p *party) awaitRelease(ctx context.Context) error {
	if p.away {
		return nil
	}
	return p.await(ctx, released, patience)
}

// The method inside reports whether the process holds the lock, according to the reports that were read so far.
func (p *party) inside() bool { return len(p.turns) > 0 && p.turns[len(p.turns)-1].until == 0 }

func (p *party) end() error {
	_ = p.Cmd.Process.Kill()
	return p.Cmd.Wait()
}
