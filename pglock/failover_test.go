package pglock

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/tier"
)

// A pair is a primary with the schema, and a standby that replicates it asynchronously.
type pair struct {
	*pgserver.Ensemble
	primary, standby *pgserver.Server
	url              string
}

func newPair(t *testing.T) pair {
	t.Helper()
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 2, pgserver.Config{NoSync: true})
	p := pair{e, e.Members[0], e.Members[1], pgserver.PlainURL(e.Addrs()...)}
	migrated(t, p.url)
	return p
}

// replicated waits until the standby has all writes.
func (p pair) replicated(t *testing.T) {
	t.Helper()
	pool := poolAt(t, pgserver.URL(p.primary.Addr()))
	eventually(t, "the standby has everything", func() bool {
		return ask[int](t, pool, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()") == 1
	})
}

// failOver ends the primary, and promotes the standby.
func (p pair) failOver(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	need.OK(t, p.Promote(soon(t), p.standby))
}

// A server may lose its lock table. It then grants nothing until each former holder has learned of its loss, also a holder that cannot
// reach the server.
func TestServerThatForgetsGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	restart := func(t *testing.T, s *pgserver.Server) { need.OK(t, s.Restart(t.Context())) }
	type row struct {
		settings []string // settings of the server
		forget   func(*testing.T, *pgserver.Server)
	}
	need.Each(t, map[string]row{
		"restarted": {forget: restart},
		// No data about the grants has reached the disk before the crash. Tokens still grow.
		"crashed": {settings: []string{"wal_writer_delay = '10s'"}, forget: func(t *testing.T, s *pgserver.Server) {
			s.Kill()
			restart(t, s)
		}},
		// The server continues to run, with the same postmaster and timeline.
		"one of its processes crashed": {forget: func(t *testing.T, s *pgserver.Server) {
			victim, err := os.FindProcess(ask[int](t, poolAt(t, pgserver.PlainURL(s.Addr())), "SELECT pg_backend_pid()"))
			if err == nil {
				err = victim.Kill()
			}
			need.OK(t, err)
			eventually(t, "the server serves again", func() bool {
				conn, err := pgx.Connect(t.Context(), pgserver.PlainURL(s.Addr()))
				return err == nil && conn.Close(t.Context()) == nil
			})
		}},
	}, func(t *testing.T, c row) {
		t.Parallel()
		s, url, _ := alone(t, c.settings...)
		url += "&synchronous_commit=off"
		holder := advisories.start(t, url)
		g := holder.mustAcquire(t)
		for g.Token() < 20 {
			mustRelease(t, g)
			g = holder.mustAcquire(t)
		}
		t.Cleanup(holder.network.sever())
		c.forget(t, s)
		next := advisories.start(t, url)
		granted := func(mine second.Grant, how string) {
			need.WantErr(t, "the holder, as "+how+" is granted the lock,", g.Err(), second.ErrLost)
			need.AtLeast(t, "the token of "+how, mine.Token(), g.Token()+1)
			mustRelease(t, mine)
		}
		if mine, err := next.at(t, lockPath(t)).TryAcquire(soon(t)); err == nil {
			granted(mine, "a try")
		}
		granted(next.mustAcquire(t), "who waits")
		mustRelease(t, next.mustAcquire(t)) // succeeds when the grace period is over
	})
}

// A standby that takes over may lack writes that the old primary has acknowledged. In this test, the row of a holder is missing there, and
// the deleted row of another contender is back. Their session still exists.
func TestRowsMayBeMissingOrBackAtTheNewPrimary(t *testing.T) {
	t.Parallel()
	e := newPair(t)
	p := tables.start(t, e.url, tier.WithLeaseTTL(3*time.Minute)) // the TTL is so long that no periodic read of the queue happens
	back := must(t, p.at(t, "/back"))
	e.replicated(t)
	e.Isolate(e.primary)
	mustRelease(t, back)
	missing := p.mustAcquire(t)
	standby := poolAt(t, pgserver.PlainURL(e.standby.Addr()))
	contenders := func() int { return ask[int](t, standby, "SELECT count(*) FROM tierlock.contender") }
	need.Equal(t, "contenders at the standby", contenders(), 1)
	e.failOver(t)
	knows(t, missing, 20*time.Second)
	eventually(t, "the contender that is back is removed", func() bool { return contenders() == 0 })
	need.Equal(t, "sessions; only the old session is left", ask[int](t, standby, "SELECT count(*) FROM tierlock.session"), 1)
	missing.Release()
}

func TestStandbyGrantsNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		e := newPair(t)
		e.replicated(t)
		lock := f.begin(t, pgserver.PlainURL(e.standby.Addr())).at(t, lockPath(t))
		eventually(t, "a try that says that it does not serve", func() bool {
			_, err := lock.TryAcquire(soon(t))
			return err != nil && strings.Contains(err.Error(), "cannot be reached")
		})
		_, err := lock.Acquire(need.Within(t, ttl/2))
		wantErr(t, err, context.DeadlineExceeded) // the call waits for a primary
	})
}
