package zklock

import (
	"crypto/rand"
	"fmt"
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
