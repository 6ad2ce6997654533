package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// A role may have a setting that ends idle connections. The connections of this package are idle between two renewals, and still must not
// end.
func TestIdleConnectionsStay(t *testing.T) {
	t.Parallel()
	p := tables.start(t, sharedURL(t)+"&application_name=idle&idle_session_timeout=100")
	backends := func() string {
		mustRelease(t, p.mustAcquire(t))
		return ask[string](t, outside(t), "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'idle'")
	}
	before := backends()
	time.Sleep(ttl / 4)
	need.Equal(t, "processes", backends(), before)
}

// A role may have settings for the format of values, the encoding of text, and the start of transactions. The locks work with any of them.
func TestSettingsOfTheRoleChangeNothing(t *testing.T) {
	t.Parallel()
	path := lockPath(t) + "/é"
	c := must(t, tables.start(t, sharedURL(t), tier.WithLeaseTTL(time.Minute)).at(t, path))
	for _, setting := range []string{
		"datestyle=SQL,DMY", "client_encoding=LATIN1", "timezone=Asia/Kathmandu", "search_path=none",
		"default_transaction_isolation=serializable", "default_transaction_read_only=on",
	} {
		w := waittest.Begin(t, tables.start(t, sharedURL(t)+"&"+setting, tier.WithLeaseTTL(time.Minute)).at(t, path).Acquire)
		eventually(t, "a contender that waits, with "+setting, func() bool { return left(t, path) == 2 })
		w.Pending(t)
		mustRelease(t, c)
		c = w.Must(t)
	}
	mustRelease(t, c)
	tx := need.Get(outside(t).BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer tx.Rollback(context.Background())
	need.WantMention(t, need.ErrOf(tx.Exec(soon(t), "SELECT tierlock.leave('/q', $1)", newID())), "read committed")
}

// A hook of the pool may change settings for the program's own statements, such as a statement timeout. A wait for an advisory lock is one
// long statement, which must not end by that timeout.
func TestHooksOfThePoolChangeNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		pool := poolAt(t, sharedURL(t), func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `SET statement_timeout = 50; SET lock_timeout = 50; SET idle_in_transaction_session_timeout = 50;
					SET default_transaction_isolation = serializable; SET default_transaction_read_only = on; SET search_path = none;
					SET application_name = hooked; SET synchronous_commit = off; SET datestyle = 'SQL, DMY'`)
				return err
			}
		})
		o, _, err := newOptions([]tier.RegistryOption{tier.WithLeaseTTL(unhurried)})
		need.OK(t, err)
		locks := need.Get(f.open(pool, o))(t)
		defer locks.Close()
		key := map[string]string{
			tables.name:     ask[string](t, outside(t), "SELECT tierlock.key($1)::text", lockPath(t)),
			advisories.name: advisoryKey(lockPath(t)),
		}[f.name]
		other := begun(t, outside(t))
		ask[any](t, other, "SELECT pg_advisory_xact_lock($1::text::bigint)::text", key)
		w := waittest.Begin(t, waittest.At(t, locks, lockPath(t), second.Options{}).Acquire)
		eventually(t, "one statement that waits for much longer than any of these timeouts", func() bool {
			return ask[int](t, outside(t), "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND "+ofLock+
				" AND clock_timestamp() - query_start > interval '300 ms'", key) == 1
		})
		other.Rollback(soon(t))
		mustRelease(t, w.Must(t))
	})
}

func TestBadOptionsAreNamed(t *testing.T) {
	waittest.Refused(t, func(o tier.RegistryOption) error {
		_, _, err := newOptions([]tier.RegistryOption{o})
		return err
	}, map[string]tier.RegistryOption{
		"want a multiple of 1ms":          tier.WithLeaseTTL(time.Second + time.Nanosecond),
		"want 1s to":                      tier.WithLeaseTTL(1 << 62),
		"label of 257 bytes":              tier.WithLabel(strings.Repeat("x", 257)),
		"option of type <nil>":            nil,
		"option of type pglock.elsewhere": elsewhere{},
	})
	for _, f := range flavours {
		need.Has(t, f.name+" without a pool", fmt.Sprint(need.ErrOf(f.front(t.Context(), nil))), "nil pool")
	}
}

// elsewhere is an option of another package.
type elsewhere struct{ tier.RegistryOption }
