package zklock

import "testing"

// Who relies on the watch of another may have looked before it was there.
func TestWatchThatBeginsLetsTheOthersLookAgain(t *testing.T) {
	e := events{armed: make(map[string]map[*watcher]struct{})}
	var first, second int
	asks := &watcher{notify: func() { first++ }}
	relies := &watcher{notify: func() { second++ }}
	if e.listen("/a", asks) {
		t.Error("the first one does not have to ask for the watch")
	}
	if !e.listen("/a", relies) {
		t.Error("the second one has to ask for the watch, too")
	}
	e.begun("/a", asks)
	if first != 0 || second != 1 {
		t.Errorf("told %d and %d times, want the second one, once", first, second)
	}
	if !e.listen("/a", asks) {
		t.Error("the watch is not armed any more")
	}
}
