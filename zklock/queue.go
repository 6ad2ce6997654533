package zklock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/second"
)

const (
	mutexMarker     = "lock-"
	writeMarker     = "__WRIT__"
	readMarker      = "__READ__"
	kazooMarker     = "__lock__"
	kazooReadMarker = "__rlock__"

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
	{kazooReadMarker, KindKazooRead},
	{writeMarker, KindWrite},
	{readMarker, KindRead},
}

// ownMarkers are those of our znodes, by mode: of the first one, and of the second one, for kazoo.
var ownMarkers = [...][2]string{
	second.Exclusive: {mutexMarker, kazooMarker},
	second.Writing:   {writeMarker, kazooMarker},
	second.Reading:   {readMarker, kazooReadMarker},
}

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

// newPrefixes returns the names of the znodes of a new node, up to their sequence
// numbers. The second one, for kazoo, begins like the first and not in kazoo's own way
// with a hexadecimal number: Curator compares the whole of a name that it does not know
// with the numbers of those that it does, and would take one that begins with zeros for
// a predecessor. It never takes "_" for one.
func newPrefixes(mode second.Mode, kazoo bool) []string {
	id, markers := newID(), ownMarkers[mode]
	if kazoo {
		return []string{id + markers[0], id + markers[1]}
	}
	return []string{id + markers[0]}
}

// parseName splits the name of a contender into its kind and sequence number. It
// reports false for a name of any other form. A server prints the number as Java's
// %010d, which counts a minus sign among the ten characters; with ten digits behind the
// sign it takes eleven. Zeros behind a sign in eleven characters are no server's, but
// read all the same: zk.Lock and Curator queue behind such a child.
func parseName(name string) (kind Kind, sequence int32, ok bool) {
	for width := sequenceDigits; width <= sequenceDigits+1 && width <= len(name); width++ {
		rest, number := name[:len(name)-width], name[len(name)-width:]
		digits, negative := strings.CutPrefix(number, "-")
		if width > sequenceDigits && !negative || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		for _, m := range markers {
			if strings.HasSuffix(rest, m.text) {
				n, err := strconv.ParseInt(number, 10, 32)
				return m.kind, int32(n), err == nil
			}
		}
	}
	return "", 0, false
}

// paired reports whether two names in a row are those of one node. They are created in
// one transaction, so nobody is between them, and whoever made them has lost the lock
// when one of them is gone.
func paired(first, second string) bool {
	_, m, ok1 := parseName(first)
	_, k, ok2 := parseName(second)
	if !ok1 || !ok2 || k != m+1 {
		return false
	}
	first, second = first[:len(first)-sequenceDigits], second[:len(second)-sequenceDigits]
	for _, markers := range ownMarkers {
		id, bridged := strings.CutSuffix(second, markers[1])
		if bridged && strings.HasPrefix(id, "_c_") && first == id+markers[0] {
			return true
		}
	}
	return false
}

// A Kind tells by its name what sort of lock a node belongs to.
type Kind string

// The kinds of contenders that share a path.
const (
	KindTierlock      Kind = "tierlock"       // this package
	KindTierlockWrite Kind = "tierlock-write" // this package, the writer of a reader/writer lock
	KindTierlockRead  Kind = "tierlock-read"  // this package, a reader
	KindZKLock        Kind = "zk.Lock"        // go-zookeeper's
	KindCurator       Kind = "curator"        // Curator's InterProcessMutex
	KindMutex         Kind = "mutex"          // another library's, by its name like one of these
	KindKazoo         Kind = "kazoo"          // kazoo's Lock and WriteLock
	KindKazooRead     Kind = "kazoo-read"     // kazoo's ReadLock
	KindWrite         Kind = "write"          // Curator's InterProcessReadWriteLock, write side
	KindRead          Kind = "read"           // Curator's InterProcessReadWriteLock, read side
)

// Reads reports whether contenders of a kind share the lock with others that read.
func (k Kind) Reads() bool {
	return k == KindTierlockRead || k == KindRead || k == KindKazooRead
}

