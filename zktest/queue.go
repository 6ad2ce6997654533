package zktest

import "sync"

// A queue is an unbounded FIFO with one consumer. It has to be unbounded: over an unbuffered pipe, a server that stops
// reading until its replies are read and a client that does the same wait for each other for ever.
type queue[T any] struct {
	mu     sync.Mutex // guards the fields below
	ready  *sync.Cond
	items  []T
	closed bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// push appends item, unless the queue is closed.
func (q *queue[T]) push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, item)
		q.ready.Signal()
	}
}

// pop waits for the first item; it returns false when the queue is closed and empty.
func (q *queue[T]) pop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.ready.Wait()
	}
	if len(q.items) == 0 {
		return item, false
	}
	item, q.items = q.items[0], q.items[1:]
	return item, true
}

// close ends the queue once what is in it has been popped.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Signal()
}

// discard ends the queue at once.
func (q *queue[T]) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.closed = nil, true
	q.ready.Signal()
}
