package advisory

import "fmt"

// The statements, by the names under which each session has them prepared. $1 is a key; a name
// is what pg_stat_activity shows of a session, behind its token.
//
// A token is drawn once the lock is granted, so that it is greater than all before.
var statements = map[string]string{
	"try":         lock("pg_try_advisory_lock", "WHERE granted"),
	"try-shared":  lock("pg_try_advisory_lock_shared", "WHERE granted"),
	"lock":        lock("pg_advisory_lock", ""),
	"lock-shared": lock("pg_advisory_lock_shared", ""),

	"leave":        "SELECT pg_advisory_unlock($1), set_config('application_name', $2, false)",
	"leave-shared": "SELECT pg_advisory_unlock_shared($1), set_config('application_name', $2, false)",

	"leave-all": "SELECT pg_advisory_unlock_all()",

	// Who holds a lock alone and asks for a share of it is granted that before all who wait.
	"share": "WITH l AS MATERIALIZED (SELECT pg_advisory_lock_shared($1)) SELECT pg_advisory_unlock($1) FROM l",

	// Nobody needs a notification that a server has lost in a crash: do not wait for the disk.
	"announce": "SELECT set_config('synchronous_commit', 'off', true), set_config('application_name', $2, false), " +
		"pg_notify('tierlock', 'waits ' || $1)",
	"ask": "SELECT set_config('synchronous_commit', 'off', true), pg_notify('tierlock', 'asked ' || $1)",

	"name": "SELECT set_config('application_name', $1, false)",

	// Those that hold or want the locks of these keys, first in the queue first. A table lock has two keys.
	"look": `SELECT k.key, l.pid, l.mode = 'ShareLock', l.granted, coalesce(a.application_name, '')
		FROM pg_locks l CROSS JOIN LATERAL (SELECT (l.classid::bigint << 32) | l.objid::bigint AS key) k
		LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND k.key = ANY ($1::bigint[]) ORDER BY l.granted DESC, l.waitstart, l.pid`,
}

func lock(function, granted string) string {
	return fmt.Sprintf(`WITH l AS MATERIALIZED (SELECT %s($1) AS granted),
		t AS MATERIALIZED (SELECT nextval('tierlock.token') AS token FROM l %s)
		SELECT token, set_config('application_name', 'tierlock ' || token || $2, false) FROM t`, function, granted)
}

// inMode is the statement for those that share the lock, or for the others.
func inMode(statement string, shared bool) string {
	if shared {
		return statement + "-shared"
	}
	return statement
}
