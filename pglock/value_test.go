package pglock

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/tier"
)

// A program of the previous version works with the old and the new schema. The upgrade gives its roles the rights for values, which its
// next version needs.
func TestUpgradeGivesValuesToTheRolesThatUseLocks(t *testing.T) {
	t.Parallel()
	url := database(t)
	admin, before := poolAt(t, url), history{firstSchema}
	need.OK(t, before.migrate(soon(t), admin))
	role := "user_" + newID()
	exec(t, admin, "CREATE ROLE "+role+" LOGIN")
	exec(t, admin, "GRANT USAGE ON SCHEMA tierlock TO "+role+"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock TO "+
		role+", PUBLIC; GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock TO "+role)
	need.OK(t, before.check(soon(t), admin))
	need.OK(t, Migrate(soon(t), admin))
	need.OK(t, before.check(soon(t), admin))
	need.OK(t, before.migrate(soon(t), admin))

	locks := need.Get(New(soon(t), poolAt(t, strings.Replace(url, "//postgres@", "//"+role+"@", 1))))(t)
	defer locks.Close()
	hold := need.Get(locks.Mutex("/a").Acquire(soon(t)))(t)
	need.OK(t, hold.Save(soon(t), []byte("x")))
	need.Equal(t, "value", string(need.Get(locks.Mutex("/a").Load(soon(t)))(t).Data), "x")
	need.OK(t, hold.Forget(soon(t)))
	need.Equal(t, "rows that are kept for a late write", ask[int](t, admin, "SELECT count(*) FROM tierlock.value WHERE data IS NULL"), 1)
	need.OK(t, hold.Release())
	next := need.Get(locks.Mutex("/a").Acquire(soon(t)))(t)
	need.OK(t, next.Forget(soon(t)))
	need.Equal(t, "rows of another holder", ask[int](t, admin, "SELECT count(*) FROM tierlock.value"), 0)
	exec(t, admin, "REVOKE ALL ON tierlock.value FROM PUBLIC, "+role)
	need.WantMention(t, next.Save(soon(t), []byte("x")), "/a", "permission denied for table value")
	need.WantMention(t, need.ErrOf(locks.Mutex("/a").Load(soon(t))), "/a", "permission denied for table value")
	need.OK(t, next.Release())
}

func TestStandbyLoadsNoValue(t *testing.T) {
	e := newPair(t)
	e.replicated(t)
	pool := poolAt(t, pgserver.PlainURL(e.standby.Addr()))
	_, err := pool.Exec(soon(t), "SELECT * FROM tierlock.load('/a')", pgx.QueryExecModeExec)
	need.WantMention(t, err, "recovery")
}

// An advisory lock and a lock in tables at the same path do not exclude each other, and each has a value of its own.
func TestAdvisoryLockHasAValueOfItsOwn(t *testing.T) {
	t.Parallel()
	pool := migrated(t, database(t))
	rows, advisory := need.Get(New(soon(t), pool))(t), need.Get(NewAdvisory(soon(t), pool))(t)
	for data, locks := range map[string]*tier.Registry{"rows": rows, "advisory": advisory} {
		defer locks.Close()
		hold := need.Get(locks.Mutex("/a").Acquire(soon(t)))(t)
		need.OK(t, hold.Save(soon(t), []byte(data)))
		defer hold.Release()
	}
	for data, locks := range map[string]*tier.Registry{"rows": rows, "advisory": advisory} {
		need.Equal(t, "value", string(need.Get(locks.Mutex("/a").Load(soon(t)))(t).Data), data)
	}
}
