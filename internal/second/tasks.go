package second

import (
	"sync"
	"sync/atomic"
)

// Tasks are the goroutines of a second tier, or of a store. A goroutine that has finished its task waits for the next one. That saves
// time: a new goroutine has to grow its stack for a command, and this takes longer than the rest of the work.
type Tasks struct {
	Spare int64 // how many goroutines may wait for a task

	all  sync.WaitGroup
	next chan func()  // passes a task to a waiting goroutine
	idle atomic.Int64 // the number of goroutines that wait for a task

	mu    sync.Mutex // guards the field below
	ended bool
}

// NewTasks returns an empty set of tasks.
func NewTasks() *Tasks { return &Tasks{Spare: 16, next: make(chan func())} }

// Go runs f in a goroutine. After End it does not run f, and returns false.
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

// End makes Go refuse new tasks. Running tasks continue.
func (t *Tasks) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.ended = true
		close(t.next)
	}
}

// Wait waits for the end of all tasks. Call End before.
func (t *Tasks) Wait() { t.all.Wait() }
