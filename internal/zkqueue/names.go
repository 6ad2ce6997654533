// Package zkqueue reads what every client sees of a lock in ZooKeeper: the nodes below its path, of all libraries, by their names and
// contents, and which of them has the lock.
package zkqueue

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
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
)

// sequenceDigits is the width of the sequence number in a node's name, unless the number is below -999999999.
const sequenceDigits = 10

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

// ownMarkers are the markers of our znodes, by mode: that of the first znode, and that of the second one, which kazoo sees.
var ownMarkers = [...][2]string{
	second.Exclusive: {mutexMarker, kazooMarker},
	second.Writing:   {writeMarker, kazooMarker},
	second.Reading:   {readMarker, kazooReadMarker},
}

// Random is the source of the ids. Only the explorer replaces it, because its schedules have to be repeatable.
var Random = rand.Read

// NewID returns the first part of the name of a lock node. The uuid is fresh for each attempt: a stable one would let a late delete hit a
// newer node once the parent is re-created and numbers start again. The form is that of Curator's protected nodes, which zk.Lock and
// Curator queue behind. Only the version in the uuid distinguishes ours from Curator's.
func NewID() string {
	var id [16]byte
	Random(id[:])
	id[6] = id[6]&0x0f | 0x80 // RFC 9562, version 8: of a form of one's own
	id[8] = id[8]&0x3f | 0x80
	hex := hex.EncodeToString(id[:])
	return "_c_" + hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:] + "-"
}

// NewPrefixes returns the names of the znodes of a new node, up to their sequence numbers. The second name, which is for kazoo, begins
// like the first one, and not, as kazoo's own names do, with a hexadecimal number. The reason is Curator: it compares the whole of a name
// that it does not know with the numbers of those that it does. Curator would take a name that begins with zeros for a predecessor, but
// never one that begins with "_".
func NewPrefixes(mode second.Mode, kazoo bool) []string {
	id, markers := NewID(), ownMarkers[mode]
	if kazoo {
		return []string{id + markers[0], id + markers[1]}
	}
	return []string{id + markers[0]}
}

// AsReader returns the name that the first or second znode of one of our writers has after it has become a reader: with the same id and
// number.
func AsReader(name string, i int) string {
	end := len(name) - sequenceDigits
	return strings.TrimSuffix(name[:end], ownMarkers[second.Writing][i]) + ownMarkers[second.Reading][i] + name[end:]
}

// ParseName splits the name of a contender into its kind and sequence number. ParseName reports false for a name of any other form. A
// server prints the number as Java's %010d, which counts a minus sign among the ten characters; with ten digits behind the sign it takes
// eleven. No server writes eleven characters with zeros behind a sign. Such names are accepted all the same, because zk.Lock and Curator
// queue behind such a child.
func ParseName(name string) (kind Kind, sequence int32, ok bool) {
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

// Last returns the highest name up to [LastSequence]. No node with this name is ever created.
func Last(mode second.Mode) string { return fmt.Sprint(ownMarkers[mode][0], LastSequence) }

// A Kind is the sort of lock that a node belongs to, as its name shows.
type Kind string

// The kinds of contenders that share a path, of all libraries.
const (
	KindMutex     Kind = "mutex"
	KindKazoo     Kind = "kazoo" // Lock and WriteLock
	KindKazooRead Kind = "kazoo-read"
	KindWrite     Kind = "write"
	KindRead      Kind = "read"
)

// Reads reports whether contenders of a kind share the lock with others that read.
func (k Kind) Reads() bool { return k == KindRead || k == KindKazooRead }

// Own matches the first part of the names of our znodes, which is recognized by the version of the uuid.
const Own = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-`

var ownName = regexp.MustCompile(Own)

// Ours reports whether a name is that of a node which package zklock has made.
func Ours(name string) bool { return ownName.MatchString(name) }
