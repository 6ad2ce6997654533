package redis

const about = `    A URL as of go-redis, with TLS if it begins with rediss://. With ?addr=HOST:PORT, once or several times, it
    is a cluster; with ?master_name=NAME its servers are sentinels, and its user is theirs. Credentials are
    user:password, or :password.
`

// notes are what help says of Redis.
var notes = map[string]string{
	"run": `PATH is the key that SET PATH id NX PX locks, so that other libraries which do that on the
same key are excluded.`,
	"ls": `a PATH may be divided by colons or slashes, and / stands for all. Locks are found by their
queues, so those of other libraries only where tierlock has waited for one; -limit counts keys of the
database, which the server goes through.`,
	"who": `SEQ is the place in the queue. A lock of another library is first, with the value of its
key; who else waits for that is not known. "grace-period" is who gets the lock once a server
that was started or promoted grants any.`,
	"watch":  `a lock below PATH is found by going through -limit keys of the database, every 5 s.`,
	"revoke": `locks of other libraries cannot be asked: nobody would hear of it.`,
	"break":  `a lock of another library has no token; DEL takes it away.`,
	"doctor": `it also looks at how the server is set up, and at the key of the lock.`,
}
