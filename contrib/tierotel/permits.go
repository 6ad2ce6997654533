package tierotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tierlock/tierlock/tier"
)

// fromPermits is the value of the attribute source for permits.
const fromPermits tier.Source = "permits"

func (t *Telemetry) permitsAcquired(ctx context.Context, a tier.AcquiredEvent) {
	path, number := a.Path, a.Permits.Count()
	t.waits.Record(ctx, a.Waited.Seconds(), metric.WithAttributes(t.pattern(path), source(fromPermits)))
	t.permits.Add(ctx, int64(number), metric.WithAttributes(t.pattern(path)))
	span := t.begin(ctx, "tierlock wait", path, a.At.Add(-a.Waited), token(a.Permits), count(a.Permits), source(fromPermits))
	span.End(trace.WithTimestamp(a.At))
}

func (t *Telemetry) permitsReleased(ctx context.Context, r tier.ReleasedEvent) {
	path := r.Path
	t.permits.Add(ctx, -int64(r.Permits.Count()), metric.WithAttributes(t.pattern(path)))
	t.held(ctx, path, r.At, r.Held, r.Err, token(r.Permits), count(r.Permits))
}

func count(p *tier.Permits) attribute.KeyValue { return attribute.Int("tierlock.permits", p.Count()) }
