package zklock

import (
	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A request is asked of the server, alone or together with others; see [link.ask].
type request interface {
	op() int32
	// encode writes the body of the request, decode reads that of a successful reply.
	encode(*wire.Encoder)
	decode(*wire.Decoder, *answer)
	// call asks by way of the client library.
	call(*Client) answer
}

// An answer is what became of a request. What it tells depends on the request.
type answer struct {
	err      error
	created  []string // paths
	children []string
	stat     zk.Stat

	// Nothing of a connection that was made elsewhere:
	zxid    int64    // of the transaction
	session *session // under which it was executed
}

// A listing reads the names of the children of a path, and may watch them.
type listing struct {
	path  string
	watch bool
}

func (listing) op() int32 { return wire.OpGetChildren2 }

func (l listing) encode(e *wire.Encoder) {
	e.String(l.path)
	e.Bool(l.watch)
}

func (l listing) decode(d *wire.Decoder, a *answer) { a.children = d.Strings() }

func (l listing) call(c *Client) (a answer) {
	if !l.watch {
		a.children, _, a.err = c.conn.Children(l.path)
		return a
	}
	children, _, events, err := c.conn.ChildrenW(l.path)
	if err == nil {
		c.link.forward(events)
	}
	return answer{children: children, err: err}
}

// A reading tells the stat of a znode, and may watch it. Unlike one by exists, it leaves no
// watch behind where there is no node, which would stay for ever.
type reading struct {
	path    string
	watch   bool
	watcher *watcher // who hears of it
}

func (reading) op() int32 { return wire.OpGetData }

func (r reading) encode(e *wire.Encoder) {
	e.String(r.path)
	e.Bool(r.watch)
}

func (r reading) decode(d *wire.Decoder, a *answer) {
	d.Buffer()
	a.stat = zk.Stat{
		Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(),
		EphemeralOwner: d.Int64(), DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
	}
}

func (r reading) call(c *Client) (a answer) {
	var stat *zk.Stat
	if r.watch {
		var events <-chan zk.Event
		if _, stat, events, a.err = c.conn.GetW(r.path); a.err == nil {
			c.link.forward(events)
		}
	} else {
		_, stat, a.err = c.conn.Get(r.path)
	}
	if a.err == nil {
		a.stat = *stat
	}
	return a
}
