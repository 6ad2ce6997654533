package main

import "time"

// These formulas compute the cost of each stage; docs/capacity.md explains them. Each request has one answer. Events are counted in
// addition to answers.

func (p plan) procs() float64 { return float64(p.Procs) }

// paths returns the number of locks.
func (p plan) paths() float64 {
	if p.Private {
		return p.procs() * float64(p.Locks)
	}
	return float64(p.Locks)
}

// contenders returns the number of nodes if all processes queue: one for each process and lock.
func (p plan) contenders() float64 { return p.procs() * float64(p.Locks) }

// The method waiting returns the number of contenders that are not the first in their queue.
func (p plan) waiting() float64 { return p.contenders() - p.paths() }

// The method beats returns the cost of keeping sessions for the time d. All processes send syncs, and the client library's pings. Processes
// that hold or wait also write.
func (p plan) beats(d time.Duration, using int) figures {
	t := float64(d) / float64(p.Session)
	f := figures{Writes: t * 8 * float64(using)}
	f.Requests = t*(3+8)*p.procs() + f.Writes
	f.Sent = f.Requests
	return f
}

// The method looks returns the cost of the periodic reads that guard against lost watches. Each waiter reads once in T on average.
func (p plan) looks(d time.Duration) figures {
	n := float64(d) / float64(p.Session) * p.waiting()
	return figures{Requests: n, Sent: n}
}

// firstLooks returns the cost of the first periodic reads when nodes join one after the other. Each node reads for the first time between
// T/2 and 3T/2 after it has joined.
func (p plan) firstLooks(d time.Duration) figures {
	t := float64(d) / float64(p.Session)
	late := max(0, t-0.5)
	n := late * late / (2 * t) * p.waiting()
	return figures{Requests: n, Sent: n}
}

// depth is the number of components that each lock path has.
const depth = 2

// The method fresh returns the cost of locks on new paths that are held for longer than T/6. First, a create and a list fail. Then all
// parents are created. After that, the node is created, listed and watched.
func (p plan) fresh() figures {
	n := p.paths()
	f := figures{Requests: n * (2 + depth + 2 + 1), Writes: n * (1 + depth + 1), Watches: n, Znodes: 1 + 2*n}
	f.Sent = f.Requests
	return f
}

// The method join returns the cost of queueing behind others. Each node needs a create, a list, a watch of itself, and watches of the
// two nodes ahead of it. If only one node is ahead, it watches that one.
func (p plan) join() figures {
	watches := 3*p.waiting() - p.paths() // the second in a queue has only one node ahead
	f := figures{Requests: 2*p.waiting() + watches, Writes: p.waiting(), Znodes: p.waiting(), Watches: watches}
	f.Sent = f.Requests
	return f
}

// The method turns returns the cost of n acquisitions in strict order. At the end the queues run empty: the watches of the first nodes
// fire, and the last nodes are watched again.
func (p plan) turns(n float64) figures {
	own := p.paths()
	switch {
	case p.Private && p.Goroutines == 1: // create and list, then delete
		return figures{Requests: 3*n + own, Sent: 3*n + 2*own, Writes: 2 * n}
	case p.Private: // delete and create in one request, then list
		return figures{Requests: 2*n + own, Sent: 2*n + 2*own, Writes: n}
	case p.Procs == 2: // as before, and two watches, which both fire
		return figures{Requests: 4 * n, Sent: (4 + 2) * n, Writes: n}
	case p.Procs == 3: // as before, and a third watch
		return figures{Requests: 5 * n, Sent: (5 + 3) * n, Writes: n}
	}
	return figures{Requests: 6 * n, Sent: (6 + 3) * n, Writes: n} // as with three processes, and one more list
}

func (f figures) plus(g figures) figures {
	return figures{f.Requests + g.Requests, f.Sent + g.Sent, f.Writes + g.Writes, f.Znodes + g.Znodes, f.Watches + g.Watches}
}

func (f figures) minus(g figures) figures {
	return figures{f.Requests - g.Requests, f.Sent - g.Sent, f.Writes - g.Writes, f.Znodes - g.Znodes, f.Watches - g.Watches}
}
