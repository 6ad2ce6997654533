// Package mysqllock provides the locks of package tier on MySQL and MariaDB. Each process queues with one row, no matter how many of its
// goroutines wait.
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
// Package tier documents the locks, which are the same on every store. This page describes what is special about MySQL and MariaDB.
//
// A process that wants the lock at path inserts a row into tierlock_contender. Each path belongs to a bucket, which is one row of
// tierlock_bucket. A transaction that changes a queue locks the row of the bucket until the transaction ends, and draws the token from that
// row. Therefore tokens become visible in their order. If a process sees its own row and no lower token, it is first, and stays first.
//
// The permits of a [tier.Semaphore] have a separate queue in the same table, independent of the lock at path. The number of permits is
// stored by [tier.Semaphore.SetPermits]. If no number is stored, the number in the rows of the queue applies. A process that passes a
// different number to [tier.Registry.Semaphore] gets this number instead.
//
// # Servers
//
// MySQL 8.0 or later, MariaDB 10.6 or later, and what is built from them, with InnoDB. The driver is go-sql-driver/mysql. The tests run
// on MariaDB 10.11, and make compat runs them on Debian's MySQL, which was 9.7.
//
// For a server on which the promises cannot be kept, [New] returns an error that says why:
//
//   - a node of a Galera cluster (wsrep_on), because a lock on a row has no effect on the other nodes;
//   - a member of a replication group with several primaries; a group in single-primary mode works;
//   - a server whose binary log has the format STATEMENT; set binlog_format to ROW or MIXED;
//   - a server with --sysdate-is-now, because procedures cannot read the clock there;
//   - TiDB, Vitess, OceanBase and other systems that speak the protocol of MySQL but lock rows in another way;
//   - a proxy that sends reads and writes to different servers.
//
// While the server is read-only, New and each acquisition wait. A replica is read-only until it takes over.
//
// # What is promised
//
// At most one process holds a lock, because the server decides which contender is first.
//
// [Tx] runs a transaction that cannot commit once the lock is lost. With a [tier.Bundle], it cannot commit once any of its locks is lost.
// Use it for data in the same database. You need no fencing token there.
//
// Each commit is on disk before it is answered if innodb_flush_log_at_trx_commit and sync_binlog are 1. Both are 1 by default in MySQL. In
// MariaDB, sync_binlog is 0 by default, which matters if the server has a binary log. With these settings, a restart or a crash of the
// server changes nothing: holders still have their locks, and waiters keep their places.
//
// If a replica takes over:
//
//   - Rows that were written shortly before may be missing. A holder whose row is missing loses the lock. It learns of the loss when it
//     connects to the new primary, before its lease is renewed there, or at the latest when its lease ends. Rows that were deleted may
//     exist again. Their process deletes them when it connects.
//   - The old primary has to be stopped or read-only. If it continues to run and clients still reach it, two processes may hold the same
//     lock. Fence the old primary.
//
// # A server that lost data
//
// A server that lost its newest data would grant a lock that another process still has. The server cannot tell whether it lost any.
// Therefore each start of a server, and each change to another server, begins a grace period, during which no lock is granted. It lasts as
// long as the longest TTL that was ever used in the database. A [tier.GracePeriodError] says so. Holders keep their locks meanwhile. Tokens
// then continue above all earlier ones, because they are at least the server's time in microseconds. A new database has no grace period.
//
// The database records the longest TTL. If a program once used a TTL that was too long, you can correct the record, in milliseconds:
// UPDATE tierlock_state SET longest_ms = 15000. Do that only when the process with the long TTL has ended.
//
// Caution: mysqllock does not notice that data was lost if the server was not restarted:
//
//   - A virtual machine is set back to a snapshot with its memory.
//   - An operator deletes or restores rows. Restart the server afterwards, before programs connect.
//   - A primary becomes a replica, and later the primary again, without a restart. It may not have received all data that the other
//     primary wrote in between. Restart it before it accepts writes.
//
// # Loss and late requests
//
// The lease does not protect a holder against an operator who deletes its row. The next contender then gets the lock within a quarter of
// the TTL. The former holder learns of the loss within another quarter of the TTL.
//
// Rows that are not needed any more are deleted. If a request gets no answer, it is sent again with the same ID, and then finds the effect
// of the first try. If the program does not want the lock any more, the row is deleted in the background. A server may execute a request
// late, even after that delete. Therefore, after a request without an answer, the process checks the rows of its session at each renewal,
// and deletes rows that it does not need.
//
// # The lease
//
// A process has one session, which is a row. The process renews it each quarter of the TTL with one call, no matter how many locks it has.
// That call does not wait for any queue. In the process, the lease lasts for the TTL less the margin. It starts when the process sends a
// renewal that is then answered. In the server, the session lasts for the TTL. It starts when the server executes that renewal, which is
// later. The server never renews a session that has expired. All this assumes that the clock of the server (SYSDATE) is not set forward by
// more than the margin.
//
// # How a process hears of its turn
//
// MySQL and MariaDB have no notifications. Instead, each process has one connection that listens. It executes a statement that waits in the
// server (GET_LOCK) until there is news for the session of the process. A procedure that changes a queue commits the news, and then ends
// that wait (KILL QUERY). The waiting statement first checks whether there is news already. Therefore no news is missed between two waits.
//
// To find the right statement, the procedure looks up which connection holds the server lock (GET_LOCK) with the name of the session. The
// connection that listens holds that lock. Therefore no other statement is ever killed, even after a restart of the server.
//
// A user can kill only the statements of its own connections. If your programs connect as different users, one may be unable to wake
// another. A process that notices that others cannot wake it logs a warning, and polls 20 times a second. If news is missed nevertheless,
// the process reads it with its next renewal.
//
// # Connections
//
// [New] takes up to six connections from the pool and keeps them: one that renews the session, one that listens, and up to four for
// requests. On these connections it sets the isolation level, sql_mode, the time zone and timeouts. These settings override the settings of
// the user, the data source name and the server. When the registry is closed, the connections are closed, and not given back to the pool.
//
// Caution: if a connection breaks, the package takes another one from the pool. The pool may be limited (SetMaxOpenConns), and the program
// may be using all of its connections. If that lasts for most of a TTL, the lease ends.
//
// Caution: the server may send nothing on the connection that listens for up to two seconds. Do not set a readTimeout below three seconds
// in the data source name. Otherwise that connection breaks again and again, and processes learn of grants only with their renewals.
// [tier.Registry.Err] reports this.
//
// # What it costs
//
// An acquisition, a release and a requeue each take one call and one commit. TryAcquire writes nothing if the lock is taken. To pass a lock
// from one process to the next takes the commit of the release, the end of the wait, and one read. Each commit waits for the disk.
//
// A process that waits for a lock reads the whole queue at each renewal. The queue has one row for each process in it.
//
// # What is not promised
//
// A process that was paused may still write after its lease has ended (see package tier). To prevent that, write with [Tx].
//
// # Lease TTL
//
// [tier.WithLeaseTTL] accepts a TTL from 1 s to 24 h, in whole milliseconds.
package mysqllock
