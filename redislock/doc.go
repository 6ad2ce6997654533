// Package redislock has the locks of package tier on Redis. Each process has one queue entry per lock, however many of its goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This page documents what Redis adds.
//
// The lock at path is the key path. Its value is the ID of the holder, and it expires with the lease, as after SET path id NX PX. Beside it
// are the keys {path}:tierlock:queue, :leases and :state; a path that has a hash tag keeps its own. One script executes every operation, by
// the clock of the server.
//
// # Other locks on the same key
//
// The lock excludes redsync with one server, bsm/redislock, Spring's RedisLockRegistry, and every other lock that sets the key with NX and
// PX. Such a lock sends no notification, so the first waiter polls the key, every 10 to 100 ms. Its own waiters poll, too, and are not in
// the queue. To let them in, a process that transfers the lock leaves the key free for 25 ms: once in ten seconds, and after 100 ms while
// a foreign lock was seen within the last minute.
//
// Caution: next to a process that is always busy, a lock of another library can wait long. One that polls more often than every 25 ms gets
// its turn within ten seconds. In measurements with redsync, which polls every 50 to 250 ms, its first turn took between 10 s and more than
// two minutes. By default redsync gives up after 32 tries, about five seconds; raise that with redsync.WithTries. For a minute after each
// foreign lock, a busy process pauses for up to 25 of every 125 ms.
//
// Caution: do not write to the key. A holder whose key is deleted or overwritten has lost the lock and learns of it within a quarter of the
// TTL. Another process may get the lock before that. To ask for the lock, use [tier.Mutex.Revoke].
//
// # What is promised
//
// At most one holder, or only readers, within the limits below. The server orders the processes. A message tells the next process that it
// has the lock, and the holder that another process waits. A lost message is made up for by the next heartbeat, up to a quarter of the TTL
// later. Abandoned entries are deleted, or expire with their lease.
//
// # Permits
//
// A [tier.Semaphore] at path is a queue of its own, at {path}:tierlock:permits, independent of the lock at path. No other library shares
// it. The number of permits is the one that [tier.Semaphore.SetPermits] stored, which never expires; if there is none, the one in the
// entries of the queue. A process that gives another number follows it. After a failover, permits that were given back just before may
// stay taken until the rest of the same acquisition is given back.
//
// # Failover
//
// Redis replicates asynchronously, and writes an append-only file once a second. A new primary, or a restarted server, may therefore not
// know the newest locks. During its grace period it grants no lock: for the TTL, plus min-replicas-max-lag and two seconds if
// min-replicas-to-write is set. Locks that it knows stay held; locks that it does not know are lost; tries fail; waiters keep their places.
// A [tier.GracePeriodError] says until when. A server that has just been started has a grace period, too, also an empty one;
// [WithNewServer] skips it.
//
// The package recognizes a new primary by its replication ID (master_replid in INFO replication) and records when it first saw that ID in
// the key {tierlock:primary}:ID, for a month. Where a proxy or provider hides master_replid, the package does not work;
// [tier.Registry.Err] and acquisitions say so. In a cluster each primary has its own grace period. Do not move a slot during the grace
// period of its primary, because the new primary does not know of it. Keep repl-backlog-ttl longer than a grace period (default: an hour).
//
// The longest grace period of all processes counts; the key {tierlock:primary}:longest has it, in microseconds. To shorten it, end the
// processes with a longer TTL, wait for that time, and delete the key.
//
// Caution: set min-replicas-to-write to half the number of servers, rounded down. Without it, a primary that is cut off from its replicas
// and replaced still grants locks to the clients that it reaches, and a lock can have two holders:
//
//	min-replicas-to-write 1    # with two or three servers; 2 with four or five
//	min-replicas-max-lag 10
//
// A primary without its replicas then refuses heartbeats after that lag, and its holders lose their locks before another process can get
// them. Use at least three servers; with two, the survivor accepts no writes until the other one is back. New checks the configuration in
// the background and logs a warning if it is not safe, or if maxmemory is set without the policy noeviction.
//
// # Limits
//
//   - Leases end by the wall clock of the server. If the clock is stepped forward, leases end early, and a lock can have two holders. Let
//     it be slewed. A new primary whose clock is behind by more than the failover took may issue lower tokens.
//   - Exclusion with locks of other libraries does not survive a failover or a restart that lost data.
//   - A process can be paused after it has checked the lock and before it writes. Pass [tier.Hold.Token] to the resource, or use [Eval] if
//     the data is in the same Redis.
//
// Data loss is noticed when the server gets a new replication ID, and then begins a grace period: after a promotion by Sentinel, a cluster
// or by hand, after REPLICAOF NO ONE, and after each restart, with whatever data.
//
// Caution: a server that loses data while it runs is not noticed. The next process may get the lock at once, up to a quarter of the TTL
// before its former holder learns of the loss. Do none of this while processes hold locks:
//
//   - FLUSHALL, FLUSHDB, SWAPDB, eviction, deleting or restoring keys;
//   - DEBUG RELOAD NOSAVE and DEBUG LOADAOF;
//   - setting a virtual machine back together with its memory;
//   - assigning a slot of a cluster to a primary without the keys of that slot.
//
// Caution: use the same TTL in all processes if the server keeps no data over a restart. It forgets the longest TTL, and a lock can be
// granted before the lease of a process with a longer TTL ends.
//
// # Why not Redlock
//
// Redlock locks a majority of independent servers. It assumes that their clocks agree, that no server restarts without its data, and that
// no pause lasts longer than a lease. It has no fencing token, so nothing notices a failure of these assumptions. If the lock must survive
// the loss of any server without a grace period, use ZooKeeper or etcd.
//
// # What it costs
//
// An acquisition, a release, a requeue, a try, a transfer to another process, a downgrade and a revoke are one script call each, for a lock
// and for any number of permits. A script executes about 20 commands, however long the queue is, except to list a queue or notify many
// readers. A heartbeat each quarter of the TTL renews each entry of the process; they are sent together. A waiting reader sees the 100
// entries ahead of it in [tier.Wait]; those farther ahead count as writers. A process has one connection for messages. An idle path takes
// some 460 bytes, in one key, for two hours.
//
// # Client and permissions
//
// The program owns the client. With a ClusterClient set ReadTimeout to at most a sixth of the TTL; Close may take as long if Redis does not
// answer. A Redis user needs the keys above, the channels tierlock:*, what a ClusterClient itself asks for, CONFIG GET (without it grace
// periods are twelve seconds longer), and
//
//	+eval +evalsha +info +ping +publish +subscribe +time +type +get +set +del +pexpire +persist +pttl +hget +hmget
//	+hset +hdel +zadd +zcard +zrange +zrangebyscore +zrank +zrem +zscore
//
// The subcommands ls and watch of cmd/tierlock also need +scan. If a permission is missing, [tier.Registry.Err], acquisitions and the
// logger name it; before Redis 7 one that is missing inside the script is not named. Without +subscribe the process goes on, grants arrive
// with heartbeats, and Err says so.
//
// In a cluster all keys of a lock are in one slot. The lease of a process depends on all primaries that it uses, and on the one with the
// slot of {tierlock:primary}. While a slot is moved, free locks in it may have to wait. Redis 6.2 or later, or Valkey; tested with Redis
// 7.0 and Valkey 8.1, and with a cluster of three primaries.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 1 h. Set the same TTL in all processes: after a failover, the longest TTL in use
// decides how long no lock is granted.
//
// # Log lines
//
// In addition to the lines of [tier.WithLogger], redislock logs at level WARN that the configuration of the server is not safe, and at
// level INFO that it cannot be read.
package redislock
