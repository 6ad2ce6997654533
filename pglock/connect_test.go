package pglock

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/pgserver"
)

// A role may have connections end that are idle, as they are between two renewals.
func TestIdleConnectionsStay(t *testing.T) {
	t.Parallel()
	p := startAt(t, pgserver.PlainURL(server(t).Addr())+"&application_name=idle&idle_session_timeout=100")
	backends := func() any {
		return mustExec(t, outside(t), "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'idle'")
	}
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	before := backends()
	time.Sleep(ttl / 4)
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	if after := backends(); after != before {
		t.Errorf("processes %v, then %v", before, after)
	}
}

// A role may have settings of how values are written, text is encoded, and transactions begin.
func TestSettingsOfTheRoleChangeNothing(t *testing.T) {
	t.Parallel()
	url := pgserver.PlainURL(server(t).Addr())
	p, path := startAt(t, url), lockPath(t)+"/é"
	c := mustAcquire(t, p.at(t, path))
	for _, setting := range []string{
		"datestyle=SQL,DMY", "client_encoding=LATIN1", "timezone=Asia/Kathmandu", "search_path=none",
		"default_transaction_isolation=serializable", "default_transaction_read_only=on",
	} {
		w := wanting(t, startAt(t, url+"&"+setting).at(t, path).Acquire)
		eventually(t, "a contender that waits, with "+setting, func() bool { return len(left(t, path)) == 2 })
		w.pending(t)
		mustRelease(t, c)
		c = w.must(t)
	}
	mustRelease(t, c)
}
