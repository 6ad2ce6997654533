// Package tierprom exports Prometheus metrics about the locks of a process.
//
//	metrics, err := tierprom.New(tierprom.WithPaths("/jobs/*", "/customers/*"))
//	…
//	locks, err := zklock.Dial(ctx, "zk1:2181", tier.WithObserver(metrics.Observer()))
//	…
//	metrics.Follow(locks)
//	prometheus.MustRegister(metrics)
//
// The label "path" is one of the patterns of [WithPaths], or "other" for paths without a match. The number of series therefore does not
// grow with the number of locks.
//
// These are the metrics. Metrics whose names end in _seconds are histograms.
//
//	tierlock_wait_seconds{path,from}    completed waits; from is found (uncontended), hand-over (from another process), hand-off (from
//	                                    another goroutine of this process), resumption (this process kept the idle lock), join (with other
//	                                    readers), permits (of a semaphore), or failed
//	tierlock_hold_seconds{path}         completed holds
//	tierlock_long_waits_total{path}     waits that took longer than a second
//	tierlock_permits{path}              permits of semaphores that are held
//	tierlock_losses_total{path,cause}   lost holds, and permits of one call; cause is lease, session, deletion, close or other
//	tierlock_held_locks{path}           locks held now: 1 for the path of an election if this process leads
//	tierlock_oldest_hold_seconds{path}  age of the oldest current hold
//	tierlock_oldest_wait_seconds{path}  age of the oldest current wait of more than a second
//	tierlock_slots_total{path,outcome}  slots of jobs; outcome is run, skipped (another process runs the slot), failed or missed (no
//	                                    process runs the slot, or its process died)
//	tierlock_slot_overdue_seconds{path} how long the next slot has been due while a slot still runs, by SlotEvent
//	tierlock_connected                  1 while there is a connection and a session; absent with package dropin
//	tierlock_grace_period               1 during a grace period of the store
//	tierlock_sessions_expired_total
//	tierlock_holds, _lingering, _waiters, _permit_waiters
//	tierlock_give_up_seconds            duration of a release to the store, which is the time of a transfer; a summary without
//	                                    quantiles. A WithHandOff of 19 times this keeps a lock in use for 95 % of the time
//	tierlock_groups_total               requests that combined commands about several locks (ZooKeeper)
//	tierlock_grouped_commands_total     commands in these requests
//	tierlock_held_seconds_total, tierlock_waited_seconds_total
//	                                    sums, including current holds and waits
//
// docs/alerts.yaml has alert rules for these metrics, and docs/grafana.json has a dashboard.
//
// The counters of losses, slots, long waits and failed waits are exported as 0 from the start, so that increase() includes the first
// event. Events before the first scrape are not included.
//
// This query returns the three patterns with the longest waits:
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
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// Metrics is a [prometheus.Collector] for one registry.
type Metrics struct {
	patterns patterns.Patterns
	locks    atomic.Pointer[tier.Registry] // nil before Follow

	waits patterns.Waits
	runs  patterns.Runs

	wait, hold             *prometheus.HistogramVec
	long, losses, slots    *prometheus.CounterVec
	permits                *prometheus.GaugeVec
	connected              *prometheus.GaugeVec // a vector without labels, because it has no value until the state is known
	expired                prometheus.Counter
	holds, kept, waiting   *prometheus.Desc
	permitWaiting          *prometheus.Desc
	held, waited, giveUp   *prometheus.Desc
	groups, grouped        *prometheus.Desc
	heldNow, inGracePeriod *prometheus.Desc
	oldestHold             *prometheus.Desc
	oldestWait             *prometheus.Desc
	overdue                *prometheus.Desc
}

// The variable buckets has the bounds of the histograms of waits and holds. They reach from a tenth of a millisecond, which is the duration
// of a hand-off, to minutes.
var buckets = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// An Option is an option of [New].
type Option interface{ apply(*Metrics) }

type option func(*Metrics)

func (o option) apply(to *Metrics) { o(to) }

// WithPaths sets the patterns, in the syntax of [path.Match], that group locks in metrics. The first pattern that matches a path applies.
// Paths without a match are grouped as "other".
func WithPaths(paths ...string) Option {
	return option(func(m *Metrics) { m.patterns = paths })
}

