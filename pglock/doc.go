// Package pglock is the lock of package tier on PostgreSQL: each process queues with one row,
// however many of its goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This is what is particular to
// PostgreSQL. There are two tiers. [New] has the locks in tables: they are durable, and there may be any
// number of them. [NewAdvisory] has session advisory locks, which are faster, and says what they cannot
// promise. The locks of one tier do not exclude those of the other. The rest of this is about New.
//
// A process that wants the lock at path inserts a row into tierlock.contender. Whoever inserts or deletes
// one has the queue of that path to itself until its transaction ends (pg_advisory_xact_lock), and draws
// the number of its row from a sequence only then: numbers become visible in their order. So a process
// that sees its own row and none with a lower number is first, and nobody comes before it any more. That
// number is the token.
//
// Those who want permits of a [tier.Semaphore] at path have a queue of their own, in the same table. It has nothing to do with that
// of the lock at path, and nobody else's semaphore is compatible. The transaction that inserts a row compares how many permits there
// are: the number that was set in tierlock.semaphore, or else that of the rows of the queue. A process that gives another number
// follows it.
//
// # What is promised
//
// The server decides who is first, so there is one at most.
//
// [Tx] is a transaction that cannot be committed once the lock is lost, or one of the locks of a
// [tier.Bundle]. It is for data in the same database, and needs no token there.
//
// Rows are on disk. After a restart or a crash of the server, holders still have their locks, and waiters their places. Where another
// server takes over:
//
//   - With synchronous standbys (synchronous_standby_names), of which one that has all that was
//     acknowledged is promoted, holders keep their locks, and those who wait their places.
//   - With others the rows of the last moments may be missing. A holder without a row learns that it has
//     lost the lock when it connects to the new primary, before its lease is renewed there, or else when
//     its lease ends. Rows of the last moments that were deleted may be back; their process deletes them
//     when it connects.
//   - The old primary has to be dead. One that goes on, with clients that go on to reach it, keeps their
//     leases, and two processes may have one lock; unless it acknowledges nothing without a standby, which
//     synchronous ones see to. Fence it.
//
// synchronous_commit is set to on in each transaction that a lease or a place in a queue depends on if the
// role has less: what a process was told would otherwise not be there after a crash.
//
// # A server that lost data
//
// A server that lost its newest data would grant a lock that another process still has. The server cannot tell whether it lost any.
// Therefore each start and each promotion begins a grace period: the server grants no lock for the longest TTL that was ever used in
// the database, from when a process first calls it. A [tier.GracePeriodError] says so. Holders keep their locks meanwhile. A new
// database has no grace period. After one TTL that was too long, and once its process has ended, set the noted TTL to the longest
// that is in use, in milliseconds: UPDATE tierlock.grace_period SET longest_ms = 15000.
//
// The grace period covers every loss that comes with a start of the server or with another server:
//
//   - a promotion, with or without all that was acknowledged;
//   - a volume or a data directory that was set back to a snapshot or a backup, and pg_resetwal;
//   - a crash without durable writes, as with fsync = off, or a disk that loses what it has acknowledged;
//   - a switch to another server by logical replication, a migration service, or a restored dump.
//
// Tokens then go on a million above the greatest one that the data shows, also where the sequence was not carried over.
//
// Caution: pglock does not notice a loss in a server that runs on:
//
//   - A virtual machine is set back with its memory. Nothing is started then.
//   - An operator deletes or restores rows (TRUNCATE, pg_restore --data-only), or a replication writes to the tables of a server in
//     use. Restart the server afterwards, before programs connect.
//   - An operator sets the sequence tierlock.token back. Each entry compares its token with those of its queue and with the one that
//     is noted of it, and the order holds. But tokens may be lower than those of locks that were released before. Tokens of advisory
//     locks are compared with nothing. Never set the sequence back.
//
// The grace period cannot know a TTL longer than all others if it was noted in the lost data alone.
//
// # Loss and late requests
//
// The lease does not cover an operator who deletes the row of a holder. The next contender then gets the
// lock within a quarter of the TTL, and the holder hears of it within another.
//
// No row outlives its purpose. A request that is not answered is sent again, under the same fresh id, and
// then finds what it did before; if nobody wants the lock any more, its row is deleted in the background. A
// server may execute a request late, after that delete. So once a request has gone unanswered, and until
// the session ends, the process lists its rows with each renewal and deletes those that it does not want; also
// once a delete was not possible, as the server has no connection to spare but the one that renews, and once another
// connection was made, as that may be to another server.
//
// # The lease
//
// A process has one session, a row that it renews each quarter of the TTL with one statement, however many
// locks it has. That waits for no queue, and no lock of anybody's. The lease runs from when the process
// sent the newest renewal that was answered, for the TTL, less the margin; the server counts from when it
// executed it. A holder keeps its lock through any outage of TTL - margin - TTL/4, less a request. A
// session that has expired is never renewed. This assumes that the clock of the server, which is its wall
// clock (clock_timestamp), is not stepped forward by more than the margin, nor that of a server that takes over
// ahead by more than that: such a step ends leases early. One that is behind keeps locks taken for longer.
//
// The process with the next turn is told by NOTIFY, and so is a holder that somebody waits, or that somebody
// asks for the lock. What is lost of that, it reads with the next renewal.
//
// # Connections
//
// The tier connects as the pool does, with its hooks BeforeConnect and AfterConnect, but on connections of
// its own: one that renews and listens, and up to four for requests, which are one round trip each; what a turn
// needs is prepared when the connection is made. So a busy pool does not end leases. The pool itself serves Tx. The
// connections have to reach a server that
// takes writes: name all of them in the URL, with target_session_attrs=read-write. Each needs a session of its
// own, to listen and for its settings: PgBouncer in session mode will do, in transaction mode it is refused, and
// acquisitions fail at once.
//
// The tier sets what it depends on once the hooks have run: timeouts, search_path, the isolation of transactions, and encodings.
// Such settings of the role, the URL or a hook do not reach it. A request that waits for a transaction in front of it is refused
// after an eighth of the TTL (lock_timeout) and sent again.
//
// The role needs no more than the rights that [Migrate] names; acquisitions fail with what is missing.
//
// CockroachDB and YugabyteDB are refused by name: pg_advisory_lock, which orders each queue, does not exclude other sessions there.
//
// # What it costs
//
// An acquisition is one transaction, and so are a release and a requeue, of a lock and of permits, however many they are; a try is
// one, which writes nothing if somebody is in the way. A lock goes from one process to the next with that commit and its
// notification, without another request. Behind somebody there is a read besides. Each commit waits for
// the disk, and for a synchronous standby.
//
// Rows that were deleted are there until vacuum removes them, which a transaction that stays open for long keeps it from,
// anywhere in the database. Now and then it is noted where a busy queue begins, in one of at most 1,024 rows, so that only those
// deleted since are passed by. Notifications of a database are committed one at a time.
//
// A process that waits for a lock reads only the contenders around its own at a heartbeat, however long the queue is. It counts how many
// are ahead among the hundred right ahead of it. A queue of permits, and one in which the process has the lock, is read as a whole, once
// for all portions of the process. The time of a heartbeat therefore grows with the length of those queues, as does that of an
// acquisition or a release of permits: with 4,000 portions it is about as long as that of a heartbeat with 4,000 locks.
//
// # What is not promised
//
// A process that was stopped acts late, as package tier says; write with [Tx].
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 24 h.
package pglock
