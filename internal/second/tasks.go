package second

import (
	"sync"
	"sync/atomic"
)

// Tasks are the goroutines of a second tier, or of a store. One that has come to the end of its task waits for the next: the stack of a
// new one has to grow for a command, which takes longer than all else that is done here for it.
type Tasks struct {
	Spare int64 // how many may wait

	all  sync.WaitGroup
	next chan func()  // for one that waits
	idle atomic.Int64 // so many wait

	mu    sync.Mutex // guards the field below
	ended bool
}

// NewTasks returns an empty set of tasks.
func NewTasks() *Tasks { return &Tasks{Spare: 16, next: make(chan func())} }

// Go runs f. It does nothing after End, and then reports false.
func (t *Tasks) Go(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	select {
	case t.next <- f:
	default:
		t.all.Go(func() { t.work(f) })
	}
	return true
}

func (t *Tasks) work(task func()) {
	for ok := true; ok; t.idle.Add(-1) {
		task()
		if ok = t.idle.Add(1) <= t.Spare; ok {
			task, ok = <-t.next
		}
	}
}

// End has none begin any more. Those that have go on.
func (t *Tasks) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.next)
	}
}

// Wait waits for all, after End.
func (t *Tasks) Wait() { t.all.Wait() }
