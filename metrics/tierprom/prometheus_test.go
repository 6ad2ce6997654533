package tierprom_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/metrics/tierprom"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process returns the locks of a process, and its page of metrics.
func process(t *testing.T, srv *zktest.Server, patterns ...string) (*tier.Registry, *httptest.Server) {
	t.Helper()
	metrics, err := tierprom.New(tierprom.WithPaths(patterns...))
	if err != nil {
		t.Fatal(err)
	}
	client, err := zklock.Dial(t.Context(), "127.0.0.1:2181", zklock.WithDialContext(srv.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := tier.New(second.TierOf(client), tier.WithObserver(metrics.Observer()), tier.WithHandOff(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	metrics.Follow(locks)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(page.Close)
	return locks, page
}

func server(t *testing.T) *zktest.Server {
	t.Helper()
	srv := zktest.NewServer(zktest.Config{})
	t.Cleanup(srv.Close)
	return srv
}

// wait has one goroutine wait for a lock while another has it.
func wait(t *testing.T, locks *tier.Registry, path string) {
	t.Helper()
	mu := locks.Mutex(path)
	hold, err := mu.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error)
	go func() { next <- mu.Do(t.Context(), func(context.Context) error { return nil }) }()
	for deadline := time.Now().Add(time.Minute); locks.Stats().Waiters == 0; time.Sleep(time.Millisecond / 10) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// wantOn checks that a page of metrics has all this, and returns it.
func wantOn(t *testing.T, page *httptest.Server, all ...string) string {
	t.Helper()
	answer, err := page.Client().Get(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b strings.Builder
	if err := answer.Write(&b); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(err, b.String())
	}
	for _, want := range all {
		if !strings.Contains(b.String(), want) {
			t.Errorf("not on the page: %s", want)
		}
	}
	return b.String()
}

func TestScrape(t *testing.T) {
	locks, page := process(t, server(t), "/jobs/*", "/customers/*/*")
	for i := range 100 { // any number of paths are few labels
		wait(t, locks, fmt.Sprintf("/jobs/%d", i))
		wait(t, locks, fmt.Sprintf("/customers/%d/bill", i))
		wait(t, locks, fmt.Sprintf("/elsewhere/%d", i))
	}
	hold, err := locks.Mutex("/jobs/kept").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := locks.Mutex("/jobs/kept").Acquire(ctx); err == nil {
		t.Error("acquired twice")
	}
	text := wantOn(t, page,
		`tierlock_hold_seconds_count{path="/jobs/*"} 200`,
		`tierlock_hold_seconds_count{path="/customers/*/*"} 200`,
		`tierlock_hold_seconds_count{path="other"} 200`,
		`tierlock_wait_seconds_sum{from="hand-off",path="/jobs/*"} `,
		`tierlock_wait_seconds_count{from="hand-off",path="/jobs/*"} 100`,
		`tierlock_wait_seconds_count{from="found",path="/jobs/*"} 101`,
		`tierlock_wait_seconds_count{from="failed",path="/jobs/*"} 1`,
		"tierlock_holds 1\n", "tierlock_waiters 0\n", "tierlock_connected 1\n",
	)
	if n := strings.Count(text, "\n"); n > 350 {
		t.Errorf("%d lines on the page", n)
	}
	hold.Release()
	locks.Close()
}

func TestScrapeOfASemaphore(t *testing.T) {
	srv := server(t)
	locks, page := process(t, srv, "/limits/*")
	s := locks.Semaphore("/limits/a", 5)
	three, err := s.Acquire(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(ctx, 3); err == nil {
		t.Error("got six permits of five")
	}
	other, err := locks.Semaphore("/elsewhere", 1).Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	wantOn(t, page,
		"tierlock_permits{path=\"/limits/*\"} 3\n", "tierlock_permits{path=\"other\"} 1\n",
		`tierlock_wait_seconds_count{from="permits",path="/limits/*"} 1`,
		`tierlock_wait_seconds_count{from="failed",path="/limits/*"} 1`,
		`tierlock_long_waits_total{path="/limits/*"} 1`,
		"tierlock_permit_waiters 0\n", "tierlock_holds 0\n",
	)
	lost := make(chan struct{})
	context.AfterFunc(other.Context(t.Context()), func() { close(lost) })
	srv.Expire(srv.Sessions()[0].ID)
	<-lost
	three.Release()
	other.Release()
	wantOn(t, page,
		"tierlock_permits{path=\"/limits/*\"} 0\n", "tierlock_permits{path=\"other\"} 0\n",
		`tierlock_losses_total{cause="session",path="/limits/*"} 1`,
	)
}

func TestMalformedPatternIsRefused(t *testing.T) {
	if _, err := tierprom.New(tierprom.WithPaths("/jobs/[a")); err == nil {
		t.Error("took a pattern that matches nothing")
	}
}

// What alerts are about is on the page before it has happened, at 0, for each pattern.
func TestLossesAndWaitsInVainBeginAtZero(t *testing.T) {
	_, page := process(t, server(t), "/jobs/*")
	for _, path := range []string{"/jobs/*", "other"} {
		want := []string{
			fmt.Sprintf("tierlock_long_waits_total{path=%q} 0\n", path),
			fmt.Sprintf("tierlock_wait_seconds_count{from=\"failed\",path=%q} 0\n", path),
		}
		for _, cause := range []tier.LossCause{tier.LossOfLease, tier.LossOfSession, tier.LossByDeletion, tier.LossByClose, tier.LossOtherwise} {
			want = append(want, fmt.Sprintf("tierlock_losses_total{cause=%q,path=%q} 0\n", cause, path))
		}
		wantOn(t, page, want...)
	}
}

// documentedRules are those of the README.
func documentedRules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```yaml\n")
	rules, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("no rules in the README")
	}
	return rules
}

// hanging is longer than a Prometheus takes for anything here, however busy the machine is.
const hanging = 5 * time.Minute

// eventually asks until a query yields what is wanted.
func eventually(t *testing.T, ask func(string) []string, query string, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(hanging); ; time.Sleep(50 * time.Millisecond) {
		got := ask(query)
		if slices.Sort(got); slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus answers %q to %s, want %q", got, query, want)
		}
	}
}

// A real Prometheus fires the documented alert at the first loss there ever was, and not before.
func TestPrometheusFiresAtTheFirstLoss(t *testing.T) {
	t.Parallel()
	srv := server(t)
	locks, page := process(t, srv, "/jobs/*")
	ask := runPrometheus(t, strings.TrimPrefix(page.URL, "http://"), documentedRules(t))
	eventually(t, ask, `tierlock_losses_total{cause="session"} == 0`, "/jobs/*", "other")
	hold, err := locks.Mutex("/jobs/a").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if early := ask("ALERTS"); len(early) > 0 {
		t.Errorf("fires without a loss: %q", early)
	}
	srv.Expire(srv.Sessions()[0].ID)
	<-hold.Lost()
	hold.Release()
	eventually(t, ask, `ALERTS{alertname="LockLost", alertstate="firing", cause="session"}`, "/jobs/*")
}

// runPrometheus starts one with rules, and returns what asks it for the label "path" of what a query yields.
func runPrometheus(t *testing.T, target, rules string) func(query string) []string {
	t.Helper()
	program, err := exec.LookPath(cmp.Or(os.Getenv("PROMETHEUS"), "prometheus"))
	if err != nil {
		if os.Getenv("TIERLOCK_REQUIRE_SERVER") == "1" {
			t.Fatal(err)
		}
		t.Skip(err, "; scripts/get-prometheus.sh installs it")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	config := fmt.Sprintf("global: {scrape_interval: 200ms, evaluation_interval: 200ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs: [{job_name: locks, static_configs: [{targets: [%s]}]}]\n", target)
	for name, text := range map[string]string{file: config, filepath.Join(dir, "rules.yml"): rules} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return func(query string) (paths []string) {
		answer, err := client.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return nil // not there yet
		}
		defer answer.Body.Close()
		var result struct {
			Data struct {
				Result []struct{ Metric struct{ Path string } }
			}
		}
		if json.NewDecoder(answer.Body).Decode(&result) != nil {
			return nil
		}
		for _, r := range result.Data.Result {
			paths = append(paths, r.Metric.Path)
		}
		return paths
	}
}
