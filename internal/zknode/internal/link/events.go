package link

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// Events delivers the library's watch events to the watchers of each path. The library drops events when its channel is full (359).
// Therefore Events takes them from the library's callback, which gets all of them. The callback runs inside the library, so it must not
// block, and it must not call the library. It only sets a boolean, and the waiting goroutine then reads the node.
//
// There is at most one watch on a path. When its waiter leaves, the watch stays for a while and serves the next waiter. If no waiter comes,
// the watch is removed; see [dialed.removeWatches]. A watch ends with its connection. The library does not know these watches, because the
// socket requests them, and cannot remove them.
type Events struct {
	mu      sync.Mutex            // guards the field below
	watches map[string]*pathWatch // the key is the path
}

// A pathWatch is a watch on the server. The first event ends it.
type pathWatch struct {
	watchers map[*Watcher]struct{}
	seen     *Answer // the answer to the read that set the watch; nil if that read was a list, or has no answer yet
	begun    bool    // the read that set the watch was answered
	idle     bool    // at the last call of unused the watch had no watcher, and none has registered since
	ending   bool    // its removal was requested; watchers that register now have to read again after the removal
}

// A Watcher waits for events of one path.
type Watcher struct {
	Gone    atomic.Bool // the node was deleted; set before Notify is called
	Notify  func()      // must not block
	Checked bool        // the node is checked at each reconnect, so Notify is not called when the connection ends the watch
}

// The method listen registers w for the events of path. It returns true if the path is already watched. Otherwise the caller has to request
// the watch. The registration is done first, because an event may arrive directly after the answer. If w knows that the node was deleted,
// no watch is needed.
func (e *Events) listen(path string, w *Watcher) (watched bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.Gone.Load() {
		return true
	}
	known, watched := e.watches[path]
	if !watched {
		known = &pathWatch{watchers: make(map[*Watcher]struct{})}
		e.watches[path] = known
	}
	known.watchers[w] = struct{}{}
	known.idle = false
	return watched
}

// Hears reports whether w is notified of events about path.
func (e *Events) Hears(path string, w *Watcher) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.watches[path]
	if known == nil {
		return false
	}
	_, hears := known.watchers[w]
	return hears
}

// Ignore removes the registration of w. The watch itself stays.
func (e *Events) Ignore(path string, w *Watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.watches[path]; known != nil {
		delete(known.watchers, w)
	}
}

// The method answered handles the answer to a read that has requested the watch of its path. It keeps the content of the node, so later
// readers of the node need no request.
func (e *Events) answered(r read, a Answer) {
	e.mu.Lock()
	var others []*Watcher
	known := e.watches[r.path]
	switch {
	case known == nil: // the event arrived before the answer
	case a.Err != nil: // the path is not watched, so the other watchers have to read for themselves
		others = e.takeLocked(r.path)
	case r.list: // other watchers may have read before the watch was set, so they have to read again
		known.begun = true
		others = slices.Collect(maps.Keys(known.watchers))
	default:
		known.begun, known.seen = true, &a
	}
	e.mu.Unlock()
	for _, other := range others {
		if other != r.watcher {
			other.Notify()
		}
	}
}

// The method unused returns the watches that no goroutine has needed since its last call, up to the number most. The caller removes them
// from the server. Until removed is called, they still count as watches. Otherwise a new watch could be requested in the meantime, and the
// removal would remove it.
func (e *Events) unused(most int) map[string]*pathWatch {
	e.mu.Lock()
	defer e.mu.Unlock()
	unused := make(map[string]*pathWatch)
	for path, known := range e.watches {
		switch {
		case len(known.watchers) > 0 || !known.begun || known.ending:
		case !known.idle:
			known.idle = true
		case len(unused) < most:
			known.ending = true
			unused[path] = known
		}
	}
	return unused
}

// The method removed records that watches were removed. Watchers that have registered since the removal was requested have to read for
// themselves.
func (e *Events) removed(ended map[string]*pathWatch) {
	var watchers []*Watcher
	e.mu.Lock()
	for path, known := range ended {
		if e.watches[path] == known { // otherwise an event has ended this watch before, and the path has a new one
			watchers = append(watchers, e.takeLocked(path)...)
		}
	}
	e.mu.Unlock()
	for _, w := range watchers {
		w.Notify()
	}
}

// Seen returns the state that a node had when its watch was set. If the watch has ended, or was not set by a read of the node, Seen returns
// false.
func (e *Events) Seen(path string) (a Answer, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.watches[path]; known != nil && known.seen != nil {
		return *known.seen, true
	}
	return Answer{}, false
}

// fire notifies the watchers of a path of its event.
func (e *Events) fire(ev zk.Event) {
	e.mu.Lock()
	watchers := e.takeLocked(ev.Path)
	if ev.Type == zk.EventNodeDeleted {
		for _, w := range watchers {
			w.Gone.Store(true) // set before other code can find that the path is not watched
		}
	}
	e.mu.Unlock()
	for _, w := range watchers {
		w.Notify()
	}
}

// lapse is called for a new connection. It records that no path is watched, so all watchers have to read for themselves.
func (e *Events) lapse() {
	e.mu.Lock()
	lapsed := e.watches
	e.watches = make(map[string]*pathWatch)
	e.mu.Unlock()
	for _, known := range lapsed {
		for w := range known.watchers {
			if !w.Checked {
				w.Notify()
			}
		}
	}
}

func (e *Events) takeLocked(path string) []*Watcher {
	known := e.watches[path]
	if known == nil {
		return nil
	}
	delete(e.watches, path)
	return slices.Collect(maps.Keys(known.watchers))
}

// Watchers returns the number of watchers of each path. It is for tests.
func (e *Events) Watchers() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	numbers := make(map[string]int)
	for path, known := range e.watches {
		numbers[path] = len(known.watchers)
	}
	return numbers
}

// Transact runs a transaction.
func (l *Link) Transact(ops ...any) error { return l.Ask(Transaction(ops))[0].Err }

// Reading returns a request that reads a znode. It registers w for the end of the znode. If there is no watch yet, the request sets one.
func (l *Link) Reading(path string, w *Watcher) read {
	return read{path: path, Watch: !l.Events.listen(path, w), watcher: w}
}

// Listing returns a request that lists the queue at path. It registers w for the next change of the queue.
func (l *Link) Listing(path string, w *Watcher) Request {
	return read{path: path, list: true, Watch: !l.Events.listen(path, w), watcher: w}
}

// WatchQueue lists the queue at path, and registers w for its next change.
func (l *Link) WatchQueue(ctx context.Context, path string, w *Watcher) ([]string, error) {
	queue := l.Gather(ctx, path, l.Listing(path, w))[0]
	return queue.Children, queue.Err
}
