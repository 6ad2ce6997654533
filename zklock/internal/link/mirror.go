package link

import "github.com/tierlock/tierlock/internal/wire"

// A watchMirror knows which watches there are, those of [flight]s as well as the client
// library's, from the frames that go by, and what has been seen. The library keeps its
// table to itself (conn.go:98). The rules are the library's: addWatcher on a reply,
// notifyWatches on an event.
type watchMirror struct {
	asked map[int32]watchRef // by xid; requests without a reply
	set   map[watchRef]bool
	seen  int64 // zxid of the newest reply; no event up to it is outstanding
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
	if h.Zxid > 0 {
		m.seen = h.Zxid
	}
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
	m.seen = 0
}

// restoreLimit bounds a request that sets watches, as the library and the Java client
// bound theirs: servers refuse a frame above their jute.maxbuffer, 1 MB by default.
const restoreLimit = 128 << 10

// restore returns what sets all watches again, in as many requests as it takes.
func (m *watchMirror) restore() []wire.SetWatches {
	var requests []wire.SetWatches
	size := restoreLimit
	for ref := range m.set {
		if size += 4 + len(ref.path); size > restoreLimit {
			requests = append(requests, wire.SetWatches{Zxid: m.seen})
			size = 4 + len(ref.path)
		}
		q := &requests[len(requests)-1]
		switch ref.kind {
		case watchData:
			q.Data = append(q.Data, ref.path)
		case watchExist:
			q.Exist = append(q.Exist, ref.path)
		case watchChildren:
			q.Children = append(q.Children, ref.path)
		}
	}
	return requests
}
