package oracle

import "fmt"

// A Waiter is an entry in a queue. It is either a goroutine at the gate of its process, or a process in the queue of the store.
type Waiter struct {
	Name  string
	Queue string // the name of the lock, and whether this is its gate or its queue in the store
	Came  int64  // its place in the order of arrival
	Tries bool   // it only tries: it does not wait, and no other waiter waits for it
}

// Served checks that a waiter is served in order (I6). The waiter may not overtake another one that came to the same queue before it. The
// driver must leave out waiters that may be overtaken, such as readers that get the lock together.
func Served(x Waiter, waiting []Waiter) error {
	for _, y := range waiting {
		if y.Queue == x.Queue && y.Came < x.Came && !x.Tries && !y.Tries {
			return fmt.Errorf("I6: %s is served before %s, which came before it", x.Name, y.Name)
		}
	}
	return nil
}
