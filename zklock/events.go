package zklock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// events brings what the client library pushes to those who wait for it. The library
// drops events when its channel is full (359), so they are taken from its callback,
// which sees all. The callback runs inside the library and must not block or call it;
// it sets a boolean and the waiting side looks again.
//
// A watch cannot be removed, so there is at most one on a path: it stays armed when its
// waiter leaves, and serves the next one.
type events struct {
	mu    sync.Mutex                       // guards the field below
	armed map[string]map[*watcher]struct{} // watched path → who wants to know
}

// A watcher wants to know about one path.
type watcher struct {
	gone   atomic.Bool // the node is gone; set before notify is called
	notify func()      // must not block
}

// listen adds w to those who hear of path. It reports whether the path is watched
// already; if not, the caller has to ask for the watch. The entry is made before that,
// so that an event right behind the answer finds it. Of a node whose end w has heard of there
// is nothing to ask.
func (e *events) listen(path string, w *watcher) (armed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.gone.Load() {
		return true
	}
	watchers, armed := e.armed[path]
	if !armed {
		watchers = make(map[*watcher]struct{})
		e.armed[path] = watchers
	}
	watchers[w] = struct{}{}
	return armed
}

// ignore ends what listen began; the watch stays.
func (e *events) ignore(path string, w *watcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.armed[path], w)
}

// failed says that path is not watched after all, because w asked for it in vain. The
// others who rely on it have to look for themselves.
func (e *events) failed(path string, w *watcher) {
	e.mu.Lock()
	delete(e.armed[path], w)
	others := e.takeLocked(path)
	e.mu.Unlock()
	for _, other := range others {
		other.notify()
	}
}

// begun says that path is watched now, because w asked for it. The others who relied on
// it may have looked before that, and have to look again.
func (e *events) begun(path string, w *watcher) {
	e.mu.Lock()
	watchers := slices.Collect(maps.Keys(e.armed[path]))
	e.mu.Unlock()
	for _, other := range watchers {
		if other != w {
			other.notify()
		}
	}
}

// fire passes on an event of a node.
func (e *events) fire(ev zk.Event) {
	e.mu.Lock()
	watchers := e.takeLocked(ev.Path)
	if ev.Type == zk.EventNodeDeleted {
		for _, w := range watchers {
			w.gone.Store(true) // before anybody finds that the path is not watched
		}
	}
	e.mu.Unlock()
	for _, w := range watchers {
		w.notify()
	}
}

// lapse says that no path is watched any more. All have to look for themselves.
func (e *events) lapse() {
	e.mu.Lock()
	armed := e.armed
	e.armed = make(map[string]map[*watcher]struct{})
	e.mu.Unlock()
	for _, watchers := range armed {
		for w := range watchers {
			w.notify()
		}
	}
}

func (e *events) takeLocked(path string) []*watcher {
	watchers := slices.Collect(maps.Keys(e.armed[path]))
	delete(e.armed, path)
	return watchers
}
