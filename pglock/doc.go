// Package pglock provides the locks of package tier on PostgreSQL. Each process has one row per lock, however many of its goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This page documents only what is special about PostgreSQL.
//
// There are two kinds of locks. [New] stores locks in tables: these locks are durable, and their number is not limited. [NewAdvisory] uses
// session advisory locks, which are faster and promise less. Locks in tables and advisory locks do not exclude each other. The rest of
// this page describes locks in tables.
//
// A process that wants the lock at path inserts a row into tierlock.contender. The row with the lowest number belongs to the holder, and
// this number is the fencing token. A [tier.Semaphore] at path has a separate queue, independent of the lock at path. The number of permits
// is stored by [tier.Semaphore.SetPermits]. If no number is stored, all processes use the number in the rows of the queue. A process that
// passes a different number to [tier.Registry.Semaphore] gets this number instead.
//
// # What is promised
//
// The server decides which row is first, so a lock has only one holder. Locks and places in the queue survive a restart or a crash of the
// server. Transactions on which a lease or a place in the queue depends set synchronous_commit to on, if the role has a weaker setting.
//
// [Tx] is a guarded write: its transaction cannot commit once the lock is lost. For data in the same database you need no fencing token.
//
// When another server takes over, locks depend on the replication:
//
//   - If a synchronous standby with all acknowledged transactions is promoted, holders keep their locks, and waiters keep their places.
//   - With asynchronous replication, the newest rows may be missing. A holder whose row is missing learns of its loss when it connects to
//     the new primary, before its lease is renewed, or when its lease ends. Recently deleted rows may reappear. The process to which these
//     rows belong deletes them when it connects.
//   - Caution: fence the old primary. If the old primary keeps running, and clients still reach it, two processes can hold the same lock.
//     A primary with synchronous standbys fences itself, because it acknowledges no transaction without a standby.
//
// If an acquisition is cancelled or its answer is lost, its row is deleted in the background. If that fails, the row is deleted when the
// session ends.
//
// Caution: if an operator deletes the row of a holder, the next process gets the lock within a quarter of the TTL. The holder learns of
// its loss within another quarter of the TTL.
//
// # Grace periods and lost data
//
// A server that has lost its newest data could grant a lock that another process still holds. Therefore each start and each promotion of
// the server begins a grace period. The grace period starts when the first process connects after the start or the promotion, and lasts for
// the longest TTL ever used in the database. During the grace period holders keep their locks, and no lock is granted. A
// [tier.GracePeriodError] says when it ends. A new database has no grace period. The database records the longest TTL, in milliseconds. If
// the recorded TTL is too long, and no process uses it any more, correct the record:
//
//	UPDATE tierlock.grace_period SET longest_ms = 15000;
//
// The grace period makes locks safe after these losses of data:
//
//   - a standby is promoted, with or without all acknowledged transactions;
//   - a volume or data directory is set back to a snapshot or backup, or pg_resetwal is run;
//   - the server crashes without durable writes, because of fsync = off or a disk that loses acknowledged writes;
//   - clients switch to another server that was filled by logical replication, a migration service or a restored dump.
//
// After such a loss, the next token is a million higher than the highest token in the data, and higher than the time of the server in
// microseconds.
//
// Caution: pglock does not notice that a running server lost data in these cases:
//
//   - A virtual machine is set back together with its memory.
//   - An operator deletes or restores rows (TRUNCATE, pg_restore --data-only), or replication writes to the tables. After such a change,
//     restart the server before programs connect.
//   - An operator sets the sequence tierlock.token back. The order of each queue is kept, but new tokens may be lower than tokens of
//     earlier locks. Tokens of advisory locks are not checked. Never set the sequence back.
//
// If the record of the longest TTL is lost with the data, the grace period is too short. Therefore use the same TTL in all processes.
//
// # The lease
//
// A process has one session, a row that it renews every quarter of the TTL with one statement, however many locks it has. The lease starts
// when the process sends a renewal that the server answers. The lease lasts for the TTL less the margin. A holder keeps its lock through
// any outage of up to TTL - margin - TTL/4, less the duration of one request.
//
// The lease assumes that the server's wall clock is not stepped forward by more than the margin. The clock of a new primary must not be
// ahead of the clock of the old primary by more than the margin. If the new clock is ahead, leases end too early. If the new clock is
// behind, locks of dead processes stay taken for longer.
//
// The server uses NOTIFY to inform a process that it has the lock, that another process waits, or that the lock was requested with Revoke.
// If a notification is lost, the process gets the information with its next renewal.
//
// # Connections
//
// The package opens its own connections, with the pool's settings and its hooks BeforeConnect and AfterConnect. One connection renews the
// session and listens, and up to four connections send requests. Therefore a busy pool does not end a lease. Tx uses the connections of
// the pool itself. Connections must reach a server that takes writes: name all servers in the URL, with target_session_attrs=read-write.
// PgBouncer works only in session mode; in transaction mode acquisitions fail at once.
//
// The package sets timeouts, search_path, isolation and encodings of its connections itself, and overrides settings of the role, the URL
// or a hook. If a request waits for a transaction of another program, the server refuses the request after an eighth of the TTL, and the
// package repeats it.
//
// The role needs the privileges that [Migrate] lists. If a privilege is missing, the error of an acquisition names it. The package refuses
// CockroachDB and YugabyteDB, because their pg_advisory_lock does not exclude other sessions.
//
// # What it costs
//
//   - An uncontended acquisition, a release, and a release that queues again cost one transaction in one round trip each. The cost is the
//     same for a lock and for any number of permits. A transfer to another process costs the commit of the release and its notification.
//     The process that gets the lock needs one more read.
//   - TryAcquire costs one transaction, which writes nothing if the lock is taken.
//   - A waiter for a lock reads only its neighbors, however long the queue is. Therefore Position of [tier.Wait] counts at most the hundred
//     entries right ahead of it.
//   - A process sends one heartbeat every quarter of the TTL. The cost of a heartbeat grows with the length of the queues in which the
//     process holds a lock or permits.
//
// Each commit waits for the disk, and for a synchronous standby if there is one. PostgreSQL serializes the commits of all transactions
// that notify. Therefore the server executes about one contended transfer per commit latency, for all locks together.
//
// Deleted rows occupy space until vacuum removes them. A long open transaction anywhere in the database prevents vacuum from removing
// them.
//
// # Limits
//
// A process can be paused after it has checked the lock and before it writes. Therefore write with [Tx], or pass [tier.Hold.Token] to the
// resource.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 24 h.
package pglock
