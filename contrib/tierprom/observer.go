package tierprom

import (
	"context"

	"github.com/tierlock/tierlock/tier"
)

// The constant failed is the label of the source for acquisitions that failed.
const failed = "failed"

// The constant permits is the label of the source for permits of a semaphore.
const permits = "permits"

// Observer returns the observer to pass to [tier.WithObserver]. A successful TryAcquire counts as a wait. A failed TryAcquire is not
// counted.
func (m *Metrics) Observer() tier.Observer {
	return tier.Observer{
		Waiting: func(_ context.Context, w tier.Wait) {
			path := m.patterns.Of(w.Path)
			m.long.WithLabelValues(path).Inc()
			m.waits.Long(path, w.Waited)
		},
		Acquired: func(_ context.Context, a tier.AcquiredEvent) {
			path, from := m.patterns.Of(a.Path), string(a.From)
			m.waits.Over(path, a.At.Add(-a.Waited))
			if a.Permits != nil {
				from = permits
				m.permits.WithLabelValues(path).Add(float64(a.Permits.Count()))
			}
			m.wait.WithLabelValues(path, from).Observe(a.Waited.Seconds())
		},
		Failed: func(_ context.Context, f tier.FailedEvent) {
			path := m.patterns.Of(f.Path)
			m.waits.Over(path, f.At.Add(-f.Waited))
			m.wait.WithLabelValues(path, failed).Observe(f.Waited.Seconds())
		},
		Lost: func(_ context.Context, l tier.LostEvent) {
			m.losses.WithLabelValues(m.patterns.Of(l.Path), string(l.Cause)).Inc()
		},
		Released: func(_ context.Context, r tier.ReleasedEvent) {
			path := m.patterns.Of(r.Path)
			if r.Permits != nil {
				m.permits.WithLabelValues(path).Sub(float64(r.Permits.Count()))
			} else {
				m.hold.WithLabelValues(path).Observe(r.Held.Seconds())
			}
		},
		Connection: m.follow,
	}
}

func (m *Metrics) follow(c tier.ConnectionEvent) {
	connected := 0.0
	switch c.State {
	case tier.Connected:
		connected = 1
	case tier.Expired:
		m.expired.Inc()
	}
	m.connected.WithLabelValues().Set(connected)
}
