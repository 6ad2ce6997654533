package tierprom_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/contrib/tierprom"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

const (
	rulesFile     = "../../docs/alerts.yaml"
	dashboardFile = "../../docs/grafana.json"
)

// promtool tests the alerts in simulated hours, with the limits and times of the document.
func TestAlertsByTheirUnitTests(t *testing.T) {
	promtool := program(t, "PROMTOOL", "promtool")
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		need.WantErr(t, fmt.Sprintf("promtool %s: %s", args, out), err, nil)
	}
}

// In this test, half a minute stands for an hour of the alerts. Prometheus scrapes every half second. A scrape that takes longer interrupts
// all alerts about its page.
const (
	haste  = 120
	scrape = 500 * time.Millisecond
)

// hasty returns the documented rules with their limits divided by haste. Rules that look back in time look back over the whole test,
// because they must not miss an earlier event.
func hasty(t *testing.T) string {
	t.Helper()
	text := need.Get(os.ReadFile(rulesFile))(t)
	limit := regexp.MustCompile(`for: (\d+)m|> (\d{3,})`)
	return limit.ReplaceAllStringFunc(string(text), func(found string) string {
		m := limit.FindStringSubmatch(found)
		n, _ := strconv.Atoi(m[1] + m[2])
		if m[1] != "" {
			return fmt.Sprintf("for: %dms", n*60_000/haste)
		}
		return fmt.Sprintf("> %d", n/haste)
	})
}

// A hasGracePeriod is a store that reports a grace period after the test has begun one.
type hasGracePeriod struct {
	second.Tier
	why atomic.Pointer[second.GracePeriodError]
}

func (q *hasGracePeriod) GracePeriod() *second.GracePeriodError { return q.why.Load() }

