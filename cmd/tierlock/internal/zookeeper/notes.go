package zookeeper

const about = `    The path, if there is one, is a chroot. Credentials are lines of scheme:credentials, such as
    digest:user:password; the user and the password of a URL are of the scheme digest.
`

// notes are what help says of ZooKeeper.
var notes = map[string]string{
	"ls": `the locks may be tierlock's or other libraries'. It reads one node for each path that it
looks at, one for each lock, and three for each semaphore.`,
	"who": `it knows contenders of tierlock, Curator, kazoo and zk.Lock by the names of their nodes,
and shows the other children of the path, too. Semaphores are tierlock's or Curator's.
STATE is what the rules of each library make of the order: not all of them wait for all others, so
several can hold. "perhaps" is a kazoo lock that waits only with extra_lock_patterns=["lock-"]. The
node of one that was asked for the lock no longer says whose it is.`,
	"watch": `a look costs the ensemble a read for each lock and each new node; every 5 s it costs a
read for each path and one for each lock, which tells whether the holder was asked for it. A
semaphore costs three reads more, and one for each new node of a permit.`,
	"revoke": `Curator's programs hear of it where their lock was made revocable; zk.Lock and kazoo take
no notice. The request is that of Curator's Revoker: it is written to the node of the holder, in place
of what that says of itself, and takes the permission to write there.`,
	"doctor": `it also examines how many sequence numbers are left, whether the locks of several
libraries on the path exclude each other, and the children that are no contenders. An ephemeral node
says that its session was alive when the server last counted.`,
}
