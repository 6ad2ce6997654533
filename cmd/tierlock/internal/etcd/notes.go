package etcd

const about = `    Credentials are user:password.
`

// notes are what help says of etcd.
var notes = map[string]string{
	"run": `the session is the lease of the lock's key, of whole seconds. The servers raise one that is
shorter than one and a half times their election timeout.`,
	"ls": `a PATH need not begin with a slash, and / stands for all keys. A lock is found by keys
under a lease with the names that etcdlock, or concurrency.Mutex and etcdctl lock, give them; -limit
counts keys. It reads all keys there, a thousand at a time, and then the queue of each lock.`,
	"who": `each key below PATH, up to the next slash, is a contender, and each below PATH//permits/ has
permits or waits for some. SEQ is the place in the queue,
TOKEN the revision at which the key was created. concurrency.Mutex and etcdctl lock say nothing of
themselves, nor when they queued. NODE AGE is by the clocks of the contender's machine and this one.`,
	"watch": `a look is a read of each queue, and every 5 s of all keys below PATH. Where -every
is long enough for a lock to change hands twice, what was in between is not counted.`,
	"revoke": `the request is written to the key of the holder. concurrency.Mutex and etcdctl lock cannot be
asked: nobody would hear of it.`,
	"doctor": `it also asks each server for its version, and looks for keys under no lease, which stay when
their process is gone.`,
}
