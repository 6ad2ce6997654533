// Package pglock has the locks of package tier on PostgreSQL. Each process has one row per lock, however many of its goroutines wait.
//
//	pool, err := pgxpool.New(ctx, "postgres://db1,db2/app?target_session_attrs=read-write")
//	…
//	defer pool.Close()
//	if err := pglock.Migrate(ctx, pool); err != nil { // once, or with your own migrations: pglock.Schema
//		return err
//	}
//	locks, err := pglock.New(ctx, pool)
//	…
//	defer locks.Close()
//	return locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // one at a time in all processes; ctx ends if the lock is lost
//	})
//
// Package tier documents the lock, which is the same on every store. This page documents what PostgreSQL adds.
//
// There are two kinds of locks. [New] stores locks in tables: they are durable, and their number is not limited. [NewAdvisory] uses session
// advisory locks, which are faster and promise less. Locks of one kind do not exclude locks of the other. The rest of this page is about
// New.
//
// A process that wants the lock at path inserts a row into tierlock.contender. The row with the lowest number is the holder's, and that
// number is the fencing token. A [tier.Semaphore] at path is a queue of its own, independent of the lock at path. The number of
// permits is the one that [tier.Semaphore.SetPermits] stored; if there is none, the one in the rows of the queue. A process that gives
// another number follows it.
//
// # What is promised
//
// The server decides which row is first, so there is one holder. Locks and places in the queue survive a restart or a crash of the server.
// Each transaction that a lease or a place depends on sets synchronous_commit to on, if the role has less.
//
// [Tx] is a guarded write: its transaction cannot commit once the lock is lost. For data in the same database it replaces a fencing token.
//
// When another server takes over:
//
//   - With synchronous standbys, and the promotion of one that has all acknowledged transactions, holders keep their locks and waiters
//     their places.
//   - With asynchronous replication, the newest rows may be missing. A holder without a row learns that it has lost the lock when it
//     connects to the new primary, before its lease is renewed, or when its lease ends. Recently deleted rows may be back; their process
//     deletes them when it connects.
//   - Caution: fence the old primary. If it goes on, and clients still reach it, two processes can hold a lock. A primary with synchronous
//     standbys fences itself, because it acknowledges nothing without them.
//
// Rows of cancelled acquisitions and lost answers are deleted in the background, and end with the session at the latest.
//
// Caution: an operator who deletes the row of a holder gives the lock to the next process within a quarter of the TTL. The holder learns of
// it within another quarter.
//
// # Grace periods and lost data
//
// A server that has lost its newest data could grant a lock that another process still holds. Therefore each start and each promotion of
// the server begins a grace period. It lasts for the longest TTL ever used in the database, counted from the first call of a process. In
// that time holders keep their locks and no lock is granted; a [tier.GracePeriodError] says until when. A new database has no grace
// period. If one process once used a TTL that was too long, and has ended, correct the recorded TTL, in milliseconds:
//
//	UPDATE tierlock.grace_period SET longest_ms = 15000;
//
// The grace period covers these losses:
//
//   - a promotion, with or without all acknowledged transactions;
//   - a volume or data directory set back to a snapshot or backup, and pg_resetwal;
//   - a crash without durable writes, as with fsync = off or a disk that loses acknowledged writes;
//   - a switch to another server by logical replication, a migration service, or a restored dump.
//
// Tokens then continue a million above the greatest one in the data.
//
// Caution: pglock does not notice a loss in a server that keeps running:
//
//   - A virtual machine is set back together with its memory.
//   - An operator deletes or restores rows (TRUNCATE, pg_restore --data-only), or replication writes to the tables. Restart the server
//     afterwards, before programs connect.
//   - An operator sets the sequence tierlock.token back. The order of each queue holds, but tokens may be lower than those of locks that
//     were released before, and tokens of advisory locks are not checked. Never set the sequence back.
//
// A TTL longer than all others that was recorded only in the lost data is not known to the grace period. Use one TTL everywhere.
//
// # The lease
//
// A process has one session, a row that it renews each quarter of the TTL with one statement, however many locks it has. The lease runs for
// the TTL less the margin, counted from when the process sent the newest answered renewal. A holder keeps its lock through any outage of
// up to TTL - margin - TTL/4, less one request.
//
// Assumption: the wall clock of the server is not stepped forward by more than the margin, and the clock of a new primary is not ahead by
// more than that. Such a step ends leases early. A clock that is behind keeps locks taken for longer.
//
// NOTIFY tells a process that it has the lock, that another process waits, and that a revoke was requested. A lost notification is made up
// for by the next renewal.
//
// # Connections
//
// The package connects as the pool does, with its hooks BeforeConnect and AfterConnect, but on connections of its own: one that renews and
// listens, and up to four for requests. A busy pool therefore ends no lease. The pool itself serves Tx. Connections must reach a server
// that takes writes: name all servers in the URL, with target_session_attrs=read-write. PgBouncer works in session mode; in transaction
// mode acquisitions fail at once.
//
// The package sets timeouts, search_path, isolation and encodings of its connections itself; settings of the role, the URL or a hook do not
// reach them. A request that waits for a foreign transaction is refused after an eighth of the TTL and repeated.
//
// The role needs the rights that [Migrate] lists; acquisitions name a missing one. CockroachDB and YugabyteDB are refused, because
// pg_advisory_lock does not exclude other sessions there.
//
// # What it costs
//
//   - An uncontended acquisition, a release, a requeue: one transaction and one round trip each, for a lock and for any number of permits.
//     A transfer to another process is the commit and its notification. A waiter reads once more.
//   - TryAcquire: one transaction, which writes nothing if the lock is taken.
//   - A heartbeat each quarter of the TTL. It grows with the length of the queues in which the process holds a lock or permits.
//
// Each commit waits for the disk, and for a synchronous standby. PostgreSQL serializes the commits of all transactions that notify, so
// contended transfers of all locks together are limited to about one per commit latency.
//
// Deleted rows stay until vacuum removes them, and a long open transaction anywhere in the database prevents that.
//
// # Limits
//
// A process can be paused after it has checked the lock and before it writes. Write with [Tx], or pass [tier.Hold.Token] to the resource.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 24 h.
package pglock
