package tierotel_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/tierotel"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a ZooKeeper with two processes; the first one is measured.
type bench struct {
	*testing.T
	server        *zktest.Server
	telemetry     *tierotel.Telemetry
	locks, others *tier.Registry
	spans         *tracetest.InMemoryExporter
	tracers       *trace.TracerProvider
	reader        *metric.ManualReader
}

func bubble(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: zktest.Start(t), spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
		b.tracers = trace.NewTracerProvider(trace.WithSyncer(b.spans))
		b.telemetry = need.Get(tierotel.New(tierotel.WithPaths("/jobs/*"),
			tierotel.WithTracerProvider(b.tracers), tierotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(b.reader)))))(t)
		b.locks, b.others = locktest.Dial(t, b.server, tier.WithObserver(b.telemetry.Observer())), locktest.Dial(t, b.server)
		registration := need.Get(b.telemetry.Register(b.locks))(t)
		defer registration.Unregister()
		test(b)
	})
}

func (b *bench) acquire(ctx context.Context, mu *tier.Mutex) *tier.Hold {
	b.Helper()
	return need.Get(mu.Acquire(ctx))(b)
}

// ended returns the ended spans with the given name.
func (b *bench) ended(name string) (spans tracetest.SpanStubs) {
	for _, s := range b.spans.GetSpans() {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// metrics returns all metrics, with one line for each set of attributes.
func (b *bench) metrics() string {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(context.Background(), &all); err != nil { // the collection belongs to no request
		b.Fatal(err)
	}
	var lines []string
	add := func(name string, set attribute.Set, value any) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %v %s", name, value, set.Encoded(attribute.DefaultEncoder()))))
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, fmt.Sprintf("%d×, %vs", p.Count, p.Sum))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, p.Value)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (b *bench) wantMetrics(lines ...string) {
	b.Helper()
	got := b.metrics()
	for _, line := range lines {
		need.That(b, "no "+line+" in\n"+got, slices.Contains(strings.Split(got, "\n"), line))
	}
}

func (b *bench) wantAttributes(s tracetest.SpanStub, all ...attribute.KeyValue) {
	b.Helper()
	for _, want := range all {
		need.That(b, fmt.Sprintf("%s has %v, want %v among them", s.Name, s.Attributes, want), slices.Contains(s.Attributes, want))
	}
}

func TestWaitAndHoldAreSpansOfTheCaller(t *testing.T) {
	bubble(t, func(b *bench) {
		ctx, caller := b.tracers.Tracer("test").Start(b.Context(), "request")
		taken := b.acquire(b.Context(), b.others.Mutex("/jobs/a"))
		time.AfterFunc(3*time.Second, func() { taken.Release() })
		began := time.Now()
		hold := b.acquire(ctx, b.locks.Mutex("/jobs/a"))
		acquired := time.Now()
		time.Sleep(5 * time.Second)
		need.WantErr(b, "Release", hold.Release(), nil)
		waits, holds := b.ended("tierlock wait"), b.ended("tierlock hold")
		need.Must(b, fmt.Sprintf("%d waits and %d holds, want one each", len(waits), len(holds)), len(waits) == 1 && len(holds) == 1)
		for _, s := range []tracetest.SpanStub{waits[0], holds[0]} {
			need.That(b, fmt.Sprintf("%s is no child of the caller's span", s.Name),
				s.Parent.SpanID() == caller.SpanContext().SpanID() && s.SpanContext.TraceID() == caller.SpanContext().TraceID())
			b.wantAttributes(s, attribute.String("tierlock.path", "/jobs/a"), attribute.Int64("tierlock.token", hold.Token()))
		}
		if !waits[0].StartTime.Equal(began) || !waits[0].EndTime.Equal(acquired) {
			b.Errorf("the wait's span is from %v to %v, want %v to %v", waits[0].StartTime, waits[0].EndTime, began, acquired)
		}
		if !holds[0].StartTime.Equal(acquired) || holds[0].EndTime.Sub(acquired) != 5*time.Second {
			b.Errorf("the hold's span is from %v to %v, want %v and 5s", holds[0].StartTime, holds[0].EndTime, acquired)
		}
		caller.End()
	})
}

func TestWaitInVainIsASpanWithTheError(t *testing.T) {
	bubble(t, func(b *bench) {
		taken := b.acquire(b.Context(), b.others.Mutex("/jobs/a"))
		defer taken.Release()
		need.WantErr(b, "Acquire", need.ErrOf(b.locks.Mutex("/jobs/a").Acquire(need.Within(b, 2*time.Second))), context.DeadlineExceeded)
		waits := b.ended("tierlock wait")
		need.That(b, fmt.Sprintf("got %+v, want one of 2s with an error", waits),
			len(waits) == 1 && waits[0].Status.Code == codes.Error && waits[0].EndTime.Sub(waits[0].StartTime) == 2*time.Second)
		b.wantMetrics("tierlock.wait.duration 1×, 2s error.type=timeout,tierlock.path=/jobs/*",
			"tierlock.failures 1 error.type=timeout,tierlock.path=/jobs/*")
	})
}

func TestLossIsCountedAtOnceAndMarksTheHold(t *testing.T) {
	bubble(t, func(b *bench) {
		hold := b.acquire(b.Context(), b.locks.Mutex("/customers/7"))
		b.wantMetrics("tierlock.connected 1", "tierlock.holds 1")
		b.server.Freeze()
		<-hold.Lost()
		synctest.Wait()
		b.wantMetrics("tierlock.losses 1 tierlock.cause="+string(tier.LossOfLease)+",tierlock.path=other", "tierlock.connected 0")
		b.server.Unfreeze()
		need.WantErr(b, "Release", hold.Release(), tier.ErrLost)
		holds := b.ended("tierlock hold")
		need.That(b, fmt.Sprintf("got %+v, want one with an error", holds), len(holds) == 1 && holds[0].Status.Code == codes.Error)
	})
}

// zeros returns the metrics that exist before any event.
func zeros() (lines []string) {
	for _, path := range []string{"/jobs/*", "other"} {
		for _, cause := range []tier.LossCause{tier.LossOfLease, tier.LossOfSession, tier.LossByDeletion, tier.LossByClose, tier.LossOtherwise} {
			lines = append(lines, fmt.Sprintf("tierlock.losses 0 tierlock.cause=%s,tierlock.path=%s", cause, path))
		}
		for _, outcome := range []string{"run", "skipped", "failed", "missed"} {
			lines = append(lines, fmt.Sprintf("tierlock.slots 0 tierlock.outcome=%s,tierlock.path=%s", outcome, path))
		}
		for _, kind := range []string{"timeout", "canceled", "closed", "lost", "other"} {
			lines = append(lines, fmt.Sprintf("tierlock.failures 0 error.type=%s,tierlock.path=%s", kind, path))
		}
	}
	return lines
}

// Counters for alerts have to exist with the value 0 before the first event. A counter that starts at 1 shows no increase.
func TestLossesAndFailuresBeginAtZero(t *testing.T) {
	bubble(t, func(b *bench) {
		b.wantMetrics(zeros()...)
		b.wantMetrics(zeros()...) // the values stay 0
	})
}

// A program may set the global provider after it has created the locks. The counters then start at 0 with that provider.
func TestLossesAndFailuresBeginAtZeroWithALateProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: zktest.Start(t), reader: metric.NewManualReader()}
		telemetry := need.Get(tierotel.New(tierotel.WithPaths("/jobs/*")))(t)
		registration := need.Get(telemetry.Register(locktest.Dial(t, b.server, tier.WithObserver(telemetry.Observer()))))(t)
		defer registration.Unregister()
		otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(b.reader)))
		b.wantMetrics(zeros()...)
	})
}

