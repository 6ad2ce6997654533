package tier

// A waiter is a goroutine in front of a gate. There may be very many.
type waiter[S any] struct {
	turn    chan struct{} // closed when the waiter is chosen, refused or told to leave
	refusal error         // why it was refused; nil if it was not
	seat    S             // what it waits for: kept here to save an allocation

	told       bool  // to leave; it is in the queue until it does, and may be chosen
	arrival    int64 // the waiter's place among all that ever came, from 1; 0 when it is out of the queue
	next, prev *waiter[S]
}

// A gate is a first-in-first-out queue of waiters. The gate does not depend on what is behind it; its user guards it with a mutex.
type gate[S any] struct {
	first, last *waiter[S]
	waiting     int
	arrivals    int64 // waiters that ever came
}

func (g *gate[S]) empty() bool { return g.first == nil }

// join puts a new waiter at the end.
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

// admit lets the first waiter through. The caller has filled in its seat. The gate must not be empty.
func (g *gate[S]) admit() {
	w := g.first
	g.leave(w)
	if !w.told {
		close(w.turn)
	}
}

// served reports whether the waiter was let through.
func (w *waiter[S]) served() bool { return w.arrival == 0 && w.refusal == nil }

// tellAll notifies all waiters that they have to leave. tellAll is called once.
func (g *gate[S]) tellAll() {
	for w := g.first; w != nil; w = w.next {
		w.told = true
		close(w.turn)
	}
}

// refuse removes the waiters for whose seat concerned returns true, with an error. refuse returns their number.
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

// leave takes a waiter out of the queue. leave reports false if the waiter is out already: then it was chosen, or refused.
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
