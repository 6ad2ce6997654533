package pglock

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// later returns this history with more versions. Each new version changes the tables that processes use.
func later(more int) history {
	h := slices.Clone(versions)
	for range more {
		h = append(h, fmt.Sprintf(`ALTER TABLE tierlock.contender ADD COLUMN note%[1]d text NOT NULL DEFAULT '';
			ALTER TABLE tierlock.session ADD COLUMN note%[1]d text NOT NULL DEFAULT '';
			CREATE OR REPLACE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT %[1]d'`, h.newest()+1))
	}
	return h
}

// Four programs upgrade the schema at the same time, while other programs hold locks and a transaction locks the tables. No lock is lost.
func TestHoldersGoOnWhileTheSchemaIsUpgraded(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		url, next := database(t), later(1)
		pool := migrated(t, url)
		a := f.start(t, url, tier.WithLeaseTTL(unhurried))
		b := f.start(t, url, tier.WithLeaseTTL(unhurried))
		holder := a.mustAcquire(t)
		waiter := b.waits(t)

		var work sync.WaitGroup
		var inside, turns, ended atomic.Int64
		for _, p := range []*process{a, b} {
			work.Go(func() {
				for l := p.at(t, "/busy"); ended.Load() == 0; turns.Add(1) {
					g := must(t, l)
					need.Equal(t, "holders", inside.Add(1), 1)
					inside.Add(-1)
					mustRelease(t, g)
				}
			})
		}
		more := func() {
			t.Helper()
			now := turns.Load()
			eventually(t, "more turns", func() bool { return turns.Load() >= now+20 })
		}
		more()

		open := begun(t, pool)
		need.Get(open.Exec(soon(t), "LOCK TABLE tierlock.contender IN ACCESS SHARE MODE"))(t)
		upgraded := make(chan error)
		for range 4 {
			go func() { upgraded <- next.migrate(soon(t), pool) }()
		}
		eventually(t, "an upgrade that waits for a table", func() bool {
			return ask[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')")
		})
		more()
		need.OK(t, open.Rollback(soon(t)))
		for range 4 {
			need.OK(t, <-upgraded)
		}
		need.Equal(t, "version", ask[int](t, pool, "SELECT tierlock.version()"), next.newest())

		more()
		need.OK(t, holder.Err())
		mustRelease(t, holder)
		mustRelease(t, waiter.Must(t))
		need.OK(t, Migrate(soon(t), pool)) // a program of the previous version starts
		mustRelease(t, f.start(t, url).mustAcquire(t))
		ended.Store(1)
		work.Wait()
	})
}

// If the process that upgrades the schema is paused or disconnected before it commits, the upgrade is undone.
func TestUpgradeThatStopsInTheMiddleIsUndone(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := migrated(t, url)
	p := tables.start(t, url, tier.WithLeaseTTL(unhurried))
	need.OK(t, later(1).upgrade(soon(t), begun(t, pool)))
	mustRelease(t, p.mustAcquire(t))
	need.Equal(t, "version", ask[int](t, pool, "SELECT tierlock.version()"), versions.newest())
}

func TestProgramWorksWithTheSchemaOfItsVersionAndOfTheNext(t *testing.T) {
	t.Parallel()
	pool := poolAt(t, database(t))
	needs := func(more int) string {
		return fmt.Sprintf("needs version %d or %d; ", versions.newest()+more, versions.newest()+more+1)
	}
	refuses := func(more int, err error, says ...string) {
		t.Helper()
		wantErr(t, err, errSchema)
		need.WantMention(t, err, append(says, needs(more))...)
	}
	check := func(more int) error { return later(more).check(soon(t), pool) }
	migrate := func(more int) error { return later(more).migrate(soon(t), pool) }
	is := func(more int) {
		t.Helper()
		need.Equal(t, "version", ask[int](t, pool, "SELECT tierlock.version()"), versions.newest()+more)
	}
	version := func(more int) string { return fmt.Sprintf("version %d,", versions.newest()+more) }
	refuses(0, check(0), " has none,", "run pglock.Migrate")

	need.OK(t, migrate(0))
	need.OK(t, check(0))
	refuses(1, check(1), version(0), "; run pglock.Migrate")
	need.WantMention(t, append(later(1), "no SQL").migrate(soon(t), pool), "syntax error")
	is(0)

	need.OK(t, migrate(1))
	need.OK(t, check(0))
	need.OK(t, check(1))
	need.OK(t, migrate(0))
	is(1)

	need.OK(t, migrate(3))
	for _, more := range []int{0, 1} {
		refuses(more, check(more), version(3), "use a later release")
		refuses(more, migrate(more), version(3), "use a later release")
	}
	need.OK(t, check(2))
	need.OK(t, check(3))
	is(3)

	exec(t, pool, "CREATE OR REPLACE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 11'")
	refuses(0, check(0), "version 11,", "drop the schema")
	refuses(0, migrate(0), "version 11,", "drop the schema")
	exec(t, pool, "DROP FUNCTION tierlock.version")
	need.WantMention(t, migrate(0), "that pglock did not create")
}