func TestMetricsTellWhatARegistryDoes(t *testing.T) {
	bubble(t, func(b *bench) {
		mu := b.locks.Mutex("/jobs/a")
		first := b.acquire(b.Context(), mu)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.acquire(b.Context(), mu).Release()
		}()
		time.Sleep(time.Second)
		synctest.Wait() // after this, the wait has been reported as a long one
		b.wantMetrics("tierlock.holds 1", "tierlock.waiters 1", "tierlock.connected 1", "tierlock.grace_period 0",
			"tierlock.held_locks 1 tierlock.path=/jobs/*", "tierlock.held_locks 0 tierlock.path=other",
			"tierlock.oldest_hold 1 tierlock.path=/jobs/*", "tierlock.oldest_wait 1 tierlock.path=/jobs/*")
		first.Release()
		<-done
		b.acquire(b.Context(), b.locks.Mutex("/customers/7")).Release()
		b.telemetry.Slot("/jobs/a", nil)
		b.telemetry.Slot("/jobs/a", tier.ErrLocked)
		b.telemetry.SlotEvent(slots.Event{Kind: slots.Failed, Path: "/jobs/b"})
		b.telemetry.SlotEvent(slots.Event{Kind: slots.Skipped, Path: "/jobs/b", Count: 2})
		b.telemetry.SlotEvent(slots.Event{Kind: slots.Retried, Path: "/jobs/b"})
		b.telemetry.SlotEvent(slots.Event{Kind: slots.Started, Path: "/jobs/b", Next: time.Now().Add(-3 * time.Second)})
		b.wantMetrics("tierlock.holds 0", "tierlock.waiters 0", "tierlock.give_ups 2", "tierlock.give_up.time 0",
			"tierlock.groups 0", "tierlock.grouped 0",
			"tierlock.slots 1 tierlock.outcome=run,tierlock.path=/jobs/*", "tierlock.slots 1 tierlock.outcome=skipped,tierlock.path=/jobs/*",
			"tierlock.slots 1 tierlock.outcome=failed,tierlock.path=/jobs/*", "tierlock.slots 2 tierlock.outcome=missed,tierlock.path=/jobs/*",
			"tierlock.oldest_hold 0 tierlock.path=/jobs/*", "tierlock.oldest_wait 0 tierlock.path=/jobs/*",
			"tierlock.slot_overdue 3 tierlock.path=/jobs/*", "tierlock.slot_overdue 0 tierlock.path=other",
			"tierlock.acquisitions 2 tierlock.source=found", "tierlock.acquisitions 1 tierlock.source=hand-off",
			"tierlock.wait.duration 1×, 1s tierlock.path=/jobs/*,tierlock.source=hand-off",
			"tierlock.wait.duration 1×, 0s tierlock.path=/jobs/*,tierlock.source=found",
			"tierlock.wait.duration 1×, 0s tierlock.path=other,tierlock.source=found",
			"tierlock.hold.duration 2×, 1s tierlock.path=/jobs/*",
			"tierlock.hold.duration 1×, 0s tierlock.path=other")
		b.acquire(b.Context(), b.locks.Mutex("/customers/8", tier.WithLinger(time.Minute))).Release()
		time.Sleep(time.Second)
		b.wantMetrics("tierlock.held_locks 0 tierlock.path=other", "tierlock.oldest_hold 0 tierlock.path=other") // the lock lingers
		documentation := string(need.Get(os.ReadFile("otel.go"))(b))
		for line := range strings.Lines(b.metrics()) {
			name := strings.Fields(line)[0]
			need.That(b, "the documentation does not have "+name, strings.Contains(documentation, "\n//\t"+name+" "))
		}
	})
}

