// Package redislock provides the locks of package tier on Redis. Each process has one queue entry per lock, however many of its goroutines
// wait.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	defer client.Close()
//	locks, err := redislock.New(ctx, client)
//	…
//	defer locks.Close()
//	return locks.Mutex("locks:report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // one at a time in all processes; ctx ends if the lock is lost
//	})
//
// Package tier documents the lock, which is the same on every store. This page documents only what is special about Redis.
//
// The lock at path is the key path. The key has the form that SET path id NX PX creates. Its value is the ID of the holder. The key expires
// when the lease ends. The lock has three further keys: {path}:tierlock:queue, {path}:tierlock:leases and {path}:tierlock:state. If path
// contains a hash tag, these keys use that hash tag. One script executes every operation, and uses the clock of the server.
//
// # Other locks on the same key
//
// The lock excludes redsync with one server, bsm/redislock, Spring's RedisLockRegistry, and every other lock that sets the key with NX and
// PX. Such a foreign lock sends no notification when it is released, so tierlock's first waiter polls the key every 10 to 100 ms. Waiters
// of the foreign library also poll, and are not in tierlock's queue. To let these waiters in, tierlock leaves the key free for 25 ms at
// some transfers. This happens every 100 ms if a foreign lock was seen within the last minute, and otherwise once in ten seconds. A lock
// that is held or lingers is not released for them. A lock that readers hold one after another is not released for them either.
//
// Caution: if tierlock processes use the lock all the time, another library may wait a long time for the lock. A library that polls more
// often than every 25 ms gets the lock within ten seconds. redsync polls every 50 to 250 ms. In measurements, redsync got its first lock
// after 10 s to more than two minutes. By default redsync gives up after 32 tries, about five seconds; raise this limit with
// redsync.WithTries. In return, tierlock processes lose time: for a minute after each foreign lock, they leave a busy lock free for up to
// 25 of every 125 ms.
//
// While the key has another type than a string, the lock counts as taken.
//
// Caution: do not write to the key. If the key is deleted or overwritten, its holder has lost the lock, and learns of the loss within a
// quarter of the TTL. Another process may get the lock before the holder learns of the loss. To ask the holder to release, use
// [tier.Mutex.Revoke].
//
// # What is promised
//
// Within the limits below, a lock has at most one holder, or several readers. The server puts the processes in order. The server notifies
// the next process of its grant, and the holder of a new waiter. If a notification is lost, the process gets the information with its next
// heartbeat, up to a quarter of the TTL later. Entries of cancelled or failed acquisitions are deleted, or expire with their lease.
//
// # Permits
//
// A [tier.Semaphore] at path has a separate queue, at {path}:tierlock:permits, independent of the lock at path. No other library shares
// this queue. The number of permits is stored by [tier.Semaphore.SetPermits], and never expires. If no number is stored, all processes use
// the number in the entries of the queue. A process that passes a different number to [tier.Registry.Semaphore] gets this number instead.
// If a process releases only some permits of an acquisition, and a failover follows at once, these permits may stay taken until the rest is
// released.
//
// # Failover
//
// Redis replicates asynchronously, and writes an append-only file once a second. Therefore a new primary or a restarted server may lack the
// newest locks. Such a server grants no lock during a grace period. This period lasts for the TTL, plus min-replicas-max-lag and two
// seconds if min-replicas-to-write is set. Locks in the data of the server stay held. Locks that are missing in the data are lost.
// TryAcquire fails, and waiters keep their places. A [tier.GracePeriodError] says when the grace period ends. Every server has a grace
// period after its start, even if it is empty; [WithNewServer] skips it.
//
// The package recognizes a new primary by its replication ID (master_replid in INFO replication). The package records when it first saw
// this ID in the key {tierlock:primary}:ID, for a month. If a proxy or provider hides master_replid, the package does not work;
// [tier.Registry.Err] and acquisitions return an error that says so. In a cluster each primary has its own grace period. Do not move a
// slot during the grace period of its primary, because the slot's new primary would grant locks at once. Keep repl-backlog-ttl longer than
// a grace period (default: an hour).
//
// The duration of a grace period depends on the TTL of a process. If processes have different TTLs, the longest grace period applies to all
// processes. The key {tierlock:primary}:longest records the duration of the longest grace period in microseconds. To shorten the grace
// period, end the processes with a longer TTL, wait for the recorded time, and delete the key.
//
// Caution: set min-replicas-to-write to half the number of servers, rounded down. Without this setting, a lock can have two holders: if a
// primary loses its replicas and is replaced, it still grants locks to the clients that reach it. For example:
//
//	min-replicas-to-write 1    # with two or three servers; 2 with four or five
//	min-replicas-max-lag 10
//
// With this setting, a primary without its replicas refuses heartbeats after min-replicas-max-lag, and its holders lose their locks before
// another process can get them. Use at least three servers. With two servers, the survivor accepts no writes until the other server is
// back. New checks the configuration in the background. New logs a warning if the configuration is not safe, or if maxmemory is set
// without the policy noeviction.
//
// # Limits
//
//   - Leases end by the wall clock of the server. If the clock is stepped forward, leases end early, and a lock can have two holders.
//     Configure the server's time synchronization to slew the clock. If the clock of a new primary is behind by more than the duration of
//     the failover, the new primary may issue lower tokens.
//   - Exclusion with locks of other libraries does not survive a failover or a restart that lost data.
//   - A process can be paused after it has checked the lock and before it writes. Pass [tier.Hold.Token] to the resource, or use [Eval] if
//     the data is in the same Redis.
//
// The package notices a loss of data only if the server gets a new replication ID. In this case a grace period begins. A server gets a new
// replication ID after a promotion by Sentinel, by a cluster or by hand, and after REPLICAOF NO ONE. A server also gets a new ID after each
// restart, whatever data it has.
//
// Caution: the package does not notice that a running server loses data. The next process may get the lock at once, up to a quarter of the
// TTL before its former holder learns of the loss. Prevent the following while processes hold locks:
//
//   - FLUSHALL, FLUSHDB, SWAPDB, eviction, deleting or restoring keys;
//   - DEBUG RELOAD NOSAVE and DEBUG LOADAOF;
//   - setting a virtual machine back together with its memory;
//   - assigning a slot of a cluster to a primary without the keys of that slot.
//
// Caution: if the server keeps no data over a restart, use the same TTL in all processes. After a restart, such a server does not know the
// longest TTL. Therefore the server can grant a lock before the lease of a process with a longer TTL ends.
//
// # Why not Redlock
//
// Redlock locks a majority of independent servers. Redlock assumes that the clocks of the servers agree, that no server restarts without
// its data, and that no pause lasts longer than a lease. Redlock has no fencing token, so a resource cannot detect that an assumption
// failed. If locks must survive the loss of any server without a grace period, use ZooKeeper or etcd.
//
// # What it costs
//
// Each operation costs one script call: Acquire, TryAcquire, Release, a release that queues again, a transfer to another process, a
// downgrade, and Revoke. The number of permits does not change the cost of an operation. A script executes about 20 commands, however long
// the queue is. There are two exceptions: listing a queue, and notifying many readers. Every quarter of the TTL, the process sends
// heartbeats that renew all its entries. If a reader waits behind more than 100 entries, its [tier.Wait] counts all entries beyond the
// nearest 100 as writers. A process has one connection for notifications. An idle path takes some 460 bytes, in one key, for two hours.
//
// # Client and permissions
//
// The program owns the client. With a ClusterClient, set ReadTimeout to at most a sixth of the TTL; Close may take this time if Redis does
// not answer. A Redis user needs access to the keys above and to the channels tierlock:*. With a ClusterClient, the user also needs the
// commands that this client sends itself. If the user may not run CONFIG GET, grace periods are twelve seconds longer. The user needs these
// commands:
//
//	+eval +evalsha +info +ping +publish +subscribe +time +type +get +set +del +pexpire +persist +pttl +hget +hmget
//	+hset +hdel +zadd +zcard +zrange +zrangebyscore +zrank +zrem +zscore
//
// The subcommands ls and watch of cmd/tierlock also need +scan. If a permission is missing, [tier.Registry.Err], the errors of
// acquisitions and the log name it. Redis before version 7 does not name a permission that is missing inside the script. Without
// +subscribe the process continues, but learns of grants only with its heartbeats; Err returns an error that says so.
//
// In a cluster all keys of a lock are in one slot. The lease of a process depends on all primaries that it uses, and on the primary with
// the slot of {tierlock:primary}. While a slot is moved, acquisitions of free locks in this slot may be delayed. The package needs Redis
// 6.2 or later, or Valkey. It is tested with Redis 7.0 and Valkey 8.1, and with a cluster of three primaries.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 1 h. Set the same TTL in all processes, because the longest TTL in use decides
// for how long no lock is granted after a failover.
//
// # Log lines
//
// In addition to the lines of [tier.WithLogger], redislock logs two lines. At level WARN, it reports that the configuration of the server
// is not safe. At level INFO, it reports that it cannot read the configuration.
package redislock
