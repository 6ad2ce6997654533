package tierprom_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/tierprom"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process returns the registry of a new process, and its page of metrics.
func process(t *testing.T, srv *zktest.Server, patterns ...string) (*tier.Registry, *httptest.Server) {
	t.Helper()
	return followed(t, dial(t, srv), need.Get(tierprom.New(tierprom.WithPaths(patterns...)))(t))
}

func dial(t *testing.T, srv *zktest.Server) second.Tier {
	t.Helper()
	client := need.Get(zknode.Dial(t.Context(), "127.0.0.1:2181", zknode.WithDialContext(srv.DialContext),
		zknode.WithSessionTimeout(40*time.Second)))(t) // a lease of this length does not end on a busy machine
	return zknode.Tier(client)
}

func followed(t *testing.T, store second.Tier, metrics *tierprom.Metrics) (*tier.Registry, *httptest.Server) {
	t.Helper()
	locks := tier.New(store, tier.WithObserver(metrics.Observer()), tier.WithHandOff(time.Hour))
	t.Cleanup(func() { locks.Close() })
	metrics.Follow(locks)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, DisableCompression: true,
		MaxRequestsInFlight: 1, // abandoned requests do not accumulate on a busy machine
	}))
	t.Cleanup(page.Close)
	return locks, page
}

func server(t *testing.T) *zktest.Server {
	t.Helper()
	srv := zktest.NewServer(zktest.Config{})
	t.Cleanup(srv.Close)
	return srv
}

// wait makes one goroutine wait for a lock while another one holds it.
func wait(t *testing.T, locks *tier.Registry, path string) {
	t.Helper()
	mu := locks.Mutex(path)
	hold := need.Get(mu.Acquire(t.Context()))(t)
	next := make(chan error)
	go func() { next <- mu.Do(t.Context(), func(context.Context) error { return nil }) }()
	for deadline := time.Now().Add(time.Minute); locks.Stats().Waiters == 0; time.Sleep(time.Millisecond / 10) {
		need.Must(t, "no goroutine waits yet", !time.Now().After(deadline))
	}
	locktest.WantErr(t, "Release", hold.Release(), nil)
	need.WantErr(t, "the next Acquire", <-next, nil)
}

// wantOn reads the page until it has all these lines. It tries for ten seconds, because an event in another goroutine may be counted a
// moment later.
func wantOn(t *testing.T, page *httptest.Server, all ...string) string {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		answer := need.Get(page.Client().Get(page.URL))(t)
		var b strings.Builder
		err := answer.Write(&b)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(err, b.String())
		}
		missing := slices.ContainsFunc(all, func(text string) bool { return !strings.Contains(b.String(), text) })
		if !missing || time.Now().After(end) {
			need.Has(t, "the page", b.String(), all...)
			return b.String()
		}
	}
}

func TestScrape(t *testing.T) {
	metrics := need.Get(tierprom.New(tierprom.WithPaths("/jobs/*", "/customers/*/*", "/jobs/*")))(t) // the repeated pattern counts once
	locks, page := followed(t, dial(t, server(t)), metrics)
	for i := range 100 { // 100 paths, which all match one pattern
		wait(t, locks, fmt.Sprintf("/jobs/%d", i))
		wait(t, locks, fmt.Sprintf("/customers/%d/bill", i))
		wait(t, locks, fmt.Sprintf("/elsewhere/%d", i))
	}
	hold := acquire(t, locks.Mutex("/jobs/kept"))
	metrics.Slot("/jobs/report", nil)
	metrics.Slot("/jobs/report", fmt.Errorf("try: %w", tier.ErrLocked))
	metrics.Slot("/jobs/sweep", context.Canceled)
	slotEvents(t, metrics)
	ctx, giveUp := context.WithCancel(t.Context())
	second := make(chan error)
	go func() { second <- need.ErrOf(locks.Mutex("/jobs/kept").Acquire(ctx)) }()
	wantOn(t, page, "tierlock_waiters 1\n")
	giveUp()
	need.WantErr(t, "a second acquisition", <-second, context.Canceled)
	text := wantOn(t, page,
		`tierlock_hold_seconds_count{path="/jobs/*"} 200`,
		`tierlock_hold_seconds_count{path="/customers/*/*"} 200`,
		`tierlock_hold_seconds_count{path="other"} 200`,
		`tierlock_wait_seconds_sum{from="hand-off",path="/jobs/*"} `,
		`tierlock_wait_seconds_count{from="hand-off",path="/jobs/*"} 100`,
		`tierlock_wait_seconds_count{from="found",path="/jobs/*"} 101`,
		`tierlock_wait_seconds_count{from="failed",path="/jobs/*"} 1`,
		`tierlock_slots_total{outcome="run",path="/jobs/*"} 1`,
		`tierlock_slots_total{outcome="skipped",path="/jobs/*"} 1`,
		`tierlock_slots_total{outcome="failed",path="/jobs/*"} 1`,
		`tierlock_slots_total{outcome="run",path="other"} 0`,
		`tierlock_slots_total{outcome="run",path="/customers/*/*"} 4`,
		`tierlock_slots_total{outcome="failed",path="/customers/*/*"} 1`,
		`tierlock_slots_total{outcome="missed",path="/customers/*/*"} 2`,
		"tierlock_give_up_seconds_count 300\n", "tierlock_groups_total ", "tierlock_grouped_commands_total ",
		"tierlock_holds 1\n", "tierlock_waiters 0\n", "tierlock_connected 1\n", "tierlock_grace_period 0\n",
		"tierlock_held_locks{path=\"/jobs/*\"} 1\n", "tierlock_held_locks{path=\"other\"} 0\n",
		"tierlock_oldest_hold_seconds{path=\"other\"} 0\n", "tierlock_slot_overdue_seconds{path=\"/customers/*/*\"} 0\n",
	)
	need.AtMost(t, "lines on the page", strings.Count(text, "\n"), 360)
	hold.Release()
	locks.Close()
}

