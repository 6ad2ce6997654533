package mysqllock

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
)

// later returns this history with more versions. Each of them changes the tables that processes use.
func later(more int) history {
	h := slices.Clone(versions)
	for range more {
		h = append(h, fmt.Sprintf("DELIMITER //\n"+
			"ALTER TABLE tierlock_contender ADD COLUMN note%[1]d BIGINT NOT NULL DEFAULT 0\n//\n"+
			"CREATE PROCEDURE tierlock_later%[1]d() SQL SECURITY INVOKER SELECT 1\n//\nUPDATE tierlock_state SET version = %[1]d\n//\n",
			h.newest()+1))
	}
	return h
}

// bare starts a server without the tables, and returns it with a pool.
func bare(t *testing.T) (*sql.DB, *mysqlserver.Server) {
	t.Helper()
	s, _ := alone(t)
	return poolAt(t, mysqlserver.DSN(s.Addr())), s
}

// Four programs upgrade the schema at the same time, while other programs hold locks and a transaction locks the table. No lock is lost.
func TestHoldersGoOnWhileTheSchemaIsUpgraded(t *testing.T) {
	t.Parallel()
	db, s := bare(t)
	need.OK(t, Migrate(soon(t), db))
	a, b := begin(t, s.Addr(), unhurried), begin(t, s.Addr(), unhurried)
	held := waittest.Acquire(t, a.at(t, "/held"))
	var work sync.WaitGroup
	var inside, turns, ended atomic.Int64
	for _, p := range []*process{a, b} {
		work.Go(func() {
			for l := p.at(t, "/busy"); ended.Load() == 0; turns.Add(1) {
				g := waittest.Acquire(t, l)
				need.Equal(t, "holders", inside.Add(1), 1)
				inside.Add(-1)
				waittest.Release(t, g)
			}
		})
	}
	more := func() {
		t.Helper()
		now := turns.Load()
		eventually(t, "more turns", func() bool { return turns.Load() >= now+20 })
	}
	more()
	open := need.Get(db.BeginTx(t.Context(), nil))(t)
	need.Get(open.Exec("SELECT COUNT(*) FROM tierlock_contender"))(t)
	upgraded := make(chan error)
	for range 4 {
		go func() { upgraded <- later(1).migrate(soon(t), db) }()
	}
	eventually(t, "an upgrade that waits for the table", func() bool {
		return ask[int](t, poolAt(t, mysqlserver.RootDSN(s.Addr())),
			"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state LIKE 'Waiting for table metadata lock%' AND info LIKE 'ALTER%'") > 0
	})
	more()
	need.OK(t, open.Rollback())
	for range 4 {
		need.OK(t, <-upgraded)
	}
	need.Equal(t, "version", ask[int](t, db, "SELECT version FROM tierlock_state"), firstVersion+1)
	more()
	need.OK(t, held.Err())
	waittest.Release(t, held)
	need.OK(t, Migrate(soon(t), db)) // a program of the previous version starts
	waittest.Release(t, waittest.Acquire(t, begin(t, s.Addr(), ttl).at(t, "/held")))
	ended.Store(1)
	work.Wait()
}

// MySQL commits each statement separately, and therefore Migrate may stop after any of them. Another call of Migrate continues.
func TestMigrateThatStopsInTheMiddleIsRepeated(t *testing.T) {
	t.Parallel()
	db, s := bare(t)
	c := need.Get(connect(soon(t), db, ttl))(t)
	defer c.discard()
	half, _, _ := strings.Cut(versions[0], "DECLARE told CURSOR") // in the middle of a procedure
	need.That(t, "half a schema", execute(soon(t), c, half) != nil)
	need.OK(t, Migrate(soon(t), db))
	need.OK(t, Migrate(soon(t), db))
	waittest.Release(t, waittest.Acquire(t, begin(t, s.Addr(), ttl).at(t, "/x")))
}

func TestProgramWorksWithTheSchemaOfItsVersionAndOfTheNext(t *testing.T) {
	t.Parallel()
	db, _ := bare(t)
	c := need.Get(db.Conn(soon(t)))(t)
	defer c.Close()
	refuses := func(more int, err error, says ...string) {
		t.Helper()
		wantErr(t, err, errSchema)
		need.WantMention(t, err, append(says, fmt.Sprintf("needs version %d or %d; ", firstVersion+more, firstVersion+more+1))...)
	}
	check := func(more int) error { return later(more).check(soon(t), c) }
	migrate := func(more int) error { return later(more).migrate(soon(t), db) }
	is := func(more int) {
		t.Helper()
		need.Equal(t, "version", ask[int](t, db, "SELECT version FROM tierlock_state"), firstVersion+more)
	}
	refuses(0, check(0), " has none,", "run mysqllock.Migrate")
	need.OK(t, migrate(0))
	need.OK(t, check(0))
	refuses(1, check(1), "version 1,", "; run mysqllock.Migrate")
	need.WantMention(t, append(later(1), "DELIMITER //\nno SQL").migrate(soon(t), db), "syntax")
	is(1)
	need.OK(t, check(0))
	need.OK(t, migrate(0))
	is(1)
	need.OK(t, migrate(3))
	for _, more := range []int{0, 1} {
		refuses(more, check(more), "version 4,", "use a later release")
		refuses(more, migrate(more), "version 4,", "use a later release")
	}
	need.OK(t, check(2))
	need.OK(t, check(3))
	is(3)
	run(t, db, "UPDATE tierlock_state SET version = -1")
	refuses(0, check(0), "version -1,", "drop all tables and procedures whose names begin with tierlock_")
	refuses(0, migrate(0), "version -1,", "drop all tables and procedures whose names begin with tierlock_")
}
