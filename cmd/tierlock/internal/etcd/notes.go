package etcd

const about = `    Credentials are user:password.
`

// The map notes has the parts of the help about etcd.
var notes = map[string]string{
	"run": `the session is an etcd lease of whole seconds. The servers raise a lease that is shorter than one
and a half times their election timeout.`,
	"ls": `a PATH need not begin with a slash, and / stands for all keys. A lock is
recognized by leased keys with names as etcdlock, concurrency.Mutex and etcdctl lock create them.
-limit counts keys. It reads all keys there, a thousand at a time, and then the queue of each lock.`,
	"who": `each key directly below PATH is a queue entry, and each key below PATH//permits/ has permits or
waits for some. SEQ is the place in the queue, TOKEN the revision at which the key was created. Keys of
concurrency.Mutex and etcdctl lock contain neither their owner nor a time. NODE AGE compares the
clocks of the entry's machine and this one.`,
	"watch": `it reads each queue, and every 5 s all keys below PATH. If a lock changes hands twice within
-every, the holder in between is not counted.`,
	"revoke": `the request is written to the key of the holder. concurrency.Mutex and etcdctl lock
do not read requests, so they are not asked.`,
	"doctor": `it also asks each server for its version, and finds keys without a lease, which stay when their
process ends.`,
}
