package zklock

import "strings"

// newPrefixes returns the names of the znodes of a new node, up to their sequence
// numbers. The second one, for kazoo, begins like the first and not in kazoo's own way
// with a hexadecimal number: Curator compares the whole of a name that it does not know
// with the numbers of those that it does, and would take one that begins with zeros for
// a predecessor. It never takes "_" for one.
func (l *Lock) newPrefixes() []string {
	id := newID()
	if l.client.options.kazoo {
		return []string{id + mutexMarker, id + kazooMarker}
	}
	return []string{id + mutexMarker}
}

// paired reports whether two names in a row are those of one node. They are created in
// one transaction, so nobody is between them, and whoever made them has lost the lock
// when one of them is gone.
func paired(first, second string) bool {
	_, m, ok1 := parseName(first)
	_, k, ok2 := parseName(second)
	id, bridged := strings.CutSuffix(second[:max(len(second)-sequenceDigits, 0)], kazooMarker)
	return ok1 && ok2 && bridged && k == m+1 && strings.HasPrefix(id, "_c_") &&
		first[:len(first)-sequenceDigits] == id+mutexMarker
}
