package sim

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/second"
)

// A znodeName is what the name of a znode of a lock tells.
type znodeName struct {
	lock   string // path of the lock
	id     string // of the node: its znodes have it in common, also those that take the place of others
	marker string
	number int // that the server gave it
}

var znodePath = regexp.MustCompile(`^(.*)/(_c_[0-9a-f-]{36})-(lock-|__WRIT__|__READ__|__lock__|__rlock__|lease-)(\d{10})$`)

// parseZnode reports false for a path of any other form.
func parseZnode(path string) (z znodeName, ok bool) {
	m := znodePath.FindStringSubmatch(path)
	if m == nil {
		return z, false
	}
	number, _ := strconv.Atoi(m[4]) // the pattern sees to it
	return znodeName{lock: m[1], id: m[2], marker: m[3], number: number}, true
}

// permitMarker is that of the node of a permit, which is in no queue.
const permitMarker = "lease-"

// modes are the modes of nodes by the marker of their first znode.
var modes = map[string]second.Mode{"lock-": second.Exclusive, "__WRIT__": second.Writing, "__READ__": second.Reading}

// forKazoo reports whether it is a second znode: kazoo, which sees nothing else, stays out for as long as it is there.
func (z znodeName) forKazoo() bool { return z.marker == "__lock__" || z.marker == "__rlock__" }

// pairs reports whether second is what belongs right behind z.
func (z znodeName) pairs(second znodeName) bool {
	return second.id == z.id && second.number == z.number+1 && (second.marker == "__rlock__") == (z.marker == "__READ__")
}

// short is a node's name for the eye: what is unique about it, its kind and its number.
func short(path string) string {
	z, ok := parseZnode(path)
	if !ok {
		return path
	}
	return z.id[3:7] + "…" + strings.Trim(z.marker, "_-") + path[len(path)-10:]
}
