// Package election chooses one leader among processes, on any store of package tier.
//
//	e := election.New(locks, "/elections/reports")
//	err := e.Run(ctx, func(ctx context.Context, term int64) error {
//		return sendReports(ctx, term) // until ctx ends
//	})
//
// The holder of the lock at the path is the leader. The term of a leader is the fencing token of the lock. Therefore each leader has a
// higher term than the leader before it. Libraries that share lock paths with tierlock can take part in an election, for example Curator's
// LeaderSelector.
//
// # What is promised
//
// While the lease of a leader is valid, no other process leads. A leader measures its lease by its own clock, and learns of the end of this
// lease before the store can choose another leader. At the end of the lease, the context of the leader's function ends, and
// [Election.IsLeader] returns an error. A leader resigns only after its function has returned.
//
// The next candidate leads one round trip after a leader has resigned. If a leader dies or loses its connection, the next candidate leads
// when the store ends the former leader's session or lease. Candidates lead in the order in which they queued. After a leader has resigned,
// it queues again at the end of the queue.
//
// # Limits
//
// A process can be paused after it has checked that it leads, and a function can ignore the end of its context. In both cases the writes of
// the former leader may arrive when another process already leads. Send the term with each write, and let the receiver refuse any term that
// is lower than the highest term it has seen. If the data is in the store of the election, use a guarded write, which takes effect only
// during the term. The guarded writes are zklock.Multi, etcdlock.Txn, pglock.Tx, mysqllock.Tx and redislock.Eval.
//
// Caution: the context of the function carries the hold of the lock. Goroutines that share this context share the hold, and do not exclude
// each other.
package election
