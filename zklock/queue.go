package zklock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	mutexMarker = "lock-"
	kazooMarker = "__lock__"

	sequenceDigits = 10
)

// A marker is the part of a node name right before its sequence number. Nodes of all
// these kinds queue on one path and wait for one another.
var markers = []struct {
	text string
	kind Kind
}{
	{mutexMarker, KindMutex},
	{kazooMarker, KindKazoo},
	{"__rlock__", KindKazooRead},
	{"__WRIT__", KindWrite},
	{"__READ__", KindRead},
}

// lastSequence is the highest number that this package takes part with. Short of the
// end of the 31-bit range there is room for the contenders of one queue.
const lastSequence = math.MaxInt32 - 1<<20

// newID returns how the name of a lock node begins. The uuid is fresh for each attempt: a
// stable one would let a late delete hit a newer node once the parent is re-created and
// numbers start again. The form is that of Curator's protected nodes, which zk.Lock and
// Curator queue behind; only the version of the uuid tells ours from Curator's.
func newID() string {
	var id [16]byte
	rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x80 // RFC 9562, version 8: of a form of one's own
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// parseName splits the name of a contender into its kind and sequence number. It
// reports false for a name of any other form.
func parseName(name string) (kind Kind, sequence int32, ok bool) {
	if len(name) < sequenceDigits {
		return "", 0, false
	}
	number, rest := name[len(name)-sequenceDigits:], name[:len(name)-sequenceDigits]
	for _, c := range []byte(number) {
		if c < '0' || c > '9' {
			return "", 0, false
		}
	}
	for _, negative := range []bool{false, true} {
		before := rest
		if negative {
			if before, ok = strings.CutSuffix(rest, "-"); !ok {
				break
			}
			number = "-" + number
		}
		for _, m := range markers {
			if strings.HasSuffix(before, m.text) {
				n, err := strconv.ParseInt(number, 10, 32)
				return m.kind, int32(n), err == nil
			}
		}
	}
	return "", 0, false
}

// A standing is the place of a node in its queue.
type standing struct {
	ahead       int    // contenders before ours; 0 is the head of the queue
	predecessor string // the nearest of them, "" at the head
	pair        bool   // those ahead are the two znodes of one node
	behind      int    // contenders after ours
	foreign     int    // children that are no contenders; they are ignored
}

// errNotQueued says that a node is not among the children of its parent.
var errNotQueued = errors.New("lock node vanished from the queue")

// stand is the queue rule: the contender with the lowest sequence number is the holder,
// every other one watches its nearest predecessor. Our own contender has one name or,
// made in one transaction, two, of which the first one counts.
//
// A queue whose order cannot be trusted is refused with [ErrSequenceExhausted]: a
// number next to the end of its range, a negative one, or our own number twice.
func stand(children []string, own ...string) (standing, error) {
	_, ours, ok := parseName(own[0])
	if !ok || ours < 0 || ours > lastSequence {
		return standing{}, ErrSequenceExhausted
	}
	var s standing
	first, lowest := "", int32(math.MaxInt32)
	nearest, queued, worn := int32(-1), 0, false
	for _, name := range children {
		if slices.Contains(own, name) {
			queued++
			continue
		}
		_, sequence, ok := parseName(name)
		switch {
		case !ok:
			s.foreign++
		case sequence < 0 || sequence == ours:
			worn = true
		case sequence > ours:
			s.behind++
		default:
			s.ahead++
			if sequence > nearest {
				nearest, s.predecessor = sequence, name
			}
			if sequence < lowest {
				lowest, first = sequence, name
			}
		}
	}
	switch {
	case queued < len(own): // then a number like ours is that of a re-created parent
		return standing{}, errNotQueued
	case worn:
		return standing{}, ErrSequenceExhausted
	}
	s.pair = s.ahead == 2 && paired(first, s.predecessor)
	return s, nil
}

// alone reports whether the departure of the predecessor puts us at the head without
// another look: nobody else was ahead, and nobody can get ahead any more. Behind a
// Curator writer somebody can: its downgrade creates a reader with the writer's own
// number (CURATOR-621).
func (s standing) alone() bool {
	kind, _, _ := parseName(s.predecessor)
	return kind != KindWrite && (s.ahead == 1 || s.pair)
}