// slotEvents runs a job of package slots that fails once, and takes so long once that two slots are missed.
func slotEvents(t *testing.T, metrics *tierprom.Metrics) {
	synctest.Test(t, func(t *testing.T) {
		locks := need.Get(memlock.NewServer().Connect())(t)
		defer locks.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute+time.Second)
		defer cancel()
		minutes := slots.Every(time.Minute, time.Time{})
		job := slots.New(locks.Mutex("/customers/7/bill"), minutes, slots.CatchUp(0), slots.OnSlot(metrics.SlotEvent))
		err := job.Run(ctx, func(_ context.Context, slot slots.Slot) error {
			switch slot.Time.Minute() {
			case 1:
				return errors.New("no paper")
			case 3:
				time.Sleep(150 * time.Second)
			}
			return nil
		})
		need.WantErr(t, "Run", err, context.DeadlineExceeded)
	})
}

// The documentation of the package lists all metrics. A name that begins like the previous name is abbreviated.
func TestEachMetricIsInTheDocumentation(t *testing.T) {
	text := string(need.Get(os.ReadFile("tierprom.go"))(t))
	list, _, _ := strings.Cut(text, "\npackage ")
	all := make(chan *prometheus.Desc, 100)
	need.Get(tierprom.New())(t).Describe(all)
	close(all)
	for desc := range all {
		name := regexp.MustCompile(`"tierlock(_\w+)"`).FindStringSubmatch(desc.String())[1]
		need.That(t, "the documentation does not have "+name, regexp.MustCompile(`\b(tierlock|, )`+name+`\b`).MatchString(list))
	}
}

// A hold and a wait have an age only while they last.
func TestScrapeOfTheOldest(t *testing.T) {
	t.Parallel()
	locks, page := process(t, server(t), "/jobs/*")
	mu := locks.Mutex("/jobs/a")
	hold := acquire(t, mu)
	next := make(chan *tier.Hold)
	go func() { next <- acquire(t, mu) }()
	for begun := time.Now(); !strings.Contains(wantOn(t, page), `tierlock_long_waits_total{path="/jobs/*"} 1`); time.Sleep(time.Millisecond) {
		need.Must(t, "no wait is reported as a long one", time.Since(begun) <= time.Minute)
	}
	const aged = `(?m)^tierlock_oldest_(hold|wait)_seconds{path="/jobs/\*"} [1-9]`
	need.Equal(t, "holds and waits of more than a second on the page", len(regexp.MustCompile(aged).FindAllString(wantOn(t, page), -1)), 2)
	locktest.WantErr(t, "Release", hold.Release(), nil)
	(<-next).Release()
	wantOn(t, page, "tierlock_oldest_wait_seconds{path=\"/jobs/*\"} 0\n", "tierlock_oldest_hold_seconds{path=\"/jobs/*\"} 0\n")
}

// Before the state of the connection is known, there is no metric for it, because a 0 would cause an alert.
func TestConnectionIsNotThereBeforeItIsKnown(t *testing.T) {
	metrics := need.Get(tierprom.New())(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(families, err)
	}
	for _, f := range families {
		need.That(t, "there is "+f.GetName(), f.GetName() != "tierlock_connected")
	}
}

func TestScrapeOfASemaphore(t *testing.T) {
	srv := server(t)
	locks, page := process(t, srv, "/limits/*")
	s := locks.Semaphore("/limits/a", 5)
	three := need.Get(s.Acquire(t.Context(), 3))(t)
	need.That(t, "got six permits of five", need.ErrOf(s.Acquire(need.Within(t, 1100*time.Millisecond), 3)) != nil)
	other := need.Get(locks.Semaphore("/elsewhere", 1).Acquire(t.Context(), 1))(t)
	wantOn(t, page,
		"tierlock_permits{path=\"/limits/*\"} 3\n", "tierlock_permits{path=\"other\"} 1\n",
		`tierlock_wait_seconds_count{from="permits",path="/limits/*"} 1`,
		`tierlock_wait_seconds_count{from="failed",path="/limits/*"} 1`,
		`tierlock_long_waits_total{path="/limits/*"} 1`,
		"tierlock_permit_waiters 0\n", "tierlock_holds 0\n", "tierlock_oldest_wait_seconds{path=\"/limits/*\"} 0\n",
	)
	srv.Expire(srv.Sessions()[0].ID)
	<-three.Lost() // waits for the loss, which has to come before the release
	<-other.Lost()
	three.Release()
	other.Release()
	wantOn(t, page,
		"tierlock_permits{path=\"/limits/*\"} 0\n", "tierlock_permits{path=\"other\"} 0\n",
		`tierlock_losses_total{cause="session",path="/limits/*"} 1`,
	)
}

func TestMalformedPatternIsRefused(t *testing.T) {
	need.That(t, "took a pattern that matches nothing", need.ErrOf(tierprom.New(tierprom.WithPaths("/jobs/[a"))) != nil)
}

// The metrics for alerts exist before the first event, at 0, for each pattern.
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
		for _, outcome := range []string{"run", "skipped", "failed", "missed"} {
			want = append(want, fmt.Sprintf("tierlock_slots_total{outcome=%q,path=%q} 0\n", outcome, path))
		}
		wantOn(t, page, want...)
	}
}