// A real Prometheus fires each of the documented alerts for a failure of its kind, and none without a failure. Each query of the dashboard
// returns data.
func TestAlertsAndDashboardOnARealPrometheus(t *testing.T) {
	t.Parallel()
	shared, own := server(t), server(t)
	stopping := &hasGracePeriod{Tier: dial(t, shared)}
	healthy, healthyPage := process(t, shared, "/healthy/*", "/elections/healthy")
	metrics := need.Get(tierprom.New(tierprom.WithPaths(
		"/stuck/*", "/orphan/*", "/busy/*", "/pools/*", "/skipped/*", "/missed/*", "/overdue/*", "/run/healthy", "/elections/lost")))(t)
	troubled, troubledPage := followed(t, stopping, metrics)
	cut, cutPage := process(t, own, "/lost/*")
	unseen, _ := process(t, shared)
	agent, agentPage := agentOf(t)
	p := startPrometheus(t, hasty(t), map[string]*httptest.Server{
		"healthy": healthyPage, "troubled": troubledPage, "cut": cutPage, "agent": agentPage,
	})

	acquire(t, healthy.Mutex("/elections/healthy"))
	leader := acquire(t, troubled.Mutex("/elections/lost"))
	wait(t, healthy, "/healthy/a")
	wait(t, troubled, "/stuck/a")
	p.eventually(t, `sum(tierlock_connected) == 3`)
	// Everything is healthy for three times as long as an alert waits.
	p.eventually(t, fmt.Sprintf("min(count_over_time(tierlock_connected[1h])) > %d and sum(tierlock_held_locks) == 2",
		30*time.Minute/haste/scrape))
	need.Empty(t, "in health there are alerts", p.ask(t, fired()))

	stopping.why.Store(&second.GracePeriodError{Until: time.Now().Add(time.Hour), Reason: "the server is new"})
	acquire(t, troubled.Mutex("/stuck/a"))
	acquire(t, unseen.Mutex("/orphan/a"))
	acquire(t, unseen.Mutex("/busy/a"))
	inBackground(t, func(ctx context.Context) { troubled.Mutex("/stuck/a").Acquire(ctx) })
	inBackground(t, func(ctx context.Context) { troubled.Mutex("/orphan/a").Acquire(ctx) })
	inBackground(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 1100*time.Millisecond)
			troubled.Mutex("/busy/a").Acquire(short)
			cancel()
		}
	})
	acquire(t, unseen.Mutex("/skipped/a"))
	agent.ended.WithLabelValues("not_renewed").Add(10)
	agent.connections.Set(100)
	metrics.SlotEvent(slots.Event{Kind: slots.Skipped, Path: "/missed/a", Count: 2})
	metrics.SlotEvent(slots.Event{Kind: slots.Started, Path: "/overdue/a", Next: time.Now()})
	rule := slot.Rule{Log: slog.New(slog.DiscardHandler), OnSlot: metrics.Slot}
	rule.Begin(t.Context(), troubled.Mutex("/skipped/a"), nil)
	run := need.Get(rule.Begin(t.Context(), troubled.Mutex("/run/healthy"), nil))(t)
	rule.Begin(t.Context(), troubled.Mutex("/run/healthy"), nil) // skips this slot
	need.OK(t, run.End(nil))
	need.Get(troubled.Semaphore("/pools/a", 3).Acquire(t.Context(), 2))(t)
	locktest.WantErr(t, "Release", leader.Release(), nil)
	for begun := time.Now(); len(p.ask(t, `tierlock_sessions_expired_total > 3`)) == 0 && time.Since(begun) < hanging; {
		hold := acquire(t, cut.Mutex("/lost/a"))
		own.Expire(own.Sessions()[0].ID)
		<-hold.Lost()
		hold.Release()
	}
	own.Freeze()

	alerts := []string{
		`alertname="TierlockLockLost", instance="cut", path="/lost/*", cause="session"`,
		`alertname="TierlockNoSession", instance="cut"`,
		`alertname="TierlockSessionsExpire", instance="cut"`,
		`alertname="TierlockGracePeriod", instance="troubled"`,
		`alertname="TierlockWaitTooLong", instance="troubled", path="/stuck/*"`,
		`alertname="TierlockHoldTooLong", instance="troubled", path="/stuck/*"`,
		`alertname="TierlockWaitsInVain", path="/busy/*"`,
		`alertname="TierlockContention", path="/busy/*"`,
		`alertname="TierlockOrphan", path="/orphan/*"`,
		`alertname="TierlockNobodyLeads", path="/elections/lost"`,
		`alertname="TierlockNobodyRuns", path="/skipped/*"`,
		`alertname="TierlockSlotMissed", path="/missed/*"`,
		`alertname="TierlockSlotOverdue", path="/overdue/*"`,
		`alertname="TierlockAgentNotRenewed", instance="agent"`,
		`alertname="TierlockAgentFull", instance="agent"`,
	}
	for _, alert := range alerts {
		p.eventually(t, fired(alert))
	}
	// Short waits for /busy/a cause no TierlockOrphan either. They can be long on a busy machine, and therefore only promtool tests that.
	for _, well := range []string{`instance="healthy"`, `path=~".*healthy.*"`, `alertname="TierlockOrphan", path!~"/(orphan|busy)/.*"`} {
		need.Empty(t, "fired although all is well there", p.ask(t, fired(well)))
	}
	p.wantRules(t, len(alerts))
	p.wantDashboard(t)
}

// An agentMetrics has the metrics of the command tierlock agent that the alerts and the dashboard use. A test of the agent compares the
// names.
type agentMetrics struct {
	ended       *prometheus.CounterVec
	connections prometheus.Gauge
}

func agentOf(t *testing.T) (agentMetrics, *httptest.Server) {
	t.Helper()
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tierlock_agent_connections_limit"})
	m := agentMetrics{
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tierlock_agent_ended_holds_total"}, []string{"reason"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "tierlock_agent_connections"}),
	}
	limit.Set(100)
	m.ended.WithLabelValues("not_renewed")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(limit, m.ended, m.connections, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tierlock_agent_holds"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "tierlock_agent_waiting_clients"}))
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}))
	t.Cleanup(page.Close)
	return m, page
}

// fired returns a query for the alerts with these labels that have fired at any time.
func fired(labels ...string) string {
	return fmt.Sprintf("present_over_time(ALERTS{%s}[1h])", strings.Join(append(labels, `alertstate="firing"`), ", "))
}

func acquire(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	return need.Get(mu.Acquire(t.Context()))(t)
}

// inBackground runs f until the end of the test.
func inBackground(t *testing.T, f func(context.Context)) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(t.Context())
	}()
	t.Cleanup(func() { <-ended })
}

// program returns the path of a program of Debian's package prometheus.
func program(t *testing.T, variable, name string) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(variable), name))
	if err != nil {
		if os.Getenv("TIERLOCK_REQUIRE_SERVER") == "1" {
			t.Fatal(err)
		}
		t.Skip(err, "; scripts/get-prometheus.sh installs it")
	}
	return path
}

