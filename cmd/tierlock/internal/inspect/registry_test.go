package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const path = "/locks/x"

// bubble runs f with a server. The function process connects a new process to the server.
func bubble(t *testing.T, f func(t *testing.T, server *memory.Server, process func(label string) *tier.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		f(t, server, func(label string) *tier.Registry {
			t.Helper()
			locks := tier.New(server.Dial(label, 3*time.Second, nil).Tier)
			t.Cleanup(func() { locks.Close() })
			return locks
		})
	})
}

// The contenders of a registry show for which contenders each one waits. A reader waits for the contenders ahead that do not read. Any
// other contender waits for all contenders ahead.
func TestARegistryTellsWhoWaitsForWhom(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Server, process func(string) *tier.Registry) {
		for _, label := range []string{"reader a", "reader b"} {
			need.Get(process(label).RWMutex(path).Reader().Acquire(t.Context()))(t)
		}
		for _, label := range []string{"writer a", "writer b"} {
			writer := process(label).RWMutex(path)
			go writer.Writer().Acquire(t.Context())
			synctest.Wait()
		}
		late := process("late").RWMutex(path)
		go late.Reader().Acquire(t.Context())
		synctest.Wait()

		r := inspect.Registry{Locks: process("operator")}
		q := need.Get(r.Look(t.Context(), path))(t)
		var got []string
		for _, c := range q.Contenders {
			got = append(got, fmt.Sprint(c.Label, ": ", c.Kind, " ", c.State, " #", c.Sequence, " ahead ", c.Ahead, " beside ", c.Beside,
				" nearest ", c.Nearest))
			need.That(t, c.Label+" waits for "+c.Behind, c.State != inspect.Waits || c.Behind == q.Contenders[c.Nearest].Node)
		}
		want := []string{
			"reader a: tierlock-read holds #0 ahead 0 beside 0 nearest 0",
			"reader b: tierlock-read holds #1 ahead 0 beside 1 nearest 0",
			"writer a: tierlock waits #2 ahead 2 beside 0 nearest 1",
			"writer b: tierlock waits #3 ahead 3 beside 0 nearest 2",
			"late: tierlock-read waits #4 ahead 2 beside 2 nearest 3",
		}
		need.Equal(t, "seen", strings.Join(got, "\n"), strings.Join(want, "\n"))
		need.Equal(t, "holders", len(q.Holders()), 2)
		need.Equal(t, "waiting", q.Waiting(), 3)
	})
}

// A list has the locks with contenders, and with all also the other locks. If a store finds a problem of a lock, it is listed among the
// other findings.
func TestARegistryListsAndExamines(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Server, process func(string) *tier.Registry) {
		need.Get(process("billing").Mutex(path).Acquire(t.Context()))(t)
		r := inspect.Registry{Locks: process("operator"), Paths: func(_ context.Context, below string, limit int) ([]string, int, bool, error) {
			if below == "/secret" {
				return nil, 0, false, errors.New("not permitted")
			}
			return []string{path, "/locks/idle"}, limit, false, nil
		}}
		l, err := r.List(t.Context(), "/locks", 7, false)
		need.That(t, fmt.Sprintf("got %+v, %v", l, err),
			err == nil && len(l.Locks) == 1 && l.Locks[0].Path == path && l.Locks[0].Holder.Label == "billing" && l.Looked == 7 && !l.Complete)
		if l, err := r.List(t.Context(), "/locks", 7, true); err != nil || len(l.Locks) != 2 || l.Locks[0].Path != "/locks/idle" ||
			l.Locks[0].Holder != nil {
			t.Errorf("with all: got %+v, %v", l, err)
		}
		refused := errors.As(errorOf(r.List(t.Context(), "/secret", 7, false)), new(*inspect.Refusal))
		need.That(t, "an error that comes in time is not a refusal", refused)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err, refusal := errorOf(r.Look(over, path)), (*inspect.Refusal)(nil); errors.As(err, &refusal) { // the answer may still have come
			t.Errorf("without time: %v is a refusal", err)
		}
		report, err := r.Examine(t.Context(), path, func(_ context.Context, r *inspect.Report) error {
			r.Find(inspect.Warning, r.Contenders[0].Node, "of the contender")
			r.Find(inspect.OK, "", "of the path")
			return nil
		})
		if err != nil || len(report.Findings) != 3 || report.Findings[0].Text != "of the path" ||
			report.Findings[2].Text != "of the contender" || !report.Bad() {
			t.Errorf("got %+v, %v", report.Findings, err)
		}
	})
}

