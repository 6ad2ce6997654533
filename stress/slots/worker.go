package main

import (
	"context"
	"math/rand/v2"
	"os"
	"reflect"
	"time"

	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
	"github.com/tierlock/tierlock/tier"
)

// task tells a process what to do.
type task struct {
	Store    *store.Store
	Servers  []string
	Session  time.Duration
	Interval time.Duration
	Log      runLog
	Ahead    time.Duration // the clock of the process is this much ahead of the machine's clock
}

// open connects a process to the store, and returns the lock of the job.
func (t task) open(ctx context.Context) (store.Locker, *tier.Mutex, error) {
	locker, err := t.Store.Locks["mutex"].Dial(ctx, store.Options{Servers: t.Servers, SessionTimeout: t.Session})
	if err != nil {
		return nil, nil, err
	}
	locks := locker.(interface {
		Mutex(path string, options ...tier.Option) *tier.Mutex
	})
	return locker, locks.Mutex("/jobs/report"), nil
}

// beWorker runs the slots until the input ends.
func beWorker() error {
	var t task
	orders, err := twin.Begin(&t)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		orders.Scan()
		end()
	}()
	if err := t.run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func (t task) run(ctx context.Context) error {
	locker, mutex, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	note := func(e slots.Event) { t.record(entry{What: e.Kind, At: clock.Now(), Count: e.Count, Slot: e.Slot}) }
	job := slots.New(mutex, slots.Every(t.Interval, time.Time{}), slots.AfterCrash(slots.Retry), slots.CatchUp(slots.All),
		slots.OnSlot(note), ahead(t.Ahead))
	return job.Run(ctx, func(ctx context.Context, slot slots.Slot) error { return t.job(tier.HoldFrom(ctx, mutex), slot) })
}

// ahead gives a job a clock that is ahead of the machine's clock. Package slots has no option for this, because it would only be for tests.
func ahead(d time.Duration) slots.Option {
	return func(j *slots.Job) {
		field := reflect.ValueOf(j).Elem().FieldByName("now").Addr().UnsafePointer()
		*(*func() time.Time)(field) = func() time.Time { return time.Now().Add(d) }
	}
}

// job runs a slot. It takes a quarter of the interval on average. If the process is asked to end, the job still finishes.
func (t task) job(hold *tier.Hold, slot slots.Slot) error {
	e := entry{What: began, At: clock.Now(), Slot: slot} // the clock is read before each check, so that At is not later than the check
	if err := hold.Err(); err != nil {
		return err // the process was stopped before the run began
	}
	t.record(e)
	took := time.Duration(rand.ExpFloat64() * float64(t.Interval) / 4)
	for end := time.Now().Add(took); time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
		now := clock.Now()
		if err := hold.Err(); err != nil {
			e.What = cut
			t.record(e)
			return err
		}
		e.At = now
	}
	e.What = ended
	t.record(e)
	return nil
}

// record writes an entry. A process that cannot record what it does must not continue.
func (t task) record(e entry) {
	e.PID = os.Getpid()
	if err := t.Log.write(e); err != nil {
		panic(err)
	}
}
