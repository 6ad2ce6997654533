package pglock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// A firstUse stores that the program has declared, with WithNewServer, that no process has used locks on this server before.
type firstUse struct {
	mark  int64 // a random number of microseconds; it identifies the record that this process writes
	taken atomic.Bool
}

func newFirstUse() *firstUse { return &firstUse{mark: rand.Int64N(1 << 50)} }

// errUsed means that locks on this server have been used before.
var errUsed = errors.New("WithNewServer: a process has used locks in this database before, or the server was promoted; " +
	"leave the option out")

// firstSQL writes a record that the server was started long ago, so that there is no grace period. The time of that start is the mark of
// this process. If the answer is lost, the repeated command recognizes the record of this process by the mark.
const firstSQL = `WITH durably AS MATERIALIZED (SELECT tierlock.durably()), first AS (UPDATE tierlock.grace_period
	SET life = tierlock.life(locks), since = 'epoch'::timestamptz + $1::bigint * interval '1 us', longest_ms = $2::bigint
	WHERE longest_ms = 0 AND NOT EXISTS (SELECT FROM tierlock.session) AND 2 = (SELECT count(*) FROM tierlock.grace_period
		WHERE longest_ms = 0 AND (locks <> 'tables' OR split_part(life, ' ', 1) = tierlock.timeline())) RETURNING 1)
	SELECT EXISTS (SELECT FROM first)
		OR EXISTS (SELECT FROM tierlock.grace_period WHERE since = 'epoch'::timestamptz + $1::bigint * interval '1 us')
	FROM durably`

// declare makes the server store the declaration of the program. It does that once, before the grace period is read. If f is nil, declare
// does nothing.
func (f *firstUse) declare(ctx context.Context, conn *pgx.Conn, ttlMS int64) error {
	if f == nil || f.taken.Load() {
		return nil
	}
	var first bool
	err := conn.QueryRow(ctx, firstSQL, f.mark, ttlMS).Scan(&first)
	if err == nil && !first {
		err = errUsed
	}
	f.taken.Store(err == nil)
	return err
}