// The queue of a semaphore shows which processes have permits, how many they have, and which processes wait.
func TestARegistryTellsWhoHasPermits(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Server, process func(string) *tier.Registry) {
		a, b := process("a").Semaphore(path, 5), process("b").Semaphore(path, 5)
		for _, pool := range []*tier.Semaphore{a, b, a, a} {
			need.Get(pool.Acquire(t.Context(), 1))(t)
		}
		for _, label := range []string{"first", "second"} {
			go process(label).Semaphore(path, 5).Acquire(t.Context(), 3)
			synctest.Wait()
		}
		r := inspect.Registry{Locks: process("operator"), Paths: func(context.Context, string, int) ([]string, int, bool, error) {
			return []string{path, "/locks/idle"}, 2, true, nil
		}}
		q, err := r.Look(t.Context(), path)
		need.Must(t, fmt.Sprintf("got %+v, %v", q, err), err == nil && q.Semaphore != nil && q.Exists && len(q.Contenders) == 0)
		got, want := q.Semaphore.Sum(func(c *inspect.Contender) string { return c.Label }), "4 of 5 permits in use: 3 by a, 1 by b"
		need.Equal(t, "permits in use", got, want)
		w := q.Semaphore.Queue
		need.That(t, fmt.Sprintf("waiting: %+v", w),
			len(w) == 2 && w[0].Label == "first" && w[0].State == inspect.Next && w[1].State == inspect.Waits && w[1].Behind == w[0].Node)
		l := need.Get(r.List(t.Context(), "/", 9, false))(t)
		need.That(t, fmt.Sprintf("listed: %+v", l), len(l.Locks) == 1 && *l.Locks[0].Permits == q.Semaphore.Permits && l.Locks[0].Queue == 2)
		report, err := r.Examine(t.Context(), path, func(context.Context, *inspect.Report) error { return nil })
		want = "a semaphore, 4 of 5 permits in use, 2 in the queue for permits"
		need.WantErr(t, "Examine", err, nil)
		need.That(t, fmt.Sprintf("examined: %+v", report), len(report.Findings) == 1 && report.Findings[0].Text == want)
	})
}

// Some stores know a semaphore only while it has contenders. Follow still reports that its permits are free, even if it searches for locks
// at that moment.
func TestAFollowerTellsThatPermitsAreFree(t *testing.T) {
	bubble(t, func(t *testing.T, server *memory.Server, process func(string) *tier.Registry) {
		pool, other := process("billing").Semaphore(path, 3), "/locks/other"
		r := inspect.Registry{Locks: process("operator"), Paths: func(context.Context, string, int) ([]string, int, bool, error) {
			paths := []string{other}
			if len(server.Queue("permits of "+path)) > 0 {
				paths = append(paths, path)
			}
			return paths, 2, true, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		end := make(chan error, 1)
		f := inspect.Follower{Reader: r, Path: "/", Every: time.Second, Limit: 9}
		go func() {
			end <- f.Follow(ctx, func(s inspect.Sight) {
				for _, e := range s.Events {
					told = append(told, e.Semaphore.Sum(func(c *inspect.Contender) string { return c.Label }))
				}
			})
		}()
		for range 6 { // often enough that the search, which runs every five seconds, coincides with each change
			permits := need.Get(pool.Acquire(ctx, 2))(t)
			time.Sleep(5500 * time.Millisecond)
			need.OK(t, permits.Release())
			time.Sleep(5500 * time.Millisecond)
		}
		cancel()
		<-end
		want := slices.Repeat([]string{"2 of 3 permits in use: 2 by billing", "0 of 3 permits in use"}, 6)
		need.List(t, "told", told, want...)
	})
}

func errorOf[T any](_ T, err error) error { return err }
