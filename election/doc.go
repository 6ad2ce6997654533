// Package election chooses one leader among processes, on any store that package tier works on.
//
//	e := election.New(locks, "/elections/reports")
//	err := e.Run(ctx, func(ctx context.Context, term int64) error {
//		return sendReports(ctx, term) // until ctx ends
//	})
//
// The holder of the lock at the path is the leader. Terms are the fencing tokens of that lock, and
// therefore grow from leader to leader. Libraries that share lock paths with tierlock can take part,
// such as Curator's LeaderSelector.
//
// # What is promised
//
// While the lease of a leader is valid, no other process leads. A leader learns from its own clock
// that its term is over, before the store can choose another leader: the context of its function
// ends, and [Election.IsLeader] returns an error. A leader resigns when its function has returned,
// never earlier.
//
// The next candidate leads one round trip after a leader has resigned. If the leader dies or is
// cut off, the next one leads when the store ends the former leader's session or lease. Candidates
// lead in the order in which they queued. A leader that resigns queues again behind all others.
//
// # Limits
//
// A process can be paused after it has checked that it leads, and a function can ignore the end of its
// context. Its writes may then arrive when another process already leads. Send the term with each
// write, and let the receiver refuse lower terms than it has seen. If the data is in the store of the
// election, use a guarded write, which takes effect only during the term: zklock.Multi, etcdlock.Txn,
// pglock.Tx, redislock.Eval.
//
// Caution: the context of the function carries the hold of the lock. Goroutines that start with that
// context act for the same leader and are not excluded from each other.
package election
