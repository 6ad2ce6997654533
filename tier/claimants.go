package tier

import (
	"container/list"
	"sync"
	"time"
)

// A claimant is a goroutine that wants permits.
type claimant struct {
	semaphore *Semaphore
	count     int
	turn      chan struct{} // closed when it has them or is turned away
	taken     []permit
	served    time.Duration // when they came here
	refusal   error         // why it was turned away
	place     *list.Element // nil when it is out of the queue
}

func (c *claimant) errAt(now time.Duration) error {
	for _, one := range c.taken {
		if err := one.ErrAt(now); err != nil {
			return err
		}
	}
	return nil
}

// waiting is a first-in-first-out queue of claimants.
type waiting struct {
	mu    sync.Mutex
	queue list.List
}

func (w *waiting) empty() bool { return w.queue.Len() == 0 }

func (w *waiting) join(c *claimant) { c.place = w.queue.PushBack(c) }

// first returns the claimant who is served next, nil if there is none.
func (w *waiting) first() *claimant {
	if e := w.queue.Front(); e != nil {
		return e.Value.(*claimant)
	}
	return nil
}

// leave takes a claimant out, unless it is out.
func (w *waiting) leave(c *claimant) {
	if c.place != nil {
		w.queue.Remove(c.place)
		c.place = nil
	}
}

// refuse turns away those who are meant.
func (w *waiting) refuse(err error, meant func(*claimant) bool) {
	for e := w.queue.Front(); e != nil; {
		c := e.Value.(*claimant)
		e = e.Next()
		if meant(c) {
			w.leave(c)
			c.refusal = err
			close(c.turn)
		}
	}
}

func everybody(*claimant) bool { return true }