// Anything that takes Prometheus longer than hanging counts as a failure, even on a busy machine.
const hanging = 5 * time.Minute

// A monitor is a Prometheus that scrapes pages.
type monitor struct {
	url    string
	client *http.Client
}

func startPrometheus(t *testing.T, rules string, pages map[string]*httptest.Server) *monitor {
	t.Helper()
	path, dir := program(t, "PROMETHEUS", "prometheus"), t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: %v, evaluation_interval: %v}\nrule_files: [rules.yml]\n"+
		"scrape_configs:\n- job_name: locks\n  static_configs:\n", scrape, scrape/2)
	for name, page := range pages {
		config += fmt.Sprintf("  - {targets: [%q], labels: {instance: %s, store: main}}\n", page.Listener.Addr(), name)
	}
	file := filepath.Join(dir, "prometheus.yml")
	for name, text := range map[string]string{file: config, filepath.Join(dir, "rules.yml"): rules} {
		need.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	l := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	var log strings.Builder
	cmd.Stderr = &log
	need.OK(t, cmd.Start())
	m := &monitor{url: "http://" + addr, client: &http.Client{Timeout: 5 * time.Second}}
	t.Cleanup(func() {
		m.client.CloseIdleConnections()
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return m
}

// get decodes the answer of Prometheus into data. While Prometheus does not answer, data stays unchanged.
func (m *monitor) get(t *testing.T, path string, data any) {
	t.Helper()
	answer, err := m.client.Get(m.url + "/api/v1/" + path)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	result := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&result); err == nil && result.Error != "" {
		t.Fatalf("Prometheus refuses %s: %s", path, result.Error)
	}
}

// ask returns the labels of each series in the result of a query.
func (m *monitor) ask(t *testing.T, query string) (series []map[string]string) {
	t.Helper()
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	m.get(t, "query?query="+url.QueryEscape(query), &data)
	for _, r := range data.Result {
		series = append(series, r.Metric)
	}
	return series
}

// eventually repeats a query until it has a result.
func (m *monitor) eventually(t *testing.T, query string) (series []map[string]string) {
	t.Helper()
	for begun := time.Now(); len(series) == 0; series = m.ask(t, query) {
		if time.Since(begun) > hanging {
			t.Fatalf("Prometheus has nothing for %s; alerts: %v", query, m.ask(t, "ALERTS"))
		}
		time.Sleep(scrape / 2)
	}
	return series
}

// wantRules checks the number of rules. It also checks that the text of each rule says what has happened and what to do, with labels that
// exist.
func (m *monitor) wantRules(t *testing.T, number int) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct {
				Name        string
				Annotations map[string]string
			}
		}
	}
	m.get(t, "rules", &data)
	if len(data.Groups) != 1 || len(data.Groups[0].Rules) != number {
		t.Fatalf("this test has failures for %d rules, and there are others: %+v", number, data)
	}
	for _, rule := range data.Groups[0].Rules {
		for _, annotation := range []string{"summary", "description"} {
			text := rule.Annotations[annotation]
			need.That(t, rule.Name+" has no "+annotation, text != "")
			for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				for _, series := range m.ask(t, fired(fmt.Sprintf("alertname=%q", rule.Name))) {
					need.That(t, rule.Name+" has no label "+label[1], series[label[1]] != "")
				}
			}
		}
	}
}

// wantDashboard checks that each query has a result, with the labels that its legend names.
func (m *monitor) wantDashboard(t *testing.T) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr, LegendFormat string }
		}
	}
	if text, err := os.ReadFile(dashboardFile); err != nil || json.Unmarshal(text, &dashboard) != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("%s: %v, %d panels", dashboardFile, err, len(dashboard.Panels))
	}
	all := strings.NewReplacer("$job", ".*", "$store", ".*", "$instance", ".*", "$path", ".*", "$__rate_interval", "1h", "[5m]", "[1h]")
	for _, panel := range dashboard.Panels {
		need.That(t, panel.Title+" has no description, or no query", panel.Description != "" && len(panel.Targets) != 0)
		for _, target := range panel.Targets {
			query := all.Replace(target.Expr)
			series := m.eventually(t, query) // the series may have ended by now
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				need.That(t, panel.Title+": the legend names a label that is not there: "+label[1], series[0][label[1]] != "")
			}
		}
	}
}
