package tier

// A waiter is a goroutine in front of the gate. There may be very many.
type waiter struct {
	turn    chan struct{} // closed when the waiter is chosen or turned away
	refusal *error        // why it was turned away; nil if it was not
	errand  *Mutex        // by way of which it comes
	seat    ownership     // what it is chosen for: kept here to save an allocation

	arrival    int64 // the waiter's place among all that ever came, from 1; 0 when it is out of the queue
	next, prev *waiter
}

// err returns why the waiter was turned away.
func (w *waiter) err() error {
	if w.refusal == nil {
		return nil
	}
	return *w.refusal
}

// A gate is a first-in-first-out queue of waiters. It knows nothing of the lock behind
// it; its user guards it with a mutex.
type gate struct {
	first, last *waiter
	waiting     int
	writers     int   // of those, who do not only read
	arrivals    int64 // waiters that ever came
}

// join puts a new waiter at the end.
func (g *gate) join(errand *Mutex) *waiter {
	g.arrivals++
	g.waiting++
	if !errand.reads() {
		g.writers++
	}
	w := &waiter{turn: make(chan struct{}), errand: errand, arrival: g.arrivals, prev: g.last}
	if g.last != nil {
		g.last.next = w
	} else {
		g.first = w
	}
	g.last = w
	return w
}

func (g *gate) empty() bool { return g.first == nil }

// errand returns that of the first waiter who does not only read; if there is none, that of the
// first. The gate must not be empty.
func (g *gate) errand() *Mutex {
	w := g.first
	for g.writers > 0 && w.errand.reads() {
		w = w.next
	}
	return w.errand
}

// admit lets the first waiter through, whose seat is taken. The gate must not be empty.
func (g *gate) admit() {
	w := g.first
	g.leave(w)
	close(w.turn)
}

// refuse turns all waiters away.
func (g *gate) refuse(err error) {
	for g.first != nil {
		g.turnAway(g.first, err)
	}
}

func (g *gate) turnAway(w *waiter, err error) {
	g.leave(w)
	w.refusal = &err
	close(w.turn)
}

// leave takes a waiter out of the queue. It reports false if the waiter is out already:
// then its turn has come.
func (g *gate) leave(w *waiter) bool {
	if w.arrival == 0 {
		return false
	}
	w.arrival = 0
	g.waiting--
	if !w.errand.reads() {
		g.writers--
	}
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
