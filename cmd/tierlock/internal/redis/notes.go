package redis

const about = `    A URL of go-redis; rediss:// uses TLS. For a cluster, add ?addr=HOST:PORT, once or several times. With
    ?master_name=NAME, the servers of the URL are sentinels, and the user of the URL is for the sentinels.
    Credentials are user:password, or :password.
`

// The map notes has the parts of the help about Redis.
var notes = map[string]string{
	"run": `the lock is the key PATH, set as by SET PATH id NX PX. Other libraries that lock the same key in
this way are excluded.`,
	"ls": `a PATH may be divided by colons or slashes, and / stands for all. Locks are found by their
queues; a lock of another library is found only if tierlock has waited for it. -limit counts all keys of
the database, because the server scans them.`,
	"who": `SEQ is the place in the queue. A lock of another library comes first, with the value of its
key; its waiters are not known. "grace-period" marks the process that gets the lock when the grace
period of the server ends.`,
	"watch":  `every 5 s it scans up to -limit keys of the database for locks below PATH.`,
	"revoke": `locks of other libraries do not read requests, so they are not asked.`,
	"break":  `a lock of another library has no token, so break cannot remove it; delete its key with DEL.`,
	"doctor": `it also checks the configuration of the server, and the key of the lock.`,
}
