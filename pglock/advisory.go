package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/pglock/internal/advisory"
	"github.com/tierlock/tierlock/tier"
)

// NewAdvisory returns the locks of this process as session advisory locks, which cannot promise
// what those of [New] do:
//
//   - Exclusion needs the TCP connection to be alive at both ends or at none. Whatever ends the
//     session at the server gives the lock to the next one at once: an operator with
//     pg_terminate_backend, a proxy or firewall that breaks connections. The holder hears of it
//     when its own end breaks, and otherwise with its next heartbeat, after a quarter of the TTL at
//     most.
//   - A primary that was isolated and goes on while another one is promoted keeps its holders, and
//     the promoted one grants their locks again once its quarantine is over: fence the old one
//     (Patroni's watchdog, STONITH). Tokens may start lower again on a standby that was promoted
//     without all that the primary wrote.
//   - PgBouncer does not pass on that an idle session is to end, without which there is no lease, and in
//     transaction mode gives each transaction to another session. Acquisitions fail at once, and say so.
//     Connect to the server itself.
//   - A session that waits for a lock holds a snapshot all the while. It keeps vacuum from removing
//     what is dead, and CREATE INDEX CONCURRENTLY waits for it: run by the holder of the lock, for
//     ever.
//
// In turn a lock changes hands with one round trip and without a write to a table. Choose it for a
// few hot locks with short waits; choose [New] for leaders, and for many paths. It takes the schema
// of [Migrate] and PostgreSQL 14 or later. It connects as pool does, with its hooks BeforeConnect
// and AfterConnect, but on connections of its own. Options, who waits for the first connection, and
// what an error says at once, are those of New.
//
// # Connections
//
// A process has one connection for what it has to hear, and one more for each lock that it holds or
// waits for, which it keeps for others for half a TTL: each is a process at the server
// (max_connections). The role of pool may be limited to so many; an acquisition that gets no
// connection tries again.
//
// # The lease
//
// The server ends a session that has been idle for the TTL (idle_session_timeout), and the lock is
// free. The lease runs from when the newest statement was sent that the server has answered in that
// session, for the TTL, less the margin; there is one each quarter of the TTL. One that waits is
// not idle: the server takes it off the queue when its client is gone, within a second where it can
// tell (client_connection_check_interval, on Linux), by keepalives after the TTL, and else when its
// turn comes and the TTL is over. When the connection breaks, the lock is lost at once; while the
// server is merely silent, it is ours for as long as the lease lasts.
//
// A server that starts again, or is promoted, or whose lock table is emptied because one of its
// processes has crashed, knows no locks, while a holder that is cut off counts on its lease. So it
// grants nothing for the longest TTL that any process in the database has ever used, from when a
// process first connects to it: its quarantine, which a [*tier.QuarantineError] tells. After one TTL that
// was too long, and once its process has ended, set what is noted to the longest that is in use, in
// milliseconds: UPDATE tierlock.quarantine SET longest_ms = 15000.
//
// # What is different
//
// The key of a lock is a hash of its path; see pg_locks. Two paths with one key exclude each other,
// and so does anybody who takes that key with pg_advisory_lock: the first eight bytes of the
// SHA-256 of "tierlock:" and the path, as a bigint.
//
// The token is from a sequence, drawn once the lock is granted. So Contenders shows none for those
// that wait. It takes host and label from application_name, which the server cuts to 63 bytes and
// keeps in ASCII, and as ID has the pid of the server's process, for pg_terminate_backend.
//
// Revoke waits an eighth of the TTL at most for the holders to show that they know. A holder that
// is not connected then may hear of it up to a TTL later, or never. Holders of other programs
// cannot be asked; the error wraps [errors.ErrUnsupported].
//
// There are no semaphores, which [New] has: the error wraps [errors.ErrUnsupported].
func NewAdvisory(pool *pgxpool.Pool, opts ...Option) (*tier.Registry, error) {
	return front(pool, opts, openAdvisory)
}

func openAdvisory(pool *pgxpool.Pool, o options) (*queue.Tier, error) {
	return advisory.Open(advisory.Config{
		Pool: pool, Settings: o.Settings,
		CheckSchema: func(ctx context.Context, conn *pgx.Conn) error {
			if err := checkPooler(ctx, conn); err != nil {
				return err
			}
			if err := checkSchema(ctx, conn); err != nil {
				return err
			}
			return o.first.declare(ctx, conn, o.TTL.Milliseconds())
		},
		Permanent: func(err error) bool { return errors.Is(err, advisory.ErrNoLease) || classify(err) == queue.Denied },
	}), nil
}
