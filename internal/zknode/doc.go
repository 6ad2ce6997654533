// Package zknode is the lock of one process on ZooKeeper: one contender, one znode.
//
// A [Client] is the connection of a process, a [Lock] a path, and a [Node] an acquired
// lock. Acquiring creates an ephemeral sequential node below the path; the node with
// the lowest number is the holder, every other one watches the two right ahead of it,
// and itself. The lock is not reentrant and gives each acquisition a node of its own. Package tier
// builds the lock for many goroutines of one process on top of it.
//
// Package zklock documents what users see: promises, costs, limits and the lease. DESIGN.md beside
// this file has the reasons.
package zknode
