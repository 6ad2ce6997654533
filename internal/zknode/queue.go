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
	reads   bool      // the node shares the lock with readers, and counts only contenders that do not read
	ahead   int       // contenders before ours that it waits for, a pair counting once; 0 for the holder
	nearest [2]string // the last two of them, the predecessor first; of a pair the second name; "" where there is none
	behind  int       // contenders after ours that wait for it
	reader  string    // the contender right behind, if it reads and ours does not; else ""
	foreign int       // children that are no contenders; they are ignored
}

// stand is the queue rule: the contender with the lowest sequence number is the holder, and every other one watches the two right ahead of
// it. A reader waits for, and watches, only contenders that do not read. Our own contender has one name or two, created in one transaction;
// then the first one counts.
//
// A queue whose order cannot be trusted is refused with [ErrSequenceExhausted], which names the node: our own number is next to the end of
// its range or exists twice, or there is a negative one.
func stand(children []string, own ...string) (standing, error) {
	kind, ours, ok := zkqueue.ParseName(own[0])
	if !ok || ours < 0 || ours > zkqueue.LastSequence {
		return standing{}, fmt.Errorf("%w: our own node would be %q; delete the path once it is empty, or use another one",
			ErrSequenceExhausted, own[0])
	}
	if slices.ContainsFunc(own, func(name string) bool { return !slices.Contains(children, name) }) {
		return standing{}, errGone // then a child with our number belongs to a re-created parent
	}
	queue, others := zkqueue.Parse(children)
	s := standing{reads: kind.Reads(), foreign: len(others)}
	next := ours // the number right behind
	for _, c := range queue {
		switch {
		case slices.Contains(own, c.Node):
		case c.Sequence < 0:
			return standing{}, stray(c.Node, "has a negative number")
		case c.Sequence == ours:
			return standing{}, stray(c.Node, "has the number of our own node")
		case s.reads && c.Kind.Reads():
		case c.Sequence < ours:
			s.ahead++
			s.nearest = [2]string{cmp.Or(c.Pair, c.Node), s.nearest[0]}
		default:
			if s.behind++; s.behind == 1 {
				next = c.Sequence
			}
			switch { // of two with one number, both have to read
			case !c.Kind.Reads() && c.Sequence == next:
				s.reader, next = "", ours
			case c.Sequence == next:
				s.reader = c.Node
			}
		}
	}
	return s, nil
}

// An outlook says what a waiting node knows from its standing and from the departures since then.
type outlook int

const (
	waiting   outlook = iota // every remaining predecessor is watched
	first                    // there is no predecessor
	lookAgain                // there may be a predecessor that is not watched
)

// after returns the outlook when some of the two nodes right ahead have gone. No node can get ahead any more, except a writer that has
// become a reader:
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

// downgrades reports whether one of the two nodes right ahead may have gone only to leave a reader with its own number, for which we wait.
// A Curator writer may (CURATOR-621). One of our writers does so only while the contender right behind it reads: in this queue no node can
// get between them. The known name of one of our pairs does not distinguish a writer from a mutex.
func (s standing) downgrades(i int) bool {
	kind, _, _ := zkqueue.ParseName(s.nearest[i])
	switch {
	case s.reads, kind != zkqueue.KindWrite && kind != zkqueue.KindKazoo:
		return false
	case !zkqueue.Ours(s.nearest[i]):
		return kind == zkqueue.KindWrite
	case i == 0: // then we are right behind it
		return false
	}
	behind, _, _ := zkqueue.ParseName(s.nearest[i-1])
	return behind.Reads()
}

// occupied reports whether a newcomer would have to wait in a queue, or returns why there can be no newcomer. occupied takes the standing
// of a node with the last number. Only a node of our own can show what numbers beyond that mean: on a path whose numbers are used up it
// has one itself, and a stray one is behind it.
func occupied(children []string, mode second.Mode) (taken bool, err error) {
	last := zkqueue.Last(mode)
	s, err := stand(append(slices.Clip(children), last), last)
	return s.ahead > 0, err
}

// stray refuses a queue because of one child. Such a child may be left over from tests or created by hand, or the numbers are used up.
func stray(child, what string) error {
	return fmt.Errorf("%w, or a stray child: %q %s; delete it if no process owns it, or else the path once it is empty",
		ErrSequenceExhausted, child, what)
}
