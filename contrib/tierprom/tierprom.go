// Package tierprom has Prometheus metrics of the locks of a process.
//
//	metrics, err := tierprom.New(tierprom.WithPaths("/jobs/*", "/customers/*"))
//	…
//	locks, err := zklock.Dial(ctx, "zk1:2181", tier.WithObserver(metrics.Observer()))
//	…
//	metrics.Follow(locks)
//	prometheus.MustRegister(metrics)
//
// Locks are grouped by patterns that the program gives, as there may be any number of paths: each
// pattern is one value of the label "path". What fits none is "other".
//
// The metrics, where _seconds are histograms:
//
//	tierlock_wait_seconds{path,from}    waits; from is a tier.Source: found (nobody was there), hand-over (from another process),
//	                                    hand-off (from another goroutine here), resumption (it lingered here), join (others here
//	                                    read, too); or permits (of a semaphore); or failed
//	tierlock_hold_seconds{path}         holds that are over
//	tierlock_long_waits_total{path}     waits that took longer than a second
//	tierlock_permits{path}              permits of semaphores that are held
//	tierlock_losses_total{path,cause}   holds, and permits of one call, that were lost; cause is lease, session, deletion, close or other
//	tierlock_held_locks{path}           locks that are held now: 1 for the path of an election if this process leads
//	tierlock_oldest_hold_seconds{path}  of the holds of locks that go on, the age of the oldest
//	tierlock_oldest_wait_seconds{path}  of the waits that go on and have taken longer than a second, likewise
//	tierlock_slots_total{path,outcome}  slots of the adapters' jobs; outcome is run, skipped (another process has the lock) or failed
//	tierlock_connected                  1 while there is a connection and a session; absent where that is not known
//	tierlock_grace_period                1 while the store grants no lock to anybody
//	tierlock_sessions_expired_total
//	tierlock_holds, _lingering, _waiters, _permit_waiters
//	tierlock_give_up_seconds            the time of a transfer: from a release that gives a lock back to the store until its answer; a
//	                                    summary without quantiles. With 19 times as much, WithHandOff keeps a lock in use for 95 %
//	tierlock_groups_total               requests to the store that had commands about several locks, as on ZooKeeper
//	tierlock_grouped_commands_total     commands in these
//	tierlock_held_seconds_total, tierlock_waited_seconds_total
//	                                    sums that go on while a hold or a wait does
//
// docs/alerts.yaml has rules for them, docs/grafana.json a dashboard.
//
// Losses of each cause, slots, long waits and waits in vain are there from the beginning, at 0 for each pattern, so that increase sees the
// first one. What happens before Prometheus has come for the first time it does not see.
//
// Which locks are waited for the longest:
//
//	topk(3, sum by (path) (rate(tierlock_wait_seconds_sum[5m])))
package tierprom

