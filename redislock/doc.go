// Package redislock is the lock of package tier on Redis: each process queues with one contender, however many of its
// goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This is what is particular to Redis.
//
// The lock at path is the key path: whoever has the lock has its id there, with an expiry. It is what SET path id NX PX makes,
// so that this lock and those of redsync (with one server), bsm/redislock, Spring's RedisLockRegistry and whatever else locks
// that way exclude one another on the same key. Beside it are the queue of the processes that wait, their leases, and a little
// state, as {path}:tierlock:queue, :leases and :state; if path has a hash tag, without the braces. All that is done to them is
// one script, which goes by the server's clock and never by a client's.
//
// # Beside other locks
//
// A lock of another library tells nobody when it ends, so the first in the queue looks again: after 10 ms, then ever more rarely,
// each 100 ms at last, and soon again once another such lock has followed. Nor can it be seen to wait. So when the lock changes
// hands, the key is left free for 25 ms, for those who try again and again: ten seconds after the last time, or 100 ms after it
// if a lock of another library was seen within a minute. In these 25 ms the first in the queue looks each 2 ms, because such a
// lock may be short. A process that keeps the lock among its goroutines gives it up for that, when its hand-off budget is over as
// well. A lock that is held or lingers is not given up for them, nor are readers who follow one another. A key of another type
// than a string counts as a lock that is taken.
//
// Caution: beside a process that is always busy, the first turn of a lock of another library may take long. Who tries more often
// than each 25 ms has it within ten seconds. redsync tries each 50 to 250 ms, so it meets one such gap in six: its first turn took
// between 10 s and more than two minutes. By default it gives up after 32 tries, about five seconds; raise that with
// redsync.WithTries while both are used.
//
// In the minute after, a busy process leaves the key free for up to 25 ms in each 125. It has fewer turns then, since who
// tries often takes the lock several times before it is seen to be free. Of sections of 1 ms each, a process with 8
// goroutines had 55 to 67 % of the turns beside a loop of bsm/redislock without pauses, and 18 to 20 % beside a SETNX each 10 ms.
//
// A key that is deleted or overwritten is a lock that is lost: its holder hears of that within a quarter of the TTL, and the
// next one may have it before. Do not write to the key; to ask for the lock is Revoke.
//
// # What is promised
//
// There is one holder at most, or readers only.
//
// Processes are served in the order in which the server has queued them. A message tells the next one that it has its turn, and
// the holder that another one waits. Redis delivers messages at most once; one that is lost is made up for by the next
// heartbeat, a quarter of the TTL later at most.
//
// What nobody wants any more is removed, or goes with its lease at the latest. A request may be repeated without harm: each
// contender has an id that no other one ever has.
//
// # Permits
//
// Those of a [tier.Semaphore] at path are a queue of their own, with the keys of a lock at {path}:tierlock:permits, which is no
// path for a lock. They have nothing to do with the lock at path, and nobody else's semaphore is compatible. The command that
// queues compares how many there are: the number that was set, which stays in the state of the queue and never expires, or else that
// of the contenders there. A process that gives another number follows it. A command costs the same
// however many portions are taken. A primary that takes over may not know that some of a portion were given up; then others get these
// with the rest of it.
//
// # Fail-over
//
// Redis replicates without waiting. A primary that takes over may not know of the newest grants, and one that was restarted may
// have lost them, even with an append-only file, which is synced once a second. So nobody is granted a lock by a primary that
// is a new one, until the leases of all who could have one are over: for the TTL, plus, if min-replicas-to-write is set,
// min-replicas-max-lag and two seconds. That is its grace period. Locks that are held and known to the new primary stay held,
// those that it does not know are lost, tries fail, and waiters keep their place. A [tier.GracePeriodError] says until when, in
// all that asks. A server that has just been started has one as well, also one that never had a lock; [WithNewServer] says that
// it needs none.
//
// A server takes another replication id whenever it becomes the primary. Since when there has been one with that id, is the key
// {tierlock:primary}:ID, which expires when no process has come for a month. One that has no such key is as old as the server,
// and new if it was promoted. In a cluster, each primary has a grace period of its own, for all its paths; all these keys are in
// one slot. A slot can be moved to another primary at any time but in the grace period of the one that has it: the other one does
// not know of that. A repl-backlog-ttl that is shorter than a grace period hides that a server was promoted; by default it is an
// hour. Where a proxy or a provider hides master_replid of INFO replication, this package cannot work: [tier.Registry.Err] and
// acquisitions say so.
//
// The key {tierlock:primary}:longest has the longest such time that any process has ever had, in microseconds, which is the one
// that counts for all. To have a shorter one, end all processes with a longer one, wait for so long, and delete that key; the
// others write it again when they start.
//
// A primary that is cut off from its replicas, and replaced, does not know that. It goes on answering those it can reach unless
// it is told to miss its replicas:
//
//	min-replicas-to-write 1    # with two or three servers; 2 with four or five
//	min-replicas-max-lag 10
//
// That is half of all servers, rounded down: no two primaries can have as many, and with three or more the promoted one has
// them although one server is gone. With two, it takes no writes until the other one is back: a third server is what helps.
// Then it refuses heartbeats after that lag, and its holders know of their loss before anybody else is granted the lock. New
// asks the server in the background and warns on the logger if there are replicas and min-replicas-to-write is not set, or if
// maxmemory is set and maxmemory-policy is not noeviction. If the configuration cannot be read, a lag of ten seconds is
// assumed.
//
// # What is not promised
//
//   - Leases end by the wall clock of the server. If that is set forward, they end early, and two may hold the lock. Let clocks
//     be slewed, not stepped. The clock of a new primary must not be behind that of the old one by more than the fail-over
//     took, or tokens may start lower.
//   - Without min-replicas-to-write, a primary that was replaced goes on granting locks to those that it can reach.
//   - A server that evicts keys, is flushed, or whose keys an operator deletes, gives locks away. See below.
//   - Nothing excludes locks of other libraries across a fail-over or a restart that lost data.
//
// # Ways to lose the newest data
//
// A server that begins another life is noticed, and grants nothing for a lease: it draws another replication id. That goes for
//
//   - a promotion, by Sentinel, a cluster or hand, and REPLICAOF NO ONE after REPLICAOF another server;
//   - each restart: without data, with an append-only file that misses the last second, with an older RDB or append-only file, and on a
//     volume that was set back to a snapshot.
//
// A server that loses data within one life is not noticed. The next process may have the lock at once. The former holder hears of its
// loss with its next heartbeat, a quarter of the TTL later at most; until then there are two. That goes for
//
//   - FLUSHALL, FLUSHDB, SWAPDB, eviction, and keys that are deleted or restored by hand;
//   - DEBUG RELOAD NOSAVE and DEBUG LOADAOF, which load older data into a server that goes on;
//   - a virtual machine that is set back to a snapshot with its memory;
//   - a cluster in which a slot is assigned to a primary without the keys that its former primary had.
//
// Caution: do none of that while processes hold locks. A mark in the data, which each command would look for, was refused. In a cluster
// no script can read a key of another slot, so a mark would be needed for each slot; and older data that are loaded have the mark, too.
//
// A server that lost {tierlock:primary}:longest counts the TTL of those who have come since. Caution: give all processes the same TTL if
// the server keeps no data over a restart, or the one with a shorter TTL may have the lock before the lease of another is over.
//
// A process that was stopped acts late, as package tier says. Give [tier.Hold.Token] to the resource, or write with [Eval] if the
// data is in the same Redis: it checks one lock, or all locks of a [tier.Bundle], which in a cluster share a hash tag.
//
// # Why not Redlock
//
// Redlock locks a majority of independent servers, each with SET NX PX. It assumes that their clocks agree, that none is
// restarted without its data, and that no process or network pauses for longer than a lease; and it has no token, so that
// nothing notices when it fails. Redisson has deprecated its own. If the lock must survive the loss of any server without a pause
// and without a word about clocks, use a store with a majority that agrees: ZooKeeper or etcd, on which this lock is the same.
//
// # What it costs
//
// An acquisition, a release, a requeue, a try and a hand-over to another process are one script call each, of a lock and of
// permits, however many they are. So is letting readers in, asking for a lock, and each heartbeat, a quarter of the TTL apart,
// for each contender of the process; these are sent together. A script runs some 20 commands, however long the queue is; those that
// tell all who hold a lock, or list a queue, grow with it. A reader that waits looks at the 100 contenders ahead of it: in
// [tier.Wait], those farther away count as if they wrote. A process has one connection that listens.
//
// The client belongs to the program. Its ReadTimeout should not be longer than a sixth of the TTL with a ClusterClient; for a
// Client, calls have that already. Close may take as long as such a timeout if Redis does not answer. A Redis user needs the
// keys above, the channels tierlock:*, CONFIG GET (without it grace periods are twelve seconds longer), what a ClusterClient asks
// for itself, and
//
//	+eval +evalsha +info +ping +publish +subscribe +time +type +get +set +del +pexpire +persist +pttl +hget +hmget
//	+hset +hdel +zadd +zcard +zrange +zrangebyscore +zrank +zrem +zscore
//
// The subcommands ls and watch of cmd/tierlock also need +scan.
//
// Of these, what is missing when a session begins refuses it: [tier.Registry.Err], acquisitions and a line on the logger say
// what to allow. Before Redis 7, what is missing within the script is refused there, and not named. A process that may not
// subscribe any more goes on, and Err says so: its turns come with heartbeats.
//
// A path that is not used any more takes some 460 bytes, in one key, for two hours.
//
// In a cluster all keys of a lock are in one slot. The lease of a process depends on all primaries that it uses, and a process
// that meets a new primary on the one with the slot of {tierlock:primary}. While a slot is being moved, locks there that are
// not held may have to wait for the end of that. Redis 6.2 or later, or Valkey; tested with Redis 7.0 and Valkey 8.1, and with
// a cluster of three primaries.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] takes whole milliseconds from 1 s to 1 h. Set the same in all processes: the longest one is what a fail-over costs.
//
// # Log lines
//
// Besides what [tier.WithLogger] lists, Redis logs at level WARN: the server is set up so that it may break promises; it refuses a
// command that every lock needs, and what to allow; it refuses to send notifications; a grace period, until when and why. At level
// INFO: the configuration of the server cannot be read.
package redislock
