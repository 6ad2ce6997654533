package zklock

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// A standing is the place of a node in its queue.
type standing struct {
	ahead   int       // contenders before ours, a pair counting once; 0 is the head of the queue
	nearest [2]string // the last two of them, the predecessor first; "" where there is none
	behind  int       // contenders after ours
	foreign int       // children that are no contenders; they are ignored
}

// lastSequence is the highest number that this package takes part with. Short of the
// end of the 31-bit range there is room for the contenders of one queue.
const lastSequence = math.MaxInt32 - 1<<20

// errNotQueued says that a node is not among the children of its parent.
var errNotQueued = errors.New("lock node vanished from the queue")

// stand is the queue rule: the contender with the lowest sequence number is the holder,
// every other one watches the two right ahead of it. Our own contender has one name or,
// made in one transaction, two, of which the first one counts.
//
// A queue whose order cannot be trusted is refused with [ErrSequenceExhausted], which
// says because of whom: our own number is next to the end of its range or there twice,
// or there is a negative one.
func stand(children []string, own ...string) (standing, error) {
	_, ours, ok := parseName(own[0])
	if !ok || ours < 0 || ours > lastSequence {
		return standing{}, fmt.Errorf("%w: our own node would be %q; delete the path once it is empty, or use another one",
			ErrSequenceExhausted, own[0])
	}
	var s standing
	var near nearby
	queued := 0
	var disorder error
	for _, name := range children {
		if slices.Contains(own, name) {
			queued++
			continue
		}
		_, sequence, ok := parseName(name)
		switch {
		case !ok:
			s.foreign++
		case sequence < 0:
			disorder = negative(name)
		case sequence == ours:
			disorder = stray(name, "has the number of our own node")
		case sequence > ours:
			s.behind++
		default:
			s.ahead++
			near.add(name, sequence)
		}
	}
	switch {
	case queued < len(own): // then a number like ours is that of a re-created parent
		return standing{}, errNotQueued
	case disorder != nil:
		return standing{}, disorder
	}
	s.nearest, s.ahead = near.contenders(s.ahead)
	return s, nil
}

// nearby are the last znodes ahead, the nearest first: enough for two contenders, each of
// which may be a pair.
type nearby [4]struct {
	name     string
	sequence int32
}

func (n *nearby) add(name string, sequence int32) {
	for i := range n {
		if n[i].name == "" || sequence > n[i].sequence {
			copy(n[i+1:], n[i:])
			n[i].name, n[i].sequence = name, sequence
			return
		}
	}
}

// contenders returns the last two contenders among a number of znodes, and how many
// contenders these are; those further ahead count as if none was a pair. The second znode
// stands for a pair.
func (n *nearby) contenders(znodes int) (nearest [2]string, count int) {
	at := 0
	for i := range nearest {
		if at == len(n) || n[at].name == "" {
			break
		}
		nearest[i] = n[at].name
		if at++; at < len(n) && paired(n[at].name, nearest[i]) {
			at++
			znodes--
		}
	}
	return nearest, znodes
}

// An outlook is what a standing and the departures since then make known.
type outlook int

const (
	waiting outlook = iota // somebody who is watched is ahead, and nobody who is not
	first                  // the head
	unclear                // somebody may be ahead who is not watched
)

// after tells what is known when some of the two right ahead have gone. Nobody can get
// ahead any more, except behind a Curator writer: its downgrade creates a reader with the
// writer's own number (CURATOR-621).
func (s standing) after(gone func(name string) bool) outlook {
	ahead, watched := s.ahead, 0
	for _, name := range s.nearest {
		switch kind, _, _ := parseName(name); {
		case name == "":
		case !gone(name):
			watched++
		case kind == KindWrite:
			return unclear
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
	return unclear
}

// occupied reports whether anybody stands in a queue in which we do not, or why we could
// not. What numbers beyond the last one mean, only a node of our own can tell: those of
// a worn-out path are shared by it, a stray one is behind it.
func occupied(children []string) (taken bool, err error) {
	for _, name := range children {
		switch _, sequence, ok := parseName(name); {
		case !ok || sequence > lastSequence:
		case sequence < 0:
			return false, negative(name)
		default:
			taken = true
		}
	}
	return taken, nil
}

func negative(child string) error { return stray(child, "has a negative number") }

// stray is the refusal of a queue because of one child. It may be left over from tests or
// made by hand, or the numbers have come to their end.
func stray(child, what string) error {
	return fmt.Errorf("%w, or a stray child: %q %s; delete it if it is nobody's, or else the path once it is empty",
		ErrSequenceExhausted, child, what)
}
