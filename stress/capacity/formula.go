package main

import "time"

// These formulas compute the cost of each stage, as docs/capacity.md describes it. Each request has one answer; events are additional.

func (p plan) procs() float64 { return float64(p.Procs) }

// paths is the number of locks.
func (p plan) paths() float64 {
	if p.Private {
		return p.procs() * float64(p.Locks)
	}
	return float64(p.Locks)
}

// contenders is the number of nodes when all processes queue: one for each process and lock.
func (p plan) contenders() float64 { return p.procs() * float64(p.Locks) }

// waiting is the number of contenders that are not first.
func (p plan) waiting() float64 { return p.contenders() - p.paths() }

// beats is the cost of staying connected: pings of the client library and syncs of all processes, and writes of those that hold or wait.
func (p plan) beats(d time.Duration, using int) figures {
	t := float64(d) / float64(p.Session)
	f := figures{Writes: t * 8 * float64(using)}
	f.Requests = t*(3+8)*p.procs() + f.Writes
	f.Sent = f.Requests
	return f
}

// looks is the cost of the periodic reads of all waiters, each once in T on average, which guard against lost watches.
func (p plan) looks(d time.Duration) figures {
	n := float64(d) / float64(p.Session) * p.waiting()
	return figures{Requests: n, Sent: n}
}

// firstLooks is the cost of the periodic reads if nodes join one after the other: each node reads for the first time T/2 to 3T/2 after it
// has joined.
func (p plan) firstLooks(d time.Duration) figures {
	t := float64(d) / float64(p.Session)
	late := max(0, t-0.5)
	n := late * late / (2 * t) * p.waiting()
	return figures{Requests: n, Sent: n}
}

// depth is the number of components of the lock paths.
const depth = 2

// fresh is the cost of locks on new paths that are held for longer than T/6: create and list fail, then all parents are created, then the
// node is created, listed and watched.
func (p plan) fresh() figures {
	n := p.paths()
	f := figures{Requests: n * (2 + depth + 2 + 1), Writes: n * (1 + depth + 1), Watches: n, Znodes: 1 + 2*n}
	f.Sent = f.Requests
	return f
}

// join is the cost of queueing behind others: create, list, a watch of the node itself, and watches of the two nodes ahead if there are
// two.
func (p plan) join() figures {
	watches := 3*p.waiting() - p.paths() // the second in line has one ahead
	f := figures{Requests: 2*p.waiting() + watches, Writes: p.waiting(), Znodes: p.waiting(), Watches: watches}
	f.Sent = f.Requests
	return f
}

// turns is the cost of n acquisitions in strict order. If no contender queues behind, the watches of the first nodes fire, and the last
// nodes are watched again.
func (p plan) turns(n float64) figures {
	own := p.paths()
	switch {
	case p.Private && p.Goroutines == 1: // create, list; delete
		return figures{Requests: 3*n + own, Sent: 3*n + 2*own, Writes: 2 * n}
	case p.Private: // delete and create, list
		return figures{Requests: 2*n + own, Sent: 2*n + 2*own, Writes: n}
	case p.Procs == 2: // delete and create, list, two watches; both go off
		return figures{Requests: 4 * n, Sent: (4 + 2) * n, Writes: n}
	case p.Procs == 3: // a third one
		return figures{Requests: 5 * n, Sent: (5 + 3) * n, Writes: n}
	}
	return figures{Requests: 6 * n, Sent: (6 + 3) * n, Writes: n} // another list
}

func (f figures) plus(g figures) figures {
	return figures{f.Requests + g.Requests, f.Sent + g.Sent, f.Writes + g.Writes, f.Znodes + g.Znodes, f.Watches + g.Watches}
}

func (f figures) minus(g figures) figures {
	return figures{f.Requests - g.Requests, f.Sent - g.Sent, f.Writes - g.Writes, f.Znodes - g.Znodes, f.Watches - g.Watches}
}
