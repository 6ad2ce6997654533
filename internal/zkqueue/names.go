// Package zkqueue reads the state of a lock in ZooKeeper that every client sees: the nodes below its path, of all libraries. It parses
// their names and contents, and finds out which of them has the lock.
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

// sequenceDigits is the width of the sequence number in a node's name. Numbers below -999999999 are wider.
const sequenceDigits = 10

// A marker is the part of a node name directly before its sequence number. Nodes of all these kinds queue on one path and wait for each
// other.
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

// ownMarkers has the two markers of our znodes, by mode. The first marker is for the first znode, and the second marker is for the second
// znode, which kazoo recognizes.
var ownMarkers = [...][2]string{
	second.Exclusive: {mutexMarker, kazooMarker},
	second.Writing:   {writeMarker, kazooMarker},
	second.Reading:   {readMarker, kazooReadMarker},
}

// Random is the source of the ids. Only the package explore of the tests replaces it, because its schedules have to be repeatable.
var Random = rand.Read

// NewID returns the first part of the name of a lock node. Each attempt has a new uuid. With a constant uuid a late delete could hit a
// newer node: after the parent was created again, the numbers start again. The names have the form of Curator's protected nodes, because
// zk.Lock and Curator queue behind nodes with such names. Only the version in the uuid distinguishes our ids from Curator's.
func NewID() string {
	var id [16]byte
	Random(id[:])
	id[6] = id[6]&0x0f | 0x80 // RFC 9562, version 8: a custom format
	id[8] = id[8]&0x3f | 0x80
	hex := hex.EncodeToString(id[:])
	return "_c_" + hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:] + "-"
}

// NewPrefixes returns the names of the znodes of a new node, without their sequence numbers. The second name is for kazoo. It begins like
// the first name, and not with a hexadecimal number like kazoo's own names. The reason is Curator, which compares the whole of an unknown
// name with the numbers of known names. Curator would take a name that begins with zeros for a predecessor, but never one that begins with
// "_".
func NewPrefixes(mode second.Mode, kazoo bool) []string {
	id, markers := NewID(), ownMarkers[mode]
	if kazoo {
		return []string{id + markers[0], id + markers[1]}
	}
	return []string{id + markers[0]}
}

// AsReader returns the new name of a znode of one of our writers after it has become a reader. The name has the same id and number. The
// index i is 0 for the first znode and 1 for the second.
func AsReader(name string, i int) string {
	end := len(name) - sequenceDigits
	return strings.TrimSuffix(name[:end], ownMarkers[second.Writing][i]) + ownMarkers[second.Reading][i] + name[end:]
}

// ParseName splits the name of a contender into its kind and sequence number. For a name of any other form, it returns false. A server
// prints the number as Java's %010d. That format counts a minus sign among the ten characters. A negative number with ten digits therefore
// takes eleven characters. No server writes eleven characters with zeros after the sign, but ParseName accepts such names, because zk.Lock
// and Curator queue behind such a child.
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

// Last returns the name with the highest number that a contender may have, [LastSequence]. No node with this name is ever created.
func Last(mode second.Mode) string { return fmt.Sprint(ownMarkers[mode][0], LastSequence) }

// A Kind is the type of lock to which a node belongs. The name of the node shows it.
type Kind string

// These are the kinds of contenders that share a path, of all libraries.
const (
	KindMutex     Kind = "mutex"
	KindKazoo     Kind = "kazoo" // kazoo's Lock and WriteLock
	KindKazooRead Kind = "kazoo-read"
	KindWrite     Kind = "write"
	KindRead      Kind = "read"
)

// Reads reports whether contenders of this kind share the lock with other readers.
func (k Kind) Reads() bool { return k == KindRead || k == KindKazooRead }

// Own matches the first part of the names of our znodes. It recognizes them by the version of the uuid.
const Own = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-`

var ownName = regexp.MustCompile(Own)

// Ours reports whether package zklock has created the node with this name.
func Ours(name string) bool { return ownName.MatchString(name) }
