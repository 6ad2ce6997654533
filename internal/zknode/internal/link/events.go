package link

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// Events delivers the library's watch events to the watchers of each path. The library drops events when its channel is full (359), so
// they are taken from its callback, which gets all of them. The callback runs inside the library and must not block or call it. It sets a
// boolean, and the waiting goroutine then checks for itself.
//
// There is at most one watch on a path: it stays for a while when its waiter leaves, and serves the next one. If none comes, it is
// removed; see [dialed.removeWatches]. A watch ends with its connection. The library does not know of these watches, and cannot remove
// any.
type Events struct {
	mu      sync.Mutex            // guards the field below
	watches map[string]*pathWatch // by path
}

// A pathWatch is a watch on the server, which ends with its first event.
type pathWatch struct {
	watchers map[*Watcher]struct{}
	seen     *Answer // to the read that began it; nil for a list, or if there is none so far
	begun    bool    // the answer has come
	idle     bool    // there was no watcher at the last call of unused, and none has come since
	ending   bool    // its removal has been asked for: those who come have to look again when it is over
}

// A Watcher waits for events of one path.
type Watcher struct {
	Gone    atomic.Bool // the node is gone; set before Notify is called
	Notify  func()      // must not block
	Checked bool        // its node is checked at each reconnect, so Notify need not report that the watch has lapsed
}

// listen registers w for the events of path. listen reports whether the path is watched already; if not, the caller has to request the
// watch. The registration comes first, so that an event right behind the answer finds it. If w knows that the node is gone, no watch is
// needed.
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

// Ignore ends the registration; the watch stays.
func (e *Events) Ignore(path string, w *Watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.watches[path]; known != nil {
		delete(known.watchers, w)
	}
}

// answered handles the answer to a read that has requested the watch of its path. The content of the node is kept, so later readers need no
// request.
func (e *Events) answered(r read, a Answer) {
	e.mu.Lock()
	var others []*Watcher
	known := e.watches[r.path]
	switch {
	case known == nil: // the event was faster
	case a.Err != nil: // it is not watched after all, and those who rely on that have to look for themselves
		others = e.takeLocked(r.path)
	case r.list: // those who rely on it may have looked before it was watched
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

// unused returns at most most watches that no goroutine has needed since the last call. The caller removes them from the server. Until
// removed is called they count as watches, so that no new one is requested meanwhile, which the removal would hit.
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

// removed records that watches have been removed. Watchers that have registered since the removal was requested have to read for
// themselves.
func (e *Events) removed(ended map[string]*pathWatch) {
	var watchers []*Watcher
	e.mu.Lock()
	for path, known := range ended {
		if e.watches[path] == known { // else an event was faster
			watchers = append(watchers, e.takeLocked(path)...)
		}
	}
	e.mu.Unlock()
	for _, w := range watchers {
		w.Notify()
	}
}

// Seen returns the state of a node when its watch began. Seen returns false if the watch has ended, or did not begin with a read of the
// node.
func (e *Events) Seen(path string) (a Answer, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.watches[path]; known != nil && known.seen != nil {
		return *known.seen, true
	}
	return Answer{}, false
}

// fire passes on an event of a node.
func (e *Events) fire(ev zk.Event) {
	e.mu.Lock()
	watchers := e.takeLocked(ev.Path)
	if ev.Type == zk.EventNodeDeleted {
		for _, w := range watchers {
			w.Gone.Store(true) // before anybody finds that the path is not watched
		}
	}
	e.mu.Unlock()
	for _, w := range watchers {
		w.Notify()
	}
}

// lapse records that no path is watched any more, as on a new connection. All watchers have to read for themselves.
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

// Reading is a request that reads a znode and registers w for its end: it requests the watch, unless there is one.
func (l *Link) Reading(path string, w *Watcher) read {
	return read{path: path, Watch: !l.Events.listen(path, w), watcher: w}
}

// Listing is a request that lists the queue at path and registers w for its next change.
func (l *Link) Listing(path string, w *Watcher) Request {
	return read{path: path, list: true, Watch: !l.Events.listen(path, w), watcher: w}
}

// WatchQueue lists the queue at path, and registers w for its next change.
func (l *Link) WatchQueue(ctx context.Context, path string, w *Watcher) ([]string, error) {
	queue := l.Gather(ctx, path, l.Listing(path, w))[0]
	return queue.Children, queue.Err
}
