package zkinspect

import (
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/zkqueue"
)

// knownToZKLock reports whether zk.Lock finds a number in a name. If it finds none, zk.Lock fails.
func knownToZKLock(name string) bool {
	for _, mark := range []string{"lock-", "__"} {
		if rest, ok := afterLast(name, mark); ok {
			name = rest
			break
		}
	}
	_, err := strconv.Atoi(name)
	return err == nil
}

func curator(kind zkqueue.Kind) bool {
	return kind == kindCurator || kind == zkqueue.KindWrite || kind == zkqueue.KindRead
}

// curatorNumber returns the part of a name by which Curator sorts. If Curator does not know the form of the name, it sorts by the whole
// name.
func curatorNumber(name string, kind zkqueue.Kind) string {
	marks := []string{"lock-"}
	if kind != kindCurator {
		marks = []string{"__READ__", "__WRIT__"}
	}
	for _, mark := range marks {
		if rest, ok := afterLast(name, mark); ok {
			return rest
		}
	}
	return name
}

func afterLast(s, sep string) (after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[i+len(sep):], true
	}
	return "", false
}
