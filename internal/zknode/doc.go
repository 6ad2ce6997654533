// Package zknode is the lock of one process on ZooKeeper: one contender, one znode.
//
// A [Client] is the connection of a process, a [Lock] is a path, and a [Node] is an acquired lock. An acquisition creates an ephemeral
// sequential node below the path. The node with the lowest number is the holder. Every other node has watches on the two nodes directly
// ahead of it, and on itself. The lock is not reentrant, and each acquisition has its own node. Package tier builds the lock for many
// goroutines of one process on top of this package.
//
// Package zklock documents what users see: promises, costs, limits and the lease. DESIGN.md in this directory explains the reasons.
package zknode