// New returns metrics without a registry; see [Metrics.Follow]. If an option is wrong, the error names it.
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
		"Completed waits for a lock or permits, by source; the source failed counts waits that ended without the lock. "+
			"Uncontended acquisitions are included.",
		"path", "from")
	m.hold = histogram("tierlock_hold_seconds", "Released holds of locks, including lost ones, without reentrant acquisitions.", "path")
	m.long = counter("tierlock_long_waits_total", "Waits of more than a second, counted when they have lasted for a second.", "path")
	m.losses = counter("tierlock_losses_total",
		"Lost holds of locks, and losses of permits (one for each Acquire), counted as soon as this process knows of the loss.", "path", "cause")
	m.slots = counter("tierlock_slots_total",
		"Slots of scheduled jobs by outcome: run by this process, skipped because another process runs the slot, "+
			"failed for another reason, or missed by all processes.",
		"path", "outcome")
	m.permits = gauge("tierlock_permits", "Permits of semaphores that this process holds now.", "path")
	m.connected = gauge("tierlock_connected", "1 while this process has a connection and a session, else 0.")
	m.expired = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tierlock_sessions_expired_total", Help: "Sessions of this process that the store has ended; " +
			"with each session, the process lost all its locks.",
	})
	m.holds = desc("tierlock_holds", "Locks that this process holds now; a lock with several readers counts once.")
	m.kept = desc("tierlock_lingering", "Idle locks that this process keeps (WithLinger).")
	m.waiting = desc("tierlock_waiters", "Goroutines of this process that wait for a lock now.")
	m.permitWaiting = desc("tierlock_permit_waiters", "Goroutines of this process that wait for permits of a semaphore now.")
	m.held = desc("tierlock_held_seconds_total", "Time for which locks were held, including present holds; overlapping readers count once.")
	m.waited = desc("tierlock_waited_seconds_total", "Time of all waits for locks, including present waits.")
	m.giveUp = desc("tierlock_give_up_seconds",
		"Duration of a transfer: from a release that gives a lock back to the store until the store answers.")
	m.groups = desc("tierlock_groups_total", "Requests that combined commands about several locks.")
	m.grouped = desc("tierlock_grouped_commands_total", "Commands about locks in requests that combined several of these commands.")
	m.heldNow = desc("tierlock_held_locks", "Locks with this path pattern that this process holds now; "+
		"for an election, 1 if this process leads.", "path")
	m.oldestHold = desc("tierlock_oldest_hold_seconds",
		"Age of the oldest present hold with this path pattern in this process; 0 if there is no hold. Permits are not counted.", "path")
	m.oldestWait = desc("tierlock_oldest_wait_seconds",
		"Age of the oldest present wait with this path pattern in this process, for a lock or permits; "+
			"0 if no wait has lasted for a second.", "path")
	m.overdue = desc("tierlock_slot_overdue_seconds",
		"Time for which the next slot has been due while the slot before it still runs in this process; 0 if no slot is late.", "path")
	m.inGracePeriod = desc("tierlock_grace_period", "1 during a grace period, in which a restarted or promoted store grants no lock, else 0.")
	m.begin()
	return m, nil
}

// begin exports the series for alerts as 0 before their first event, because a series that starts at 1 shows no increase.
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

// Slot counts a slot, a scheduled time of a job. Pass this method to the option OnSlot of the scheduler adapters.
func (m *Metrics) Slot(path string, err error) {
	m.slots.WithLabelValues(m.patterns.Of(path), slot.Outcome(err)).Inc()
}

// SlotEvent counts the end of a slot, and missed slots. It also records which slots run. Pass this method to [slots.OnSlot].
func (m *Metrics) SlotEvent(e slots.Event) {
	m.runs.Event(e)
	if outcome, n := slot.OutcomeOf(e); n > 0 {
		m.slots.WithLabelValues(m.patterns.Of(e.Path), outcome).Add(float64(n))
	}
}

// Follow adds metrics of the current state of a registry. The registry must have been created with m.Observer(). Call Follow once. Without
// Follow, only the metrics of the observer are exported.
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
		m.oldestHold, m.oldestWait, m.overdue, m.inGracePeriod,
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
	for path, late := range m.runs.Overdue(m.patterns) {
		gauge(m.overdue, late.Seconds(), path)
	}
	gauge(m.inGracePeriod, float64(patterns.InGracePeriod(locks)))
}
