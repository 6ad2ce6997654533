// Package mysqllock is the lock of package tier on MySQL and MariaDB: each process queues with one row, however many of its goroutines
// wait.
//
//	db, err := sql.Open("mysql", "app@tcp(db)/app")
//	…
//	defer db.Close()
//	if err := mysqllock.Migrate(ctx, db); err != nil { // once, or with your own migrations: mysqllock.Schema
//		return err
//	}
//	locks, err := mysqllock.New(ctx, db)
//	…
//	defer locks.Close()
//	return locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // one at a time in all processes; ctx ends if the lock is lost
//	})
//
// Package tier documents the lock, which is the same on every store. This is what is particular to MySQL and MariaDB.
//
// A process that wants the lock at path inserts a row into tierlock_contender. A transaction that changes a queue locks the row of the
// path's slot until it ends, and draws the token from it. Therefore tokens become visible in their order: a process that sees its own row
// and no lower token is first for good.
//
// Permits of a [tier.Semaphore] at path have a queue of their own in the same table. The transaction that inserts a row compares the
// number of permits with the one that was set, or else with that of the queue.
//
// # Servers
//
// MySQL 8.0 or later, MariaDB 10.6 or later, and what is built from them, with InnoDB. The driver is go-sql-driver/mysql. The tests run
// on MariaDB 10.11, and make compat runs them on Debian's MySQL, which was 9.7.
//
// [New] refuses servers that cannot keep the promises, and says why:
//
//   - a node of a Galera cluster (wsrep_on), where rows are not locked on the other nodes;
//   - a member of a replication group with several primaries. Single-primary mode works like replicas;
//   - a server with the binary log in the format STATEMENT. Set binlog_format to ROW or MIXED;
//   - a server with --sysdate-is-now, where procedures cannot read the clock;
//   - TiDB, Vitess, OceanBase and others that speak the protocol and are built otherwise;
//   - a proxy that sends reads to another server than writes.
//
// New and each acquisition wait while the server is read-only, as a replica is until it takes over.
//
// # What is promised
//
// The server decides which contender is first. Therefore there is one at most.
//
// [Tx] is a transaction that cannot be committed once the lock is lost, or one of the locks of a [tier.Bundle]. It is for data in the same
// database, and needs no token there.
//
// Rows are on disk if innodb_flush_log_at_trx_commit and sync_binlog are 1, as they are by default in MySQL. MariaDB leaves sync_binlog at
// 0, which matters with a binary log. After a restart or a crash of such a server, holders still have their locks, and waiters their
// places. Where a replica takes over:
//
//   - The rows of the last moments may be missing. A holder without a row learns that it has lost the lock when it connects to the new
//     primary, before its lease is renewed there, or else when its lease ends. Rows that were deleted may be back; their process
//     deletes them when it connects.
//   - The old primary has to be dead or read-only. If it goes on, and clients still reach it, two processes may have one lock. Fence it.
//
// # A server that lost data
//
// A server that lost its newest data would grant a lock that another process still has. The server cannot tell whether it lost any.
// Therefore each start of a server, and each change to another server, begins a grace period: no lock is granted for the longest TTL that
// was ever used in the database. A [tier.GracePeriodError] says so. Holders keep their locks meanwhile. Tokens then continue above
// all earlier ones, because they are at least the server's time in microseconds. A new database has no grace period. After one TTL that
// was too long, and once its process has ended, set the noted one, in milliseconds: UPDATE tierlock_state SET longest_ms = 15000.
//
// Caution: mysqllock does not notice a loss in a server that runs on:
//
//   - A virtual machine is set back with its memory.
//   - An operator deletes or restores rows. Restart the server afterwards, before programs connect.
//   - A primary becomes a replica and later the primary again without a restart, and has not received what the primary in between
//     wrote. Restart it before it takes writes.
//
// # Loss and late requests
//
// The lease does not cover an operator who deletes the row of a holder. The next contender then gets the lock within a quarter of the TTL,
// and the holder hears of it within another.
//
// No row outlives its purpose. A request that is not answered is sent again under the same id, and then finds what it did before. If the
// lock is not wanted any more, the row is deleted in the background. A server may execute a request late, after that delete. Therefore,
// once a request has gone unanswered, the process compares the rows of its session with what it wants at each renewal.
//
// # The lease
//
// A process has one session, a row that it renews each quarter of the TTL with one call, however many locks it has. That call waits for no
// queue. The lease runs from when the process sent the newest renewal that was answered, for the TTL less the margin. The server counts
// from when it executed it. A session that has expired is never renewed. This assumes that the clock of the server (SYSDATE) is not
// stepped forward by more than the margin.
//
// # How a process hears of its turn
//
// MySQL and MariaDB have no notifications. A process has one connection that waits at the server (GET_LOCK) unless there is news for its
// session. A transaction that has news commits it and then ends that wait (KILL QUERY). News that comes between two waits is found at the
// beginning of the next one, in the same statement, so that none is missed. The wait holds a lock of the server with the name of the
// session, which the one that ends it looks up. Therefore no other statement is ever ended, also after a restart of the server.
//
// A user may end only statements of its own connections. If your programs connect as several users, a process that is not woken finds
// that out, logs a warning, and asks for news 20 times a second. What is missed altogether a process reads with its next renewal.
//
// # Connections
//
// [New] takes up to six connections from the pool and keeps them: one that renews, one that listens, and up to four for requests. It sets
// what the locks depend on there: the isolation, sql_mode, the time zone and timeouts. Such settings of the user, the data source name or
// the server do not reach it. The connections are closed, and not given back to the pool.
//
// Caution: a connection that breaks is replaced by one from the pool. If the program uses all connections of a limited pool
// (SetMaxOpenConns) for most of a TTL then, the lease ends.
//
// Caution: the connection that listens is mute for up to two seconds. With a readTimeout below three seconds in the data source name it
// breaks again and again, which [tier.Registry.Err] says, and turns are then heard of at renewals only.
//
// # What it costs
//
// An acquisition is one call and one commit, and so is a release or a requeue. A try that finds the lock taken writes nothing. A lock goes
// from one process to the next with the commit of the release, the wake and one read. Each commit waits for the disk.
//
// A process that waits for a lock reads its whole queue at each renewal, one row for each process in it.
//
// # What is not promised
//
// A process that was stopped acts late, as package tier says; write with [Tx].
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 24 h.
package mysqllock