func TestPermitsAreMeasured(t *testing.T) {
	bubble(t, func(b *bench) {
		theirs := need.Get(b.others.Semaphore("/jobs/a", 3).Acquire(b.Context(), 2))(b)
		time.AfterFunc(3*time.Second, func() { theirs.Release() })
		s := b.locks.Semaphore("/jobs/a", 3)
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(time.Second)
			b.wantMetrics("tierlock.permit_waiters 1", "tierlock.waiters 0")
		}()
		two := need.Get(s.Acquire(b.Context(), 2))(b)
		<-done
		b.wantMetrics("tierlock.permits 2 tierlock.path=/jobs/*", "tierlock.permit_waiters 0", "tierlock.holds 0",
			"tierlock.wait.duration 1×, 3s tierlock.path=/jobs/*,tierlock.source=permits")
		need.That(b, "got four permits of three", need.ErrOf(s.Acquire(need.Within(b, time.Second), 2)) != nil)
		b.wantMetrics("tierlock.wait.duration 1×, 1s error.type=timeout,tierlock.path=/jobs/*",
			"tierlock.oldest_wait 0 tierlock.path=/jobs/*")
		b.server.Freeze()
		<-two.Lost()
		synctest.Wait()
		b.wantMetrics("tierlock.losses 1 tierlock.cause=" + string(tier.LossOfLease) + ",tierlock.path=/jobs/*")
		b.server.Unfreeze()
		need.WantErr(b, "Release", two.Release(), tier.ErrLost)
		b.wantMetrics("tierlock.permits 0 tierlock.path=/jobs/*")
		waits, holds := b.ended("tierlock wait"), b.ended("tierlock hold")
		if len(waits) != 2 || waits[0].EndTime.Sub(waits[0].StartTime) != 3*time.Second || len(holds) != 1 ||
			holds[0].Status.Code != codes.Error {
			b.Fatalf("waits %+v, holds %+v; want a wait of 3 s, one in vain, and a hold that was lost", waits, holds)
		}
		for _, s := range []tracetest.SpanStub{waits[0], holds[0]} {
			b.wantAttributes(s, attribute.String("tierlock.path", "/jobs/a"), attribute.Int64("tierlock.token", two.Token()),
				attribute.Int("tierlock.permits", 2))
		}
	})
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for name, opt := range map[string]tierotel.Option{
		"malformed": tierotel.WithPaths("/jobs/["), "no tracers": tierotel.WithTracerProvider(nil), "no meters": tierotel.WithMeterProvider(nil),
	} {
		need.That(t, name+": no error", need.ErrOf(tierotel.New(opt)) != nil)
	}
}
