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
// row. Therefore other processes see new tokens in ascending order. If a process sees its own row and no lower token, its row is first in
// the queue, and stays first.
//
// The permits of a [tier.Semaphore] have a separate queue in the same table, independent of the lock at path. The number of permits is
// stored by [tier.Semaphore.SetPermits]. If no number is stored, the number in the rows of the queue applies. A process that passes a
// different number to [tier.Registry.Semaphore] gets this number instead.
//
// # Servers
//
// The package works with InnoDB tables in MySQL 8.0 or later, in MariaDB 10.6 or later, and in servers that are built from them. The driver
// is go-sql-driver/mysql. The tests run on MariaDB 10.11. The command make compat runs them on Debian's MySQL, which was version 9.7.
//
// If the promises cannot be kept on a server, [New] returns an error that says why. These servers are refused:
//
//   - a node of a Galera cluster (wsrep_on), because a lock on a row has no effect on the other nodes;
//   - a member of a replication group with several primaries; a group in single-primary mode works;
//   - a server whose binary log has the format STATEMENT; set binlog_format to ROW or MIXED;
//   - a server with --sysdate-is-now, because procedures cannot read the clock there;
//   - TiDB, Vitess, OceanBase and other systems that speak the protocol of MySQL but lock rows in another way;
//   - a proxy that sends reads and writes to different servers.
//
// While the server is read-only, New and each acquisition wait. A replica is read-only until it becomes the primary.
//
// # What is promised
//
// At most one process holds a lock, because the server decides which contender is first.
//
// [Tx] runs a transaction that cannot commit once the lock is lost. With a [tier.Bundle], Tx cannot commit once any lock of the bundle is
// lost. Use Tx for data in the same database: such data needs no fencing token.
//
// Each commit is on disk before it is answered if innodb_flush_log_at_trx_commit and sync_binlog are 1. Both are 1 by default in MySQL. In
// MariaDB, sync_binlog is 0 by default, which matters if the server has a binary log. With these settings, a restart or a crash of the
// server changes nothing: holders still have their locks, and waiters keep their places.
//
// If a replica takes over:
//
//   - Rows that were written shortly before may be missing. A holder whose row is missing loses the lock. It learns of the loss when it
//     connects to the new primary, before its lease is renewed there, or at the latest when its lease ends. Recently deleted rows may
//     reappear. The process to which these rows belong deletes them when it connects.
//   - The old primary has to be stopped or read-only. If it continues to run and clients still reach it, two processes may hold the same
//     lock. Fence the old primary.
//
// # A server that lost data
//
// A server that lost its newest data would grant a lock that another process still holds. The server cannot know whether it has lost data.
// Therefore each start of a server, and each change to another server, begins a grace period, during which no lock is granted. The grace
// period lasts as long as the longest TTL that was ever used in the database. A [tier.GracePeriodError] says when it ends. During the grace
// period holders keep their locks. After it, new tokens are higher than all earlier tokens, because they are at least the server's time in
// microseconds. A new database has no grace period.
//
// The database records the longest TTL. If the recorded TTL is too long, and all processes that used it have ended, correct the record, in
// milliseconds: UPDATE tierlock_state SET longest_ms = 15000.
//
// Caution: mysqllock does not notice that a running server lost data in these cases:
//
//   - A virtual machine is set back to a snapshot with its memory.
//   - An operator deletes or restores rows. After such a change, restart the server before programs connect.
//   - A primary becomes a replica, and later the primary again, without a restart. The server may then lack data that the other primary
//     wrote in between. Restart the server before it accepts writes again.
//
// # Loss and late requests
//
// Caution: if an operator deletes the row of a holder, the next process gets the lock within a quarter of the TTL. The former holder learns
// of the loss within another quarter of the TTL.
//
// If a request gets no answer, the process sends it again with the same ID. The server then finds out whether it has executed the first
// request. If the program has given up the wait, the process deletes its row in the background. The server may execute a delayed request
// after this delete, and insert the row again. Therefore, after a request without an answer, the process checks the rows of its session at
// each renewal, and deletes rows that it does not need.
//
// # The lease
//
// A process has one session, which is a row. The process renews the session each quarter of the TTL with one call, no matter how many locks
// it has. This call does not wait for transactions that change a queue. The process counts its lease from the moment when it sends a
// renewal that the server answers. The lease lasts for the TTL less the margin. The server counts the session from the moment when it
// executes that renewal, which is later. The session lasts for the whole TTL. Therefore the lease ends before the session. The server never
// renews a session that has expired. The lease assumes that the clock of the server (SYSDATE) is not set forward by more than the margin.
//
// # How a process learns of a grant
//
// MySQL and MariaDB have no notifications. Instead, each process has one connection that listens. On this connection, a statement waits in
// the server (GET_LOCK) until there is an event for the session, such as a grant. A procedure that changes a queue commits the event, and
// then ends that wait (KILL QUERY). Before the statement waits, it checks for earlier events. Therefore the process misses no event between
// two waits.
//
// The connection that listens holds a server lock (GET_LOCK) with the name of the session. To find the right statement, the procedure looks
// up which connection holds this server lock. Therefore no other statement is ever killed, even after a restart of the server.
//
// A database user can kill only the statements of its own connections. If your programs connect as different users, one program may be
// unable to wake another. If a process notices that other processes cannot wake it, it logs a warning, and polls 20 times a second. If the
// process misses an event nevertheless, it reads the event with its next renewal.
//
// # Connections
//
// [New] takes up to six connections from the pool and keeps them: one that renews the session, one that listens, and up to four for
// requests. On these connections it sets the isolation level, sql_mode, the time zone and timeouts. These settings override the settings of
// the user, the data source name and the server. When the registry is closed, the connections are closed, and not given back to the pool.
//
// Caution: if a connection breaks, the package takes another one from the pool. The pool may be limited (SetMaxOpenConns), and the program
// may be using all of its connections. If the program uses all connections for most of a TTL, the lease ends.
//
// Caution: the server may send nothing on the connection that listens for up to two seconds. Do not set a readTimeout below three seconds
// in the data source name. Otherwise the connection breaks again and again, and the process learns of grants only with its renewals.
// [tier.Registry.Err] reports this.
//
// # What it costs
//
// An acquisition, a release and a requeue each take one call and one commit. TryAcquire writes nothing if the lock is taken. A transfer to
// another process takes the commit of the release, the end of the wait, and one read. Each commit waits for the disk.
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
