package oracle

import "fmt"

// A Waiter is an entry in a queue: a goroutine at the gate of its process, or a process in the store.
type Waiter struct {
	Name  string
	Queue string // the lock, and the gate or the store
	Came  int64  // its place in the order of arrival
	Tries bool   // it does not wait, and no other one waits for it
}

// Served checks that a waiter is served in order (I6): it may not overtake one that came to the same queue before it. The driver leaves
// out waiters that may be overtaken, such as readers that are let in together.
func Served(x Waiter, waiting []Waiter) error {
	for _, y := range waiting {
		if y.Queue == x.Queue && y.Came < x.Came && !x.Tries && !y.Tries {
			return fmt.Errorf("I6: %s is served before %s, which came before it", x.Name, y.Name)
		}
	}
	return nil
}