// own is how the names of our znodes begin, by the version of their uuid.
const own = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-`

var ownName = regexp.MustCompile(own)

// makers are the libraries that share markers, by the form of the unique part of the
// name: a uuid of version 8 is ours, one of version 4 that of Java's UUID.randomUUID,
// and go-zookeeper writes sixteen bytes without dashes.
var makers = []struct {
	form *regexp.Regexp
	kind Kind
}{
	{regexp.MustCompile(own + mutexMarker), KindTierlock},
	{regexp.MustCompile(own + writeMarker), KindTierlockWrite},
	{regexp.MustCompile(own + readMarker), KindTierlockRead},
	{regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-`), KindCurator},
	{regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`), KindZKLock},
}

// makerOf tells whose a node is, by its name, if its marker alone says that it is of a kind.
func makerOf(name string, marked Kind) Kind {
	for _, m := range makers {
		if m.form.MatchString(name) {
			return m.kind
		}
	}
	return marked
}

// A standing is the place of a node in its queue.
type standing struct {
	reads   bool      // it shares the lock with others that read, and counts only those that do not
	ahead   int       // contenders before ours that it waits for, a pair counting once; 0 is for one whose turn it is
	nearest [2]string // the last two of them, the predecessor first; "" where there is none
	behind  int       // contenders after ours that wait for it
	foreign int       // children that are no contenders; they are ignored
}

// lastSequence is the highest number that this package takes part with. Short of the
// end of the 31-bit range there is room for the contenders of one queue.
const lastSequence = math.MaxInt32 - 1<<20

// errNotQueued says that a node is not among the children of its parent.
var errNotQueued = errors.New("lock node vanished from the queue")

// stand is the queue rule: the contender with the lowest sequence number is the holder,
// every other one watches the two right ahead of it. One that reads waits for, and watches, those
// alone that do not. Our own contender has one name or, made in one transaction, two, of which the
// first one counts.
//
// A queue whose order cannot be trusted is refused with [ErrSequenceExhausted], which
// says because of whom: our own number is next to the end of its range or there twice,
// or there is a negative one.
func stand(children []string, own ...string) (standing, error) {
	kind, ours, ok := parseName(own[0])
	if !ok || ours < 0 || ours > lastSequence {
		return standing{}, fmt.Errorf("%w: our own node would be %q; delete the path once it is empty, or use another one",
			ErrSequenceExhausted, own[0])
	}
	s := standing{reads: kind.Reads()}
	var near nearby
	queued := 0
	var disorder error
	for _, name := range children {
		if slices.Contains(own, name) {
			queued++
			continue
		}
		kind, sequence, ok := parseName(name)
		switch {
		case !ok:
			s.foreign++
		case sequence < 0:
			disorder = negative(name)
		case sequence == ours:
			disorder = stray(name, "has the number of our own node")
		case s.reads && kind.Reads():
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

// follower returns the contender right behind our own if it reads, and else "".
func follower(children []string, own ...string) (reader string, err error) {
	if _, err := stand(children, own...); err != nil {
		return "", err
	}
	_, ours, _ := parseName(own[0])
	next := int32(math.MaxInt32)
	reads := false
	for _, name := range children {
		kind, sequence, ok := parseName(name)
		if !ok || sequence <= ours || sequence > next || slices.Contains(own, name) {
			continue
		}
		reads = kind.Reads() && (reads || sequence < next) // of two with one number, both
		next, reader = sequence, name
	}
	if !reads {
		return "", nil
	}
	return reader, nil
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
	waiting   outlook = iota // somebody who is watched is ahead, and nobody who is not
	first                    // nobody is whom it waits for
	lookAgain                // somebody may be ahead who is not watched
)

// after tells what is known when some of the two right ahead have gone. Nobody can get
// ahead any more, except for a writer that has become a reader.
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

// downgrades reports whether one of the two right ahead may have gone only to leave a reader with
// its own number, for which we wait. A Curator writer may (CURATOR-621). One of ours does so only
// while the contender right behind it reads: in this queue nobody can get between them. Of a pair
// of ours, the name that is known does not tell a writer from a mutex.
func (s standing) downgrades(i int) bool {
	kind, _, _ := parseName(s.nearest[i])
	switch {
	case s.reads, kind != KindWrite && kind != KindKazoo:
		return false
	case !ownName.MatchString(s.nearest[i]):
		return kind == KindWrite
	case i == 0: // then we are right behind it
		return false
	}
	behind, _, _ := parseName(s.nearest[i-1])
	return behind.Reads()
}

// occupied reports whether anybody stands in a queue for whom a newcomer would wait, or why there
// could be none. What numbers beyond the last one mean, only a node of our own can tell: those of
// a path whose numbers are used up are shared by it, a stray one is behind it.
func occupied(children []string, mode second.Mode) (taken bool, err error) {
	for _, name := range children {
		switch kind, sequence, ok := parseName(name); {
		case !ok || sequence > lastSequence:
		case sequence < 0:
			return false, negative(name)
		case mode == second.Reading && kind.Reads():
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
