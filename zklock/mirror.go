package zklock

import "github.com/tierlock/tierlock/internal/wire"

// A watchMirror knows which watches the client library has, from the frames that go by.
// The library keeps its table to itself (conn.go:98), and whether it is going to send
// SetWatches after a reconnect depends on it. The rules are the library's: addWatcher
// on a reply, notifyWatches on an event.
type watchMirror struct {
	asked map[int32]watchRef // by xid; requests without a reply
	set   map[watchRef]bool
	due   int // SetWatches that the library is going to send
}

// A watchRef is one entry in the library's table.
type watchRef struct {
	path string
	kind watchKind
}

type watchKind int

const (
	watchData watchKind = iota
	watchExist
	watchChildren
)

func newWatchMirror() *watchMirror {
	return &watchMirror{asked: make(map[int32]watchRef), set: make(map[watchRef]bool)}
}

func (m *watchMirror) requested(h wire.RequestHeader, body wire.Decoder) {
	kind := watchData
	switch h.Op {
	case wire.OpGetData:
	case wire.OpExists:
		kind = watchExist
	case wire.OpGetChildren, wire.OpGetChildren2:
		kind = watchChildren
	default:
		return
	}
	if path, watch := body.String(), body.Bool(); watch {
		m.asked[h.Xid] = watchRef{path, kind}
	}
}

func (m *watchMirror) answered(h wire.ReplyHeader) {
	ref, ok := m.asked[h.Xid]
	if !ok {
		return
	}
	delete(m.asked, h.Xid)
	switch {
	case h.Code == wire.CodeOK && ref.kind == watchExist: // the node exists: its data is watched
		m.set[watchRef{ref.path, watchData}] = true
	case h.Code == wire.CodeOK, h.Code == wire.CodeNoNode && ref.kind == watchExist:
		m.set[ref] = true
	}
}

func (m *watchMirror) fired(body wire.Decoder) {
	event := body.Event()
	path := event.Path
	switch event.Type {
	case wire.EventCreated:
		delete(m.set, watchRef{path, watchExist})
	case wire.EventDataChanged:
		delete(m.set, watchRef{path, watchExist})
		delete(m.set, watchRef{path, watchData})
	case wire.EventChildrenChanged:
		delete(m.set, watchRef{path, watchChildren})
	case wire.EventDeleted:
		delete(m.set, watchRef{path, watchExist})
		delete(m.set, watchRef{path, watchData})
		delete(m.set, watchRef{path, watchChildren})
	}
}

// abandon drops the requests of a broken connection: they set no watch.
func (m *watchMirror) abandon() { clear(m.asked) }

// forget follows the end of the session: its watches are void.
func (m *watchMirror) forget() {
	clear(m.asked)
	clear(m.set)
	m.due = 0
}

// expectRewatch is called when the library has reconnected. It reports whether the
// library will set watches again.
func (m *watchMirror) expectRewatch() bool {
	if len(m.set) == 0 {
		return false
	}
	m.due++
	return true
}

// rewatched counts a SetWatches. It reports whether that was the last one due: one may
// be left over from the connection before.
func (m *watchMirror) rewatched() bool {
	m.due = max(m.due-1, 0)
	return m.due == 0
}
