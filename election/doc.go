// Package election chooses one leader among processes, on any store that package tier works on.
//
//	e := election.New(locks, "/elections/reports")
//	err := e.Run(ctx, func(ctx context.Context, term int64) error {
//		return sendReports(ctx, term) // until ctx ends
//	})
//
// An election is a lock path that is held for long: whoever has the lock leads. Terms are the
// fencing tokens of the lock, so they grow from leader to leader. Other libraries that can share
// the path of a lock can take part, such as Curator's LeaderSelector.
//
// # What is promised
//
// While the lease of a leader is valid, nobody else leads. A leader learns from its own clock that
// its term is over, before the store can choose anybody else: the context of its function ends,
// and [Election.IsLeader] says so. A leader whose function has returned resigns, never before.
//
// The next candidate leads one round trip after a leader has resigned. If the leader dies, or is
// cut off, it takes until the store ends its session or lease. Candidates lead in the order in
// which they queued; who resigns queues again behind all others.
//
// # What is not promised
//
// A process can be stopped between looking and acting, and a function can ignore the end of its
// context; what it does then comes late, when another process may lead. Give the term to whatever
// the leader writes to, and let that refuse lower terms than it has seen. Where the data is in the
// store of the election, write in a transaction that takes effect only during the term:
// zklock.Multi, etcdlock.Txn, pglock.Tx, redislock.Eval.
package election
