package pglock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/waittest"
)

// A role may have connections end that are idle, as they are between two renewals.
func TestIdleConnectionsStay(t *testing.T) {
	t.Parallel()
	p := tables.start(t, sharedURL(t)+"&application_name=idle&idle_session_timeout=100")
	backends := func() string {
		mustRelease(t, p.mustAcquire(t))
		return ask[string](t, outside(t), "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'idle'")
	}
	before := backends()
	time.Sleep(ttl / 4)
	if after := backends(); after != before {
		t.Errorf("processes %v, then %v", before, after)
	}
}

// A role may have settings of how values are written, text is encoded, and transactions begin.
func TestSettingsOfTheRoleChangeNothing(t *testing.T) {
	t.Parallel()
	path := lockPath(t) + "/é"
	c := must(t, tables.start(t, sharedURL(t), WithLeaseTTL(time.Minute)).at(t, path))
	for _, setting := range []string{
		"datestyle=SQL,DMY", "client_encoding=LATIN1", "timezone=Asia/Kathmandu", "search_path=none",
		"default_transaction_isolation=serializable", "default_transaction_read_only=on",
	} {
		w := waittest.Begin(t, tables.start(t, sharedURL(t)+"&"+setting, WithLeaseTTL(time.Minute)).at(t, path).Acquire)
		eventually(t, "a contender that waits, with "+setting, func() bool { return left(t, path) == 2 })
		w.Pending(t)
		mustRelease(t, c)
		c = w.Must(t)
	}
	mustRelease(t, c)
	tx, err := outside(t).BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(soon(t), "SELECT tierlock.leave('/q', $1)", newID()); err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Errorf("%v", err)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		option Option
		name   string // what the error has to mention
	}{
		{WithLeaseTTL(time.Second + time.Nanosecond), "want a multiple of 1ms"},
		{WithLeaseTTL(1 << 62), "want 1s to"},
		{WithLeaseMargin(-time.Second), "lease margin -1s"},
		{WithLogger(nil), "nil logger"},
		{WithLabel(strings.Repeat("x", 257)), "label of 257 bytes"},
		{nil, "option of type <nil>"},
		{elsewhere{}, "option of type pglock.elsewhere"},
	} {
		if _, _, err := newOptions([]Option{tt.option}); err == nil || !strings.Contains(err.Error(), tt.name) {
			t.Errorf("%v, want %q", err, tt.name)
		}
	}
	for _, f := range flavours {
		if _, err := f.front(nil); err == nil || !strings.Contains(err.Error(), "nil pool") {
			t.Errorf("%s without a pool: %v", f.name, err)
		}
	}
}

// elsewhere is an option of another package.
type elsewhere struct{ second.Option }
