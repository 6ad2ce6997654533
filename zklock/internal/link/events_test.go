package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/need"
)

// Who relies on the watch of another may have looked before it was there.
func TestWatchThatBeginsLetsTheOthersLookAgain(t *testing.T) {
	e := Events{watches: make(map[string]*pathWatch)}
	var first, second int
	asks := &Watcher{Notify: func() { first++ }}
	relies := &Watcher{Notify: func() { second++ }}
	need.That(t, "the first one does not have to ask for the watch", !e.listen("/a", true, asks))
	need.That(t, "the second one has to ask for the watch, too", e.listen("/a", true, relies))
	e.answered(read{path: "/a", list: true, watcher: asks}, Answer{})
	need.Equal(t, "the first one was told", first, 0)
	need.Equal(t, "the second one was told", second, 1)
	need.That(t, "the watch is not armed any more", e.listen("/a", true, asks))
}

// Else whoever comes later would take the path for watched, and nobody would ask for the watch again.
func TestWatchOfAReadThatFailedIsNone(t *testing.T) {
	for _, list := range []bool{false, true} {
		e := Events{watches: make(map[string]*pathWatch)}
		told := 0
		asks, relies := &Watcher{Notify: func() { t.Error("whoever has the answer was told") }}, &Watcher{Notify: func() { told++ }}
		e.listen("/a", list, asks)
		e.listen("/a", list, relies)
		e.answered(read{path: "/a", list: list, watcher: asks}, Answer{Err: zk.ErrNoAuth})
		if again := !e.listen("/a", list, relies); told != 1 || !again {
			t.Errorf("list: %t; told %d times, want once; whoever looks again asks for the watch: %t, want true", list, told, again)
		}
		_, ok := e.Seen("/a")
		need.That(t, fmt.Sprintf("list: %t; something was seen", list), !ok)
	}
}

// Whoever finds that a path is not watched any more knows why, and asks for no watch on a node that has gone: that would
// cost a round trip on the way to the grant.
func TestNothingIsAskedOfANodeWhoseEndWasHeardOf(t *testing.T) {
	e := Events{watches: make(map[string]*pathWatch)}
	again := 0
	w := &Watcher{}
	w.Notify = func() {}
	need.That(t, "watched before anybody asked for it", !e.listen("/x", false, w))
	other := &Watcher{Notify: func() {
		if !e.listen("/x", false, w) { // between the event and what w makes of it
			again++
		}
	}}
	e.listen("/x", false, other)
	e.fire(zk.Event{Type: zk.EventNodeDeleted, Path: "/x"})
	need.That(t, fmt.Sprintf("asked again %d times", again), e.listen("/x", false, w) && again == 0)
	need.Equal(t, "paths that are listened to", len(e.watches), 0)
	changed := &Watcher{Notify: func() {}}
	e.listen("/y", false, changed)
	e.fire(zk.Event{Type: zk.EventNodeDataChanged, Path: "/y"})
	need.That(t, "a watch that a change has used up counts as one", !e.listen("/y", false, changed))
}

// A server refuses a frame that is too long.
func TestWatchesAreSetAgainInFramesUpToALimit(t *testing.T) {
	for over, want := range []int{1, 2} {
		const last = 100
		e := Events{watches: map[string]*pathWatch{
			strings.Repeat("a", restoreLimit-4-4-last): {},
			strings.Repeat("b", last+over):             {list: true},
		}}
		data, children := 0, 0
		requests := e.restore(7)
		for _, q := range requests {
			data, children = data+len(q.Data), children+len(q.Children)
		}
		if len(requests) != want || data != 1 || children != 1 || requests[0].Zxid != 7 {
			t.Errorf("%d bytes more than the limit: %d requests for %d nodes and %d lists, want %d for one each",
				over, len(requests), data, children, want)
		}
	}
}
