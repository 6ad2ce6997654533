package pglock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// A firstUse is the statement of the program (WithNewServer) that the server was not used before.
type firstUse struct {
	mark  int64 // identifies the record of the process that wrote it, in microseconds
	taken atomic.Bool
}

func newFirstUse() *firstUse { return &firstUse{mark: rand.Int64N(1 << 50)} }

// errUsed says that the server has been used before.
var errUsed = errors.New("WithNewServer: the database has a record of locks before this process, or was promoted; leave the option out")

// firstSQL writes the record of a server with a start long ago, so that there is no grace period. The start has the mark of this process,
// by which a repeated command finds its own record if the first answer was lost.
const firstSQL = `WITH durably AS MATERIALIZED (SELECT tierlock.durably()), first AS (UPDATE tierlock.grace_period
	SET life = tierlock.life(locks), since = 'epoch'::timestamptz + $1::bigint * interval '1 us', longest_ms = $2::bigint
	WHERE longest_ms = 0 AND NOT EXISTS (SELECT FROM tierlock.session) AND 2 = (SELECT count(*) FROM tierlock.grace_period
		WHERE longest_ms = 0 AND (locks <> 'tables' OR split_part(life, ' ', 1) = tierlock.timeline())) RETURNING 1)
	SELECT EXISTS (SELECT FROM first)
		OR EXISTS (SELECT FROM tierlock.grace_period WHERE since = 'epoch'::timestamptz + $1::bigint * interval '1 us')
	FROM durably`

// declare makes the server record the statement, once, before its grace period is read. declare does nothing if f is nil.
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
