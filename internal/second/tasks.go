package second

import (
	"sync"
	"sync/atomic"
)

// Tasks are the goroutines of a second tier, or of a store. A goroutine that has finished its task waits for the next one. A new
// goroutine would have to grow its stack for a command, which takes longer than the rest of the work.
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

// Go runs f. Go does nothing after End, and then reports false.
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

// End refuses new tasks. Running ones continue.
func (t *Tasks) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.next)
	}
}

// Wait waits for the end of all tasks, after End.
func (t *Tasks) Wait() { t.all.Wait() }
