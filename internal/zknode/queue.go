package zknode

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// A standing is the place of a node in its queue.
type standing struct {
	reads   bool      // our node reads: it shares the lock with other readers, and waits only for writers and mutexes
	ahead   int       // the number of contenders for which our node waits; a pair counts once; 0 for the holder
	nearest [2]string // the names of the last two of these contenders, the nearer one first; for a pair the second name; "" if there is none
	behind  int       // the number of contenders that wait for our node
	reader  string    // the contender directly behind, if it reads and our node does not; otherwise ""
	foreign int       // the number of children that are no contenders; they are ignored
}

// stand applies the queue rule. The contender with the lowest sequence number is the holder, and every other contender watches the two
// contenders directly ahead of it. A reader waits for contenders that do not read, and watches only those. Our contender has one name, or
// two names that one transaction created. If it has two, the first name counts.
//
// If the order of a queue cannot be trusted, stand returns [ErrSequenceExhausted], and the error names the node. There are three cases: our
// own number is close to the end of its range, our own number exists twice, or there is a negative number.
func stand(children []string, own ...string) (standing, error) {
	kind, ours, ok := zkqueue.ParseName(own[0])
	if !ok || ours < 0 || ours > zkqueue.LastSequence {
		return standing{}, fmt.Errorf("%w: the node of this process would be %q; delete the path once it is empty, or use another path",
			ErrSequenceExhausted, own[0])
	}
	if slices.ContainsFunc(own, func(name string) bool { return !slices.Contains(children, name) }) {
		return standing{}, errGone // a child with our number would belong to a parent that was created again
	}
	queue, others := zkqueue.Parse(children)
	s := standing{reads: kind.Reads(), foreign: len(others)}
	next := ours // once the loop has seen it, the number of the contender directly behind ours
	for _, c := range queue {
		switch {
		case slices.Contains(own, c.Node):
		case c.Sequence < 0:
			return standing{}, stray(c.Node, "has a negative number")
		case c.Sequence == ours:
			return standing{}, stray(c.Node, "has the same number as the node of this process")
		case s.reads && c.Kind.Reads():
		case c.Sequence < ours:
			s.ahead++
			s.nearest = [2]string{cmp.Or(c.Pair, c.Node), s.nearest[0]}
		default:
			if s.behind++; s.behind == 1 {
				next = c.Sequence
			}
			switch { // if two contenders have this number, there is a reader directly behind only if both read
			case !c.Kind.Reads() && c.Sequence == next:
				s.reader, next = "", ours
			case c.Sequence == next:
				s.reader = c.Node
			}
		}
	}
	return s, nil
}

// An outlook says what a waiting node knows from its standing and from later departures of other nodes.
type outlook int

const (
	waiting   outlook = iota // every remaining predecessor is watched
	first                    // there is no predecessor
	lookAgain                // there may be a predecessor that is not watched
)

// This method returns the new outlook of a waiting node after one or both of the two nodes directly ahead have left. New nodes enter
// behind a waiting node. Only a writer ahead that becomes a reader is a new node ahead:
//
//	ahead at the list    departed                       outlook
//	1                    it                             first
//	2                    the nearer, or the farther     waiting
//	2                    both                           first
//	3 or more            one or both                    lookAgain
//	any                  one that may have downgraded   lookAgain
func (s standing) after(gone func(name string) bool) outlook {
	ahead, watched := s.ahead, 0
	for i, name := range s.nearest {
		switch {
		case name == "":
		case !gone(name):
			watched++
		case s.downgrades(i):
			return lookAgain
		default:
			ahead--
		}
	}
	switch {
	case ahead == 0:
		return first
	case ahead == s.ahead, ahead == watched:
		return waiting
	}
	return lookAgain
}

// The method downgrades reports whether the departure of one of the two nodes directly ahead may have been a downgrade, so that we wait for
// a reader with the same number. A Curator writer may downgrade (CURATOR-621). One of our writers does so only while the contender directly
// behind it reads, and in this queue no node can get between them. The second name of a pair of ours does not show whether the contender is
// a writer or a mutex, so such a pair may have been downgraded, too.
func (s standing) downgrades(i int) bool {
	kind, _, _ := zkqueue.ParseName(s.nearest[i])
	switch {
	case s.reads, kind != zkqueue.KindWrite && kind != zkqueue.KindKazoo:
		return false
	case !zkqueue.Ours(s.nearest[i]):
		return kind == zkqueue.KindWrite
	case i == 0: // our node is directly behind that writer
		return false
	}
	behind, _, _ := zkqueue.ParseName(s.nearest[i-1])
	return behind.Reads()
}

// occupied reports whether a new contender would have to wait. If there can be no new contender, it returns the reason. occupied takes the
// standing of an imagined node with the last number. Children with higher numbers are behind that node, and do not count. Such a child is a
// stray one, or the numbers of the path are used up. Only a real node shows which: if the numbers are used up, it gets such a number, too,
// and otherwise it is ahead of the child.
func occupied(children []string, mode second.Mode) (taken bool, err error) {
	last := zkqueue.Last(mode)
	s, err := stand(append(slices.Clip(children), last), last)
	return s.ahead > 0, err
}

// The function stray returns the error for a queue that is refused because of one child. Either the child is a stray, left by a test or
// created by hand, or the sequence numbers are used up.
func stray(child, what string) error {
	return fmt.Errorf("%w, or a stray child: %q %s; delete it if no process owns it; otherwise delete the path once it is empty",
		ErrSequenceExhausted, child, what)
}
