package zookeeper

const about = `    The path, if there is one, is a chroot. Credentials are lines of scheme:credentials, such as
    digest:user:password; the user and the password of a URL are of the scheme digest.
`

// The map notes has the parts of the help about ZooKeeper.
var notes = map[string]string{
	"ls": `it lists locks of tierlock and of other libraries. It reads one node for each path, one more for
each lock, and three for each semaphore.`,
	"who": `it recognizes nodes of tierlock, Curator, kazoo and zk.Lock by their names, and lists the other
children of the path as well. Semaphores are tierlock's or Curator's. STATE applies the rules of each
library. Not every library waits for all others, so several entries can hold the lock. "perhaps" marks
a kazoo lock, which waits for tierlock only with extra_lock_patterns=["lock-"]. After a request by Curator's Revoker a
node no longer names its owner.`,
	"watch": `it reads each lock and each new node once per -every. Every 5 s it reads each path, and the
holder's node of each lock for revoke requests. A semaphore costs three more reads, and one more read for
each new permit.`,
	"revoke": `Curator's programs get the request if they called makeRevocable; zk.Lock and kazoo ignore it. The
request is written to the holder's node, as Curator's Revoker does, and needs the permission to write
there.`,
	"doctor": `it also checks how many sequence numbers are left, whether the locks of several libraries on the
path exclude each other, and children that are not queue entries. An ephemeral node shows that its
session was alive at the server's last check.`,
}
