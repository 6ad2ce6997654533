package link

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// Who relies on the watch of another may have looked before it was there.
func TestWatchThatBeginsLetsTheOthersLookAgain(t *testing.T) {
	e := Events{armed: make(map[string]map[*Watcher]struct{}), seen: make(map[string]Answer)}
	var first, second int
	asks := &Watcher{Notify: func() { first++ }}
	relies := &Watcher{Notify: func() { second++ }}
	if e.listen("/a", asks) {
		t.Error("the first one does not have to ask for the watch")
	}
	if !e.listen("/a", relies) {
		t.Error("the second one has to ask for the watch, too")
	}
	e.answered(read{path: "/a", list: true, watcher: asks}, Answer{})
	if first != 0 || second != 1 {
		t.Errorf("told %d and %d times, want the second one, once", first, second)
	}
	if !e.listen("/a", asks) {
		t.Error("the watch is not armed any more")
	}
}

// Whoever finds that a path is not watched any more knows why, and asks for no watch on a node that has gone: that would
// cost a round trip on the way to the grant.
func TestNothingIsAskedOfANodeWhoseEndWasHeardOf(t *testing.T) {
	e := Events{armed: make(map[string]map[*Watcher]struct{}), seen: make(map[string]Answer)}
	again := 0
	w := &Watcher{}
	w.Notify = func() {}
	if e.listen("/x", w) {
		t.Fatal("watched before anybody asked for it")
	}
	other := &Watcher{Notify: func() {
		if !e.listen("/x", w) { // between the event and what w makes of it
			again++
		}
	}}
	e.listen("/x", other)
	e.fire(zk.Event{Type: zk.EventNodeDeleted, Path: "/x"})
	if !e.listen("/x", w) || again > 0 || len(e.armed) > 0 {
		t.Errorf("asked again %d times, listening to %d paths", again, len(e.armed))
	}
	changed := &Watcher{Notify: func() {}}
	e.listen("/y", changed)
	if e.fire(zk.Event{Type: zk.EventNodeDataChanged, Path: "/y"}); e.listen("/y", changed) {
		t.Error("a watch that a change has used up counts as one")
	}
}
