package tier

// A waiter is a goroutine that waits in front of a gate. There may be very many waiters.
type waiter[S any] struct {
	turn    chan struct{} // closed when the waiter is chosen, refused or told to leave
	refusal error         // why the waiter was refused; nil if it was not
	seat    S             // what the waiter waits for; it is kept here to save an allocation

	told       bool  // the waiter was told to leave; until it leaves, it is in the queue, and may be chosen
	arrival    int64 // the number of this waiter among all arrivals, from 1; 0 when the waiter is no longer in the queue
	next, prev *waiter[S]
}

// A gate is a first-in-first-out queue of waiters. It does not know what the waiters wait for. Its user guards it with a mutex.
type gate[S any] struct {
	first, last *waiter[S]
	waiting     int
	arrivals    int64 // the number of waiters that ever joined
}

func (g *gate[S]) empty() bool { return g.first == nil }

// join adds a new waiter at the end of the queue.
func (g *gate[S]) join() *waiter[S] {
	g.arrivals++
	g.waiting++
	w := &waiter[S]{turn: make(chan struct{}), arrival: g.arrivals, prev: g.last}
	if g.last != nil {
		g.last.next = w
	} else {
		g.first = w
	}
	g.last = w
	return w
}

// admit lets the first waiter through. The caller sets the waiter's seat before the call. The gate must not be empty.
func (g *gate[S]) admit() {
	w := g.first
	g.leave(w)
	if !w.told {
		close(w.turn)
	}
}

// served reports whether the waiter was admitted.
func (w *waiter[S]) served() bool { return w.arrival == 0 && w.refusal == nil }

// tellAll notifies all waiters that they have to leave. tellAll is called once.
func (g *gate[S]) tellAll() {
	for w := g.first; w != nil; w = w.next {
		w.told = true
		close(w.turn)
	}
}

// refuse removes each waiter if concerned returns true for its seat. The removed waiters get err. refuse returns the number of removed
// waiters.
func (g *gate[S]) refuse(err error, concerned func(*S) bool) (n int) {
	for w := g.first; w != nil; {
		next := w.next
		if !w.told && concerned(&w.seat) {
			g.leave(w)
			w.refusal = err
			close(w.turn)
			n++
		}
		w = next
	}
	return n
}

// leave removes a waiter from the queue. It returns false if the waiter was already removed, because it was admitted or refused.
func (g *gate[S]) leave(w *waiter[S]) bool {
	if w.arrival == 0 {
		return false
	}
	w.arrival = 0
	g.waiting--
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		g.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		g.last = w.prev
	}
	w.next, w.prev = nil, nil
	return true
}
