package zklock

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

func (m *watchMirror) requested(xid, op int32, frame []byte) {
	kind := watchData
	switch op {
	case opGetData:
	case opExists:
		kind = watchExist
	case opGetChildren, opGetChildren2:
		kind = watchChildren
	default:
		return
	}
	if path, watch := watchRequest(frame); watch {
		m.asked[xid] = watchRef{path, kind}
	}
}

func (m *watchMirror) answered(xid, code int32) {
	ref, ok := m.asked[xid]
	if !ok {
		return
	}
	delete(m.asked, xid)
	switch {
	case code == 0 && ref.kind == watchExist: // the node exists: its data is watched
		m.set[watchRef{ref.path, watchData}] = true
	case code == 0, code == codeNoNode && ref.kind == watchExist:
		m.set[ref] = true
	}
}

func (m *watchMirror) fired(frame []byte) {
	event, path, ok := watchEvent(frame)
	if !ok {
		return
	}
	switch event {
	case eventCreated:
		delete(m.set, watchRef{path, watchExist})
	case eventDataChanged:
		delete(m.set, watchRef{path, watchExist})
		delete(m.set, watchRef{path, watchData})
	case eventChildrenChanged:
		delete(m.set, watchRef{path, watchChildren})
	case eventDeleted:
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
