// Package tierotel exports OpenTelemetry spans and metrics about the locks and semaphores of a registry.
//
//	telemetry, err := tierotel.New(tierotel.WithPaths("/jobs/*"))
//	…
//	locks, err := zklock.Dial(ctx, "zk1:2181", tier.WithObserver(telemetry.Observer()))
//	…
//	registration, err := telemetry.Register(locks)
//
// # Spans
//
// Each acquisition that waited or failed creates a span "tierlock wait", and each hold creates a span "tierlock hold". These spans are
// children of the span in the context of Acquire. A span is created when its wait or hold has ended. Therefore a hold that is never
// released has no span. Attributes are tierlock.path, tierlock.token and tierlock.source (see [tier.Source]). An Acquire of a semaphore
// creates the same two spans. Their attribute tierlock.source is "permits", and a further attribute, tierlock.permits, is the number of
// permits. Spans of failed waits and lost holds have the status Error.
//
// # Metrics
//
//	tierlock.wait.duration  histogram, s   waits of successful (tierlock.source) and failed (error.type) acquisitions
//	tierlock.hold.duration  histogram, s   released holds of locks, without semaphores
//	tierlock.losses         counter        lost holds, and lost permits of one Acquire, counted at the loss, by tierlock.cause
//	tierlock.failures       counter        failed acquisitions, by error.type: timeout, canceled, closed, lost or other
//	tierlock.slots          counter        slots of jobs, by tierlock.outcome: run, skipped (another process runs the slot), failed, missed
//	                                       (no process runs the slot, or its process died)
//	tierlock.permits        updowncounter  permits of semaphores held now
//	tierlock.held_locks     gauge          locks held now: 1 for the path of an election if this process leads
//	tierlock.oldest_hold    gauge, s       the age of the oldest current hold
//	tierlock.oldest_wait    gauge, s       the age of the oldest current wait of more than a second
//	tierlock.slot_overdue   gauge, s       how long the next slot has been due while a slot still runs, by SlotEvent
//	tierlock.grace_period   gauge          1 during a grace period of the store, else 0
//	tierlock.connected      gauge          1 while there is a connection to the store, else 0
//	tierlock.holds          gauge          locks held now
//	tierlock.waiters        gauge          goroutines that wait now
//	tierlock.permit_waiters gauge          goroutines that wait for permits now
//	tierlock.acquisitions   counter        acquired locks, by tierlock.source
//	tierlock.give_ups       counter        releases that gave a lock back to the store
//	tierlock.give_up.time   counter, s     sum of the durations of these releases; divided by give_ups, it is the time of a transfer
//	tierlock.groups         counter        requests that combined commands about several locks (ZooKeeper)
//	tierlock.grouped        counter        commands in these requests
//
// The metrics from tierlock.held_locks to the end of the list need [Telemetry.Register]. After Register, losses, slots and failures are
// exported as 0 for each pattern and each cause, outcome or type. Therefore the first event is visible as an increase. The metrics from the
// start of the list to tierlock.slot_overdue have the attribute tierlock.path. The value of tierlock.path is one of the patterns of
// [WithPaths], or "other". Reentrant acquisitions are not counted.
package tierotel

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlock/tierlock/contrib/internal/patterns"
	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

const scope = "github.com/tierlock/tierlock/contrib/tierotel"

// A Telemetry creates the spans and metrics of one registry. It is safe for concurrent use.
type Telemetry struct {
	config
	tracer    trace.Tracer
	meter     metric.Meter
	waits     metric.Float64Histogram
	holds     metric.Float64Histogram
	losses    metric.Int64Counter
	failures  metric.Int64Counter
	slots     metric.Int64Counter
	permits   metric.Int64UpDownCounter
	connected atomic.Bool
	long      patterns.Waits
	runs      patterns.Runs
}

