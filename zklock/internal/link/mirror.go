package link

import "github.com/tierlock/tierlock/internal/wire"

// A watchMirror knows which watches there are, and what has been seen, from the frames that go
// by. The library has no watches: all are asked for in batches.
type watchMirror struct {
	asked map[int32]watchRef // by xid; requests without a reply
	set   map[watchRef]bool
	seen  int64 // zxid of the newest reply; no event up to it is outstanding
}

// A watchRef is one watch.
type watchRef struct {
	path string
	kind watchKind
}

type watchKind int

const (
	watchData watchKind = iota
	watchChildren
)

func newWatchMirror() *watchMirror {
	return &watchMirror{asked: make(map[int32]watchRef), set: make(map[watchRef]bool)}
}

func (m *watchMirror) requested(h wire.RequestHeader, body wire.Decoder) {
	var kind watchKind
	switch h.Op {
	case wire.OpGetData:
		kind = watchData
	case wire.OpGetChildren2:
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
	if h.Code == wire.CodeOK {
		m.set[ref] = true
	}
}

func (m *watchMirror) fired(body wire.Decoder) {
	event := body.Event()
	path := event.Path
	switch event.Type {
	case wire.EventDataChanged:
		delete(m.set, watchRef{path, watchData})
	case wire.EventChildrenChanged:
		delete(m.set, watchRef{path, watchChildren})
	case wire.EventDeleted:
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
		case watchChildren:
			q.Children = append(q.Children, ref.path)
		}
	}
	return requests
}
