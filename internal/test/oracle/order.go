package oracle

import "fmt"

// A Waiter is one in a queue: a goroutine at the gate of its process, or a process in the store.
type Waiter struct {
	Name  string
	Queue string // of which lock, and where
	Came  int64  // its place in the order of arrival
	Tries bool   // it waits for nobody, and nobody for it
}

// Served judges that one is served while others wait (I6): nobody overtakes who came before it to the same queue. Whom one may overtake
// nevertheless, such as readers that are let in together, the driver leaves out.
func Served(x Waiter, waiting []Waiter) error {
	for _, y := range waiting {
		if y.Queue == x.Queue && y.Came < x.Came && !x.Tries && !y.Tries {
			return fmt.Errorf("I6: %s is served before %s, which came before it", x.Name, y.Name)
		}
	}
	return nil
}
