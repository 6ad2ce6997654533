package link

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A watcher that relies on the watch of another one may have read the node before that watch was set. It therefore has to read again.
func TestWatchThatBeginsLetsTheOthersLookAgain(t *testing.T) {
	e := Events{watches: make(map[string]*pathWatch)}
	var first, second int
	asks := &Watcher{Notify: func() { first++ }}
	relies := &Watcher{Notify: func() { second++ }}
	need.That(t, "the first one does not have to ask for the watch", !e.listen("/a", asks))
	need.That(t, "the second one has to ask for the watch, too", e.listen("/a", relies))
	e.answered(read{path: "/a", list: true, watcher: asks}, Answer{})
	need.Equal(t, "events of the first watcher", first, 0)
	need.Equal(t, "events of the second watcher", second, 1)
	need.That(t, "the watch is not armed any more", e.listen("/a", asks))
}

// A failed read sets no watch. Otherwise later watchers would believe that the path is watched, and would never request the watch again.
func TestWatchOfAReadThatFailedIsNone(t *testing.T) {
	for _, list := range []bool{false, true} {
		e := Events{watches: make(map[string]*pathWatch)}
		told := 0
		asks, relies := &Watcher{Notify: func() { t.Error("the watcher that has the answer was notified") }}, &Watcher{Notify: func() { told++ }}
		e.listen("/a", asks)
		e.listen("/a", relies)
		e.answered(read{path: "/a", list: list, watcher: asks}, Answer{Err: zk.ErrNoAuth})
		if again := !e.listen("/a", relies); told != 1 || !again {
			t.Errorf("list: %t; notified %d times, want once; the next read asks for the watch: %t, want true", list, told, again)
		}
		_, ok := e.Seen("/a")
		need.That(t, fmt.Sprintf("list: %t; something was seen", list), !ok)
	}
}

// If a watcher knows that the node it watches is deleted, it requests no further watch on that node. The request would cost one more round
// trip before the grant.
func TestNothingIsAskedOfANodeWhoseEndWasHeardOf(t *testing.T) {
	e := Events{watches: make(map[string]*pathWatch)}
	again := 0
	w := &Watcher{}
	w.Notify = func() {}
	need.That(t, "watched before anybody asked for it", !e.listen("/x", w))
	other := &Watcher{Notify: func() {
		if !e.listen("/x", w) { // after the event, and before w reacts to it
			again++
		}
	}}
	e.listen("/x", other)
	e.fire(zk.Event{Type: zk.EventNodeDeleted, Path: "/x"})
	need.That(t, fmt.Sprintf("asked again %d times", again), e.listen("/x", w) && again == 0)
	need.Equal(t, "paths that are listened to", len(e.watches), 0)
	changed := &Watcher{Notify: func() {}}
	e.listen("/y", changed)
	e.fire(zk.Event{Type: zk.EventNodeDataChanged, Path: "/y"})
	need.That(t, "a watch that a change has used up counts as one", !e.listen("/y", changed))
}
