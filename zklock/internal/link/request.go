package link

import (
	"bytes"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/wire"
)

// A Request is asked of the server, alone or together with others; see [Link.Ask].
type Request interface {
	op() int32
	// encode writes the body of the request, decode reads that of a successful reply.
	encode(*wire.Encoder)
	decode(*wire.Decoder, *Answer)
	// call asks by way of the client library.
	call(*attached) Answer
}

// An Answer is what became of a request. What it tells depends on the request.
type Answer struct {
	Err      error
	Created  []string // paths
	Children []string
	Stat     zk.Stat
	Data     []byte // at most [maxData] of it

	// Nothing of a connection that was made elsewhere:
	Zxid    int64    // of the transaction
	Session *Session // under which it was executed
}

// A Listing reads the names of the children of a path, and may watch them.
type Listing struct {
	Path  string
	watch bool
}

func (Listing) op() int32 { return wire.OpGetChildren2 }

func (l Listing) encode(e *wire.Encoder) {
	e.String(l.Path)
	e.Bool(l.watch)
}

func (l Listing) decode(d *wire.Decoder, a *Answer) { a.Children = d.Strings() }

func (l Listing) call(c *attached) (a Answer) {
	if !l.watch {
		a.Children, _, a.Err = c.link.Conn.Children(l.Path)
		return a
	}
	children, _, events, err := c.link.Conn.ChildrenW(l.Path)
	if err == nil {
		c.forward(events)
	}
	return Answer{Children: children, Err: err}
}

// A reading tells the stat of a znode, and may watch it. Unlike one by exists, it leaves no
// watch behind where there is no node, which would stay for ever.
type reading struct {
	path    string
	Watch   bool
	watcher *Watcher // who hears of it
}

func (reading) op() int32 { return wire.OpGetData }

func (r reading) encode(e *wire.Encoder) {
	e.String(r.path)
	e.Bool(r.Watch)
}

func (r reading) decode(d *wire.Decoder, a *Answer) {
	a.Data = kept(d.Buffer()) // the frame is read into again
	a.Stat = zk.Stat{
		Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(),
		EphemeralOwner: d.Int64(), DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
	}
}

// maxData is what a node may say of its owner: more than any of this package does.
const maxData = 1 << 10

func kept(data []byte) []byte {
	if len(data) > maxData {
		return nil
	}
	return bytes.Clone(data)
}

func (r reading) call(c *attached) (a Answer) {
	var stat *zk.Stat
	var data []byte
	if r.Watch {
		var events <-chan zk.Event
		if data, stat, events, a.Err = c.link.Conn.GetW(r.path); a.Err == nil {
			c.forward(events)
		}
	} else {
		data, stat, a.Err = c.link.Conn.Get(r.path)
	}
	if a.Err == nil {
		a.Stat, a.Data = *stat, kept(data)
	}
	return a
}