// New returns a Telemetry. It uses the global providers unless options set other providers. The error names the wrong option or the
// refused instrument.
func New(opts ...Option) (*Telemetry, error) {
	t := &Telemetry{config: config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}}
	for _, opt := range opts {
		opt.apply(&t.config)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	var failed []error
	t.tracer, t.meter = t.tracers.Tracer(scope), t.meters.Meter(scope)
	buckets := metric.WithExplicitBucketBoundaries(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 3600)
	var err error
	t.waits, err = t.meter.Float64Histogram("tierlock.wait.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Completed waits for a lock or permits, by source; failed waits by error.type."))
	failed = append(failed, err)
	t.holds, err = t.meter.Float64Histogram("tierlock.hold.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Released holds of locks, including lost ones, without reentrant acquisitions."))
	failed = append(failed, err)
	t.losses, err = t.meter.Int64Counter("tierlock.losses", metric.WithUnit("{hold}"),
		metric.WithDescription("Lost holds of locks, and losses of permits (one for each Acquire), "+
			"counted as soon as this process knows of the loss."))
	failed = append(failed, err)
	t.failures, err = t.meter.Int64Counter("tierlock.failures", metric.WithUnit("{acquisition}"),
		metric.WithDescription("Acquisitions that ended without the lock; calls of TryAcquire are not counted."))
	failed = append(failed, err)
	t.slots, err = t.meter.Int64Counter("tierlock.slots", metric.WithUnit("{slot}"), metric.WithDescription(
		"Slots of scheduled jobs by outcome: run by this process, skipped because another process runs the slot, "+
			"failed for another reason, or missed by all processes."))
	failed = append(failed, err)
	t.permits, err = t.meter.Int64UpDownCounter("tierlock.permits", metric.WithUnit("{permit}"),
		metric.WithDescription("Permits of semaphores that this process holds now."))
	return t, errors.Join(append(failed, err)...)
}

// Observer returns the observer to pass to [tier.WithObserver].
func (t *Telemetry) Observer() tier.Observer {
	return tier.Observer{
		Waiting:  func(_ context.Context, w tier.Wait) { t.long.Long(t.patterns.Of(w.Path), w.Waited) },
		Acquired: t.acquired, Failed: t.failed, Lost: t.lost, Released: t.released,
		Connection: func(c tier.ConnectionEvent) { t.connected.Store(c.State == tier.Connected) },
	}
}

// Slot counts a slot, a scheduled time of a job. Pass this method to the option OnSlot of the scheduler adapters.
func (t *Telemetry) Slot(path string, err error) {
	t.slots.Add(context.Background(), 1, metric.WithAttributes(t.pattern(path), outcomeOf(slot.Outcome(err))))
}

// SlotEvent counts the end of a slot, and missed slots. It also records which slots run. Pass this method to [slots.OnSlot].
func (t *Telemetry) SlotEvent(e slots.Event) {
	t.runs.Event(e)
	if outcome, n := slot.OutcomeOf(e); n > 0 {
		t.slots.Add(context.Background(), int64(n), metric.WithAttributes(t.pattern(e.Path), outcomeOf(outcome)))
	}
}