import (
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlock/tierlock/contrib/internal/patterns"
	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// Metrics are those of one registry: a [prometheus.Collector].
type Metrics struct {
	patterns patterns.Patterns
	locks    atomic.Pointer[tier.Registry] // nil before Follow

	waits patterns.Waits

	wait, hold             *prometheus.HistogramVec
	long, losses, slots    *prometheus.CounterVec
	permits                *prometheus.GaugeVec
	connected              *prometheus.GaugeVec // without a label: it is not there before it is known
	expired                prometheus.Counter
	holds, kept, waiting   *prometheus.Desc
	permitWaiting          *prometheus.Desc
	held, waited, giveUp   *prometheus.Desc
	groups, grouped        *prometheus.Desc
	heldNow, inGracePeriod *prometheus.Desc
	oldestHold             *prometheus.Desc
	oldestWait             *prometheus.Desc
}

// buckets are for waits and holds from a tenth of a millisecond, a hand-off, to minutes.
var buckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// An Option is for [New].
type Option interface{ apply(*Metrics) }

type option func(*Metrics)

func (o option) apply(to *Metrics) { o(to) }

// WithPaths sets the patterns, as [path.Match] takes them, by which metrics tell locks apart; the
// first that matches counts. All others are told as "other".
func WithPaths(paths ...string) Option {
	return option(func(m *Metrics) { m.patterns = paths })
}

// New returns metrics of no lock yet. The error says which option is refused.
func New(opts ...Option) (*Metrics, error) {
	m := new(Metrics)
	for _, opt := range opts {
		opt.apply(m)
	}
	if err := m.patterns.Check(); err != nil {
		return nil, fmt.Errorf("tierprom: %w", err)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.wait = histogram("tierlock_wait_seconds",
		"Waits for a lock or permits that are over, by where it came from; failed counts those in vain. A lock that was free waits, too.",
		"path", "from")
	m.hold = histogram("tierlock_hold_seconds", "Holds of a lock that were released, lost ones included. Entering again is no hold.", "path")
	m.long = counter("tierlock_long_waits_total", "Waits that took longer than a second, counted when they do.", "path")
	m.losses = counter("tierlock_losses_total",
		"Holds of locks, and permits of one call, that were lost while they were held, counted once each, "+
			"as soon as that is known.", "path", "cause")
	m.slots = counter("tierlock_slots_total",
		"Slots of jobs of the adapters: run here, skipped as another process has the lock or leads, or failed to get the lock otherwise.",
		"path", "outcome")
	m.permits = gauge("tierlock_permits", "Permits of semaphores that this process holds now.", "path")
	m.connected = gauge("tierlock_connected", "1 while this process has a connection and a session, else 0.")
	m.expired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tierlock_sessions_expired_total", Help: "Sessions of this process that the store has ended, and with them all that was held.",
	})
	m.holds = desc("tierlock_holds", "Locks that this process holds now; one that several read counts once.")
	m.kept = desc("tierlock_lingering", "Idle locks that this process keeps (WithLinger).")
	m.waiting = desc("tierlock_waiters", "Goroutines of this process that wait for a lock now.")
	m.permitWaiting = desc("tierlock_permit_waiters", "Goroutines of this process that wait for permits of a semaphore now.")
	m.held = desc("tierlock_held_seconds_total", "Time for which locks were held, those included that still are; however many read at a time.")
	m.waited = desc("tierlock_waited_seconds_total", "Time of all waits of all goroutines for a lock, those included that go on.")
	m.giveUp = desc("tierlock_give_up_seconds",
		"The time of a transfer: from a release that gives a lock back to the store until its answer.")
	m.groups = desc("tierlock_groups_total", "Requests to the store that had commands about several locks.")
	m.grouped = desc("tierlock_grouped_commands_total", "Commands in requests to the store that had several.")
	m.heldNow = desc("tierlock_held_locks", "Locks of these paths that this process holds now; for an election, whether it leads.", "path")
	m.oldestHold = desc("tierlock_oldest_hold_seconds",
		"For how long this process has had the lock of these paths that it has had for longest; 0 if it has none. Not of permits.", "path")
	m.oldestWait = desc("tierlock_oldest_wait_seconds",
		"How long the longest wait for a lock or permits that goes on in this process has lasted; 0 if none has lasted for a second.", "path")
	m.inGracePeriod = desc("tierlock_grace_period", "1 while the store grants no lock to anybody, as it is new or took over, else 0.")
	m.begin()
	return m, nil
}

// begin has the series that alerts are about begin at 0: one that begins at 1 shows no increase.
func (m *Metrics) begin() {
	for _, path := range m.patterns.All() {
		m.long.WithLabelValues(path)
		m.wait.WithLabelValues(path, failed)
		for _, outcome := range slot.Outcomes {
			m.slots.WithLabelValues(path, outcome)
		}
		for _, cause := range second.LossCauses {
			m.losses.WithLabelValues(path, string(cause))
		}
	}
}

// Slot counts a slot of a job, for the option OnSlot of the adapters.
func (m *Metrics) Slot(path string, err error) {
	m.slots.WithLabelValues(m.patterns.Of(path), slot.Outcome(err)).Inc()
}

// Follow shows the figures of locks, the registry that was given m.Observer(). Call it once; until then
// only what the observer was told is there.
func (m *Metrics) Follow(locks *tier.Registry) { m.locks.Store(locks) }

func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.wait, m.hold, m.long, m.losses, m.slots, m.permits, m.connected, m.expired}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(c chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(c)
	}
	for _, d := range []*prometheus.Desc{
		m.holds, m.kept, m.waiting, m.permitWaiting, m.held, m.waited, m.giveUp, m.groups, m.grouped, m.heldNow,
		m.oldestHold, m.oldestWait, m.inGracePeriod,
	} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(c chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(c)
	}
	locks := m.locks.Load()
	if locks == nil {
		return
	}
	s := locks.Stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.holds, float64(s.Holds))
	gauge(m.kept, float64(s.Lingering))
	gauge(m.waiting, float64(s.Waiters))
	gauge(m.permitWaiting, float64(s.PermitWaiters))
	counter := func(d *prometheus.Desc, v float64) { c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v) }
	counter(m.held, s.HoldTime.Seconds())
	counter(m.waited, s.WaitTime.Seconds())
	counter(m.groups, float64(s.Groups))
	counter(m.grouped, float64(s.Grouped))
	c <- prometheus.MustNewConstSummary(m.giveUp, uint64(s.GiveUps), s.GiveUpTime.Seconds(), nil)
	for path, h := range m.patterns.Held(locks) {
		gauge(m.heldNow, float64(h.Number), path)
		gauge(m.oldestHold, h.Oldest.Seconds(), path)
		gauge(m.oldestWait, m.waits.Oldest(path).Seconds(), path)
	}
	gauge(m.inGracePeriod, float64(patterns.InGracePeriod(locks)))
}
