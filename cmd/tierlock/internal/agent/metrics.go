package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tierlock/tierlock/contrib/tierprom"
)

// A reason is why a hold has ended.
type reason int

const (
	released   reason = iota // by the client, which declares that its writes were answered
	unsettled                // by the client, whose last write may still be under way
	hungUp                   // the connection has ended or was used, and the process lives, or cannot be seen
	died                     // the process has ended
	notRenewed               // the client has not renewed the hold for the lease
	gone                     // the lock was lost, or the agent ends
	reasons                  // the number of reasons
)

func (r reason) String() string {
	return [reasons]string{"released", "unsettled", "connection", "process", "not_renewed", "lost"}[r]
}

// A record counts the holds that have ended, by reason.
type record [reasons]atomic.Int64

// ended counts and logs the end of a hold. The lock is free by then, so no other client waits for the log.
func (a *Agent) ended(h *hold, why reason) {
	a.ends[why].Add(1)
	level, text := slog.LevelWarn, ""
	switch why {
	case notRenewed:
		text = "agent: a hold was not renewed and has ended; another process can have the lock while this client still works"
	case died:
		text = "agent: a process has ended without a release; the next owner of its lock gets a higher token"
	default: // package tier has logged the loss of a lock
		level, text = slog.LevelDebug, "agent: a hold has ended"
	}
	ctx := context.Background()
	if !a.config.Logger.Enabled(ctx, level) || level == slog.LevelWarn && !a.failures.take(a.config.Logger) {
		return
	}
	tokens := h.tokens()
	a.config.Logger.Log(ctx, level, text, "reason", why, "path", strings.Join(h.wish.paths, " "),
		"token", cmp.Or(tokens.Token, fmt.Sprint(tokens.Tokens)), "since", h.since(), "client", h.peer, "label", h.wish.label,
		"command", h.peer.command(h.peer))
}

func (h *hold) since() (since time.Time) {
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	for _, one := range h.seats {
		since = one.since
	}
	return since
}

// A throttle lets through a number of log lines per minute. Without it, a client that fails again and again would fill the log.
type throttle struct {
	most int
	what string // logged once when lines begin to be left out; "" to leave them out silently

	mu    sync.Mutex // guards the fields below
	begun time.Time  // when the present minute began
	lines int        // that were asked for in this minute
}

// take reports whether a line may be logged now.
func (t *throttle) take(log *slog.Logger) bool {
	t.mu.Lock()
	now := time.Now()
	if now.Sub(t.begun) >= time.Minute {
		t.begun, t.lines = now, 0
	}
	t.lines++
	lines := t.lines
	t.mu.Unlock()
	if lines == t.most+1 && t.what != "" {
		log.Warn(t.what)
	}
	return lines <= t.most
}

const leftOut = "agent: many holds have ended without a release; for a minute their log lines are left out, and " +
	"tierlock_agent_ended_holds_total counts them"

// MetricsServer returns an HTTP server for the metrics of the agent, of its process and of its locks. The registry of the agent must have
// the observer of locks. The server closes the connection of a scraper that is slow or idle. A scraper never delays a client of the agent.
func (a *Agent) MetricsServer(locks *tierprom.Metrics) *http.Server {
	locks.Follow(a.locks)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a}, locks, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return &http.Server{
		Handler: mux, ReadTimeout: scrapeTime, WriteTimeout: scrapeTime, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(a.config.Logger.Handler(), slog.LevelDebug),
	}
}

// scrapeTime is for how long a scraper may be slow. The default of Prometheus is the same.
const scrapeTime = 10 * time.Second

// A collector exports what only an agent has.
type collector struct{ *Agent }

var (
	connectionsDesc = prometheus.NewDesc("tierlock_agent_connections", "Connections now of the user that has the most.", nil, nil)
	limitDesc       = prometheus.NewDesc("tierlock_agent_connections_limit",
		"Connections of one user from which on the agent refuses new holds to this user (-clients).", nil, nil)
	waitingDesc = prometheus.NewDesc("tierlock_agent_waiting_clients", "Clients of the agent that wait for a lock or permits now.", nil, nil)
	holdsDesc   = prometheus.NewDesc("tierlock_agent_holds", "Holds of clients now; several paths of one request count once.", nil, nil)
	endedDesc   = prometheus.NewDesc("tierlock_agent_ended_holds_total",
		"Holds of clients that have ended, by reason: released by the client, unsettled (released while a write may be under way), "+
			"connection (closed without a release), process (ended without a release), not_renewed (the client did not renew for "+
			"-lease), or lost (in the store, or because the agent ends).", []string{"reason"}, nil)
)

// Describe implements [prometheus.Collector].
func (collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, limitDesc, waitingDesc, holdsDesc, endedDesc} {
		c <- d
	}
}

// Collect implements [prometheus.Collector]. Each reason is exported from the start, because a series that begins at 1 shows no increase.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	c.mu.Lock()
	holds, most := len(c.holds), 0
	for _, n := range c.users {
		most = max(most, n)
	}
	c.mu.Unlock()
	gauge(connectionsDesc, int64(most))
	gauge(limitDesc, int64(c.config.Clients))
	gauge(waitingDesc, c.waiting.Load())
	gauge(holdsDesc, int64(holds))
	for why := range reasons {
		n := float64(c.ends[why].Load())
		to <- prometheus.MustNewConstMetric(endedDesc, prometheus.CounterValue, n, why.String())
	}
}