// Register adds metrics of the current state of a registry. The state is read at each collection of metrics, until you call Unregister on
// the returned registration. Call Unregister before you close the registry. A registration keeps the registry in memory.
func (t *Telemetry) Register(locks *tier.Registry) (metric.Registration, error) {
	held, err1 := t.meter.Int64ObservableGauge("tierlock.holds", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that this process holds now; a lock with several readers counts once."))
	waiting, err2 := t.meter.Int64ObservableGauge("tierlock.waiters", metric.WithUnit("{goroutine}"),
		metric.WithDescription("Goroutines of this process that wait for a lock now."))
	starved, err5 := t.meter.Int64ObservableGauge("tierlock.permit_waiters", metric.WithUnit("{goroutine}"),
		metric.WithDescription("Goroutines of this process that wait for permits now."))
	turns, err3 := t.meter.Int64ObservableCounter("tierlock.acquisitions", metric.WithUnit("{acquisition}"),
		metric.WithDescription("Acquired locks by source, without reentrant acquisitions."))
	up, err4 := t.meter.Int64ObservableGauge("tierlock.connected", metric.WithUnit("1"),
		metric.WithDescription("1 while this process has a connection to the store, else 0."))
	here, err6 := t.meter.Int64ObservableGauge("tierlock.held_locks", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks with this path pattern that this process holds now; for an election, 1 if this process leads."))
	oldestHold, err7 := t.meter.Float64ObservableGauge("tierlock.oldest_hold", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest present hold with this path pattern in this process; 0 if there is no hold."))
	oldestWait, err8 := t.meter.Float64ObservableGauge("tierlock.oldest_wait", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest present wait with this path pattern in this process; 0 if no wait has lasted for a second."))
	overdue, err14 := t.meter.Float64ObservableGauge("tierlock.slot_overdue", metric.WithUnit("s"),
		metric.WithDescription("Time for which the next slot has been due while the slot before it still runs in this process; "+
			"0 if no slot is late."))
	nothing, err9 := t.meter.Int64ObservableGauge("tierlock.grace_period", metric.WithUnit("1"),
		metric.WithDescription("1 during a grace period, in which the store grants no lock, else 0."))
	given, err10 := t.meter.Int64ObservableCounter("tierlock.give_ups", metric.WithUnit("{release}"),
		metric.WithDescription("Releases that gave a lock back to the store."))
	giving, err11 := t.meter.Float64ObservableCounter("tierlock.give_up.time", metric.WithUnit("s"),
		metric.WithDescription("Sum of the durations of releases that gave a lock back to the store; "+
			"divided by give_ups, the duration of a transfer."))
	groups, err12 := t.meter.Int64ObservableCounter("tierlock.groups", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that combined commands about several locks."))
	grouped, err13 := t.meter.Int64ObservableCounter("tierlock.grouped", metric.WithUnit("{command}"),
		metric.WithDescription("Commands about locks in requests that combined several of these commands."))
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12, err13, err14); err != nil {
		return nil, err
	}
	var first sync.Once
	return t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		first.Do(func() { t.zero(ctx) })
		s := locks.Stats()
		o.ObserveInt64(held, int64(s.Holds))
		o.ObserveInt64(waiting, int64(s.Waiters))
		o.ObserveInt64(starved, int64(s.PermitWaiters))
		for from, n := range map[tier.Source]int64{
			tier.Found: s.Found, tier.HandOver: s.HandOvers, tier.HandOff: s.HandOffs, tier.Resumption: s.Resumptions,
			tier.Join: s.Joins,
		} {
			o.ObserveInt64(turns, n, metric.WithAttributes(source(from)))
		}
		for path, h := range t.patterns.Held(locks) {
			of := metric.WithAttributes(label(path))
			o.ObserveInt64(here, int64(h.Number), of)
			o.ObserveFloat64(oldestHold, h.Oldest.Seconds(), of)
			o.ObserveFloat64(oldestWait, t.long.Oldest(path).Seconds(), of)
		}
		for path, late := range t.runs.Overdue(t.patterns) {
			o.ObserveFloat64(overdue, late.Seconds(), metric.WithAttributes(label(path)))
		}
		o.ObserveInt64(given, s.GiveUps)
		o.ObserveFloat64(giving, s.GiveUpTime.Seconds())
		o.ObserveInt64(groups, s.Groups)
		o.ObserveInt64(grouped, s.Grouped)
		o.ObserveInt64(nothing, patterns.InGracePeriod(locks))
		var connected int64
		if t.connected.Load() {
			connected = 1
		}
		o.ObserveInt64(up, connected)
		return nil
	}, held, waiting, starved, turns, up, here, oldestHold, oldestWait, overdue, nothing, given, giving, groups, grouped)
}

// The method zero sets the counters for alerts to 0 before their first event, because a counter that starts at 1 shows no increase. It is
// called when metrics are collected. A call at the start could be too early: the program may set the global provider later, and that
// provider then lacks the earlier counts.
func (t *Telemetry) zero(ctx context.Context) {
	for _, path := range t.patterns.All() {
		for _, cause := range second.LossCauses {
			t.losses.Add(ctx, 0, metric.WithAttributes(label(path), lossCause(tier.LossCause(cause))))
		}
		for _, outcome := range slot.Outcomes {
			t.slots.Add(ctx, 0, metric.WithAttributes(label(path), outcomeOf(outcome)))
		}
		for _, kind := range kinds {
			t.failures.Add(ctx, 0, metric.WithAttributes(label(path), errorType(kind)))
		}
	}
}

func (t *Telemetry) acquired(ctx context.Context, a tier.AcquiredEvent) {
	t.long.Over(t.patterns.Of(a.Path), a.At.Add(-a.Waited))
	if a.Permits != nil {
		t.permitsAcquired(ctx, a)
		return
	}
	path := a.Path
	t.waits.Record(ctx, a.Waited.Seconds(), metric.WithAttributes(t.pattern(path), source(a.From)))
	if a.From != tier.Resumption {
		span := t.begin(ctx, "tierlock wait", path, a.At.Add(-a.Waited), token(a.Hold), source(a.From))
		span.End(trace.WithTimestamp(a.At))
	}
}

func (t *Telemetry) failed(ctx context.Context, f tier.FailedEvent) {
	t.long.Over(t.patterns.Of(f.Path), f.At.Add(-f.Waited))
	attributes := metric.WithAttributes(t.pattern(f.Path), errorType(kind(f.Err)))
	t.waits.Record(ctx, f.Waited.Seconds(), attributes)
	t.failures.Add(ctx, 1, attributes)
	span := t.begin(ctx, "tierlock wait", f.Path, f.At.Add(-f.Waited))
	fail(span, f.Err, f.At)
	span.End(trace.WithTimestamp(f.At))
}

func (t *Telemetry) lost(ctx context.Context, l tier.LostEvent) {
	t.losses.Add(ctx, 1, metric.WithAttributes(t.pattern(l.Path), lossCause(l.Cause)))
}

func (t *Telemetry) released(ctx context.Context, r tier.ReleasedEvent) {
	if r.Permits != nil {
		t.permitsReleased(ctx, r)
		return
	}
	t.holds.Record(ctx, r.Held.Seconds(), metric.WithAttributes(t.pattern(r.Path)))
	t.held(ctx, r.Path, r.At, r.Held, r.Err, token(r.Hold))
}

// The method held creates the span of a hold, or of permits. The parameter at is the time of the release.
func (t *Telemetry) held(ctx context.Context, path string, at time.Time, held time.Duration, err error, attributes ...attribute.KeyValue) {
	span := t.begin(ctx, "tierlock hold", path, at.Add(-held), attributes...)
	if err != nil {
		fail(span, err, at)
	}
	span.End(trace.WithTimestamp(at))
}

func (t *Telemetry) begin(ctx context.Context, name, path string, at time.Time, attributes ...attribute.KeyValue) trace.Span {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(at),
		trace.WithAttributes(append(attributes, attribute.String("tierlock.path", path))...))
	return span
}

func fail(span trace.Span, err error, at time.Time) {
	span.RecordError(err, trace.WithTimestamp(at))
	span.SetStatus(codes.Error, kind(err)) // the full text of the error is in the recorded event
}

func token(h interface{ Token() int64 }) attribute.KeyValue {
	return attribute.Int64("tierlock.token", h.Token())
}

func source(s tier.Source) attribute.KeyValue {
	return attribute.String("tierlock.source", string(s))
}

func lossCause(c tier.LossCause) attribute.KeyValue {
	return attribute.String("tierlock.cause", string(c))
}

func outcomeOf(slot string) attribute.KeyValue { return attribute.String("tierlock.outcome", slot) }

func errorType(kind string) attribute.KeyValue { return attribute.String("error.type", kind) }

// These are the possible results of the function kind.
const (
	timedOut = "timeout"
	canceled = "canceled"
	closed   = "closed"
	lost     = "lost"
	other    = "other"
)

var kinds = [...]string{timedOut, canceled, closed, lost, other}

// The function kind returns why a wait or a hold failed, as one word for an attribute.
func kind(err error) string {
	switch {
	case errors.Is(err, tier.ErrWaitLimit), errors.Is(err, context.DeadlineExceeded):
		return timedOut
	case errors.Is(err, context.Canceled):
		return canceled
	case errors.Is(err, tier.ErrClosed):
		return closed
	case errors.Is(err, tier.ErrLost):
		return lost
	}
	return other
}
