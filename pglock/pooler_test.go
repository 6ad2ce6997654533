package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/tier"
)

// pooled starts a PgBouncer in front of a database that has the schema, and returns its URL. In that database, transactions are
// serializable by default.
func pooled(t *testing.T, mode string, settings ...string) (url string) {
	t.Helper()
	pooler, err := pgserver.StartPooler(t.Context(), server(t).Addr(), mode, settings...)
	childtest.Use(t, pooler, err)
	url = database(t)
	admin := migrated(t, url)
	exec(t, admin, "ALTER DATABASE "+admin.Config().ConnConfig.Database+" SET default_transaction_isolation = 'serializable'")
	return strings.Replace(url, server(t).Addr(), pooler.Addr(), 1)
}

// undisturbed checks that other programs still get the settings of their database.
func undisturbed(t *testing.T, url string) {
	t.Helper()
	const settings = "SELECT current_setting('default_transaction_isolation'), " +
		"(SELECT count(*) FROM pg_listening_channels()), pg_sleep(0.1)::text"
	pool := poolAt(t, url)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var isolation, listens any
			err := pool.QueryRow(soon(t), settings, pgx.QueryExecModeExec).Scan(&isolation, &listens, new(any))
			need.That(t, fmt.Sprintf("another client has isolation %v, and listens to %v channels: %v", isolation, listens, err),
				err == nil && isolation == "serializable" && listens == int64(0))
		})
	}
	all.Wait()
}

func TestPoolerOfTransactionsIsRefused(t *testing.T) {
	t.Parallel()
	const ignore = "ignore_startup_parameters = idle_session_timeout, idle_in_transaction_session_timeout, statement_timeout, lock_timeout, " +
		"default_transaction_read_only, tcp_user_timeout, tcp_keepalives_idle, tcp_keepalives_interval, tcp_keepalives_count"
	for name, settings := range map[string][]string{
		"the newest first":          {ignore},
		"the oldest first":          {ignore, "server_round_robin = 1"},
		"one":                       {ignore, "default_pool_size = 1"},
		"not all that is asked for": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pooled(t, "transaction", settings...)
			busy := poolAt(t, url)
			ctx, cancel := context.WithCancel(t.Context())
			var others sync.WaitGroup
			for range 2 {
				others.Go(func() {
					for ctx.Err() == nil {
						busy.Exec(ctx, "SELECT 1", pgx.QueryExecModeExec)
					}
				})
			}
			defer others.Wait()
			defer cancel()
			for _, f := range flavours {
				for range 3 {
					p := f.begin(t, url, tier.WithLeaseTTL(10*time.Second))
					_, err := p.at(t, "/x").Acquire(soon(t))
					p.Close()
					want := errPooler
					if settings == nil && f.name == advisories.name {
						want = errNoLease
					}
					need.WantErr(t, f.name, err, want)
					need.WantMention(t, err, "PgBouncer")
				}
			}
			cancel()
			others.Wait()
			undisturbed(t, url)
		})
	}
}

// The TTL is so long that no renewal happens. A process therefore learns of changes only from notifications.
func TestPoolerOfSessionsServes(t *testing.T) {
	t.Parallel()
	url := pooled(t, "session")
	p, q := tables.start(t, url, tier.WithLeaseTTL(2*unhurried)), tables.start(t, url, tier.WithLeaseTTL(2*unhurried))
	c := p.mustAcquire(t)
	c.Contended().C() // makes the store look for waiters
	w := q.waits(t)
	within(t, unhurried/4, "the holder hears of a waiter", c.Contended().Raised)
	mustRelease(t, c)
	next := w.Must(t)
	_, err := p.at(t, lockPath(t)).TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	mustRelease(t, next)
	p.Close()
	q.Close()
	undisturbed(t, url)
	_, err = advisories.begin(t, url).at(t, lockPath(t)).Acquire(soon(t))
	wantErr(t, err, errNoLease)
	need.That(t, fmt.Sprintf("not at once: %v", err), !errors.Is(err, context.DeadlineExceeded))
}
