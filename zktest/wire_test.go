package zktest

import (
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

var wireTests = []struct {
	name string
	run  func(p *peer)
	want string
}{
	{"timeout is clamped", func(p *peer) {
		p.openAs("b", wire.ConnectRequest{Timeout: time.Millisecond})
		p.openAs("c", wire.ConnectRequest{Timeout: 3 * time.Second, ReadOnly: true})
		p.openAs("d", wire.ConnectRequest{Timeout: time.Hour})
	}, `
			b: new session, timeout 2000, key of 16 bytes, version 0, 0 bytes more
			c: new session, timeout 3000, key of 16 bytes, version 0, 1 bytes more
			d: new session, timeout 60000, key of 16 bytes, version 0, 0 bytes more
			`},
	{"re-attach moves the session", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/e", "x", 1))
		p.openAs("b", wire.ConnectRequest{Timeout: 3 * time.Second, Session: p.ids["a"], Password: p.keys["a"]})
		p.recv("a")
		p.do("b", 1, wire.OpExists, pathAndFlag("/e", false))
		p.do("b", 2, wire.OpDelete, deleteBody("/e"))
	}, `
			a: xid 1 at +1, code 0, 6 bytes
			b: same session, timeout 3000, key of 16 bytes, version 0, 0 bytes more
			a: closed
			b: xid 1 at +1, code 0, 68 bytes
			b: xid 2 at +2, code 0, 0 bytes
			`},
	{"unknown session and wrong password are expired", func(p *peer) {
		p.open("b", 12345, nil)
		p.recv("b")
		p.open("c", p.ids["a"], make([]byte, wire.PasswordLen))
		p.recv("c")
		p.recv("a") // whoever asks for a session ends its connection
		p.open("d", p.ids["a"], p.keys["a"])
	}, `
			b: expired, timeout 0, key of 16 bytes, version 0, 0 bytes more
			b: closed
			c: expired, timeout 0, key of 16 bytes, version 0, 0 bytes more
			c: closed
			a: closed
			d: same session, timeout 5000, key of 16 bytes, version 0, 0 bytes more
			`},
	{"a client from the future is hung up on", func(p *peer) {
		p.openAs("b", wire.ConnectRequest{Timeout: 5 * time.Second, LastZxid: p.zxid + 1})
		p.openAs("c", wire.ConnectRequest{Timeout: 5 * time.Second, LastZxid: p.zxid})
	}, `
			b: closed
			c: new session, timeout 5000, key of 16 bytes, version 0, 0 bytes more
			`},
	{"closing ends session and connection", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/e", "x", 1))
		p.do("a", 2, wire.OpExists, pathAndFlag("/e", true))
		p.send("a", 3, wire.OpClose, nil)
		p.recv("a")
		p.recv("a")
		p.recv("a")
		p.open("b", p.ids["a"], p.keys["a"])
	}, `
			a: xid 1 at +1, code 0, 6 bytes
			a: xid 2 at +1, code 0, 68 bytes
			a: xid -1 at never, code 0, 14 bytes
			a: xid 3 at +2, code 0, 0 bytes
			a: closed
			b: expired, timeout 0, key of 16 bytes, version 0, 0 bytes more
			`},
	{"replies carry xid and zxid", func(p *peer) {
		p.do("a", -2, wire.OpPing, nil)
		p.do("a", 7, wire.OpPing, nil)
		p.do("a", 8, wire.OpCreate, createBody("/x", "", 0))
		p.do("a", 9, wire.OpCreate, createBody("/x", "", 0))
		p.do("a", 10, wire.OpGetData, pathAndFlag("/x", false))
		p.do("a", 11, wire.OpGetData, pathAndFlag("/none", false))
		p.do("a", 12, wire.OpSync, pathAndFlag("/none", false)[:9])
		p.do("a", 13, wire.OpDelete, deleteBody("/x"))
		p.do("a", -8, wire.OpSetWatches, setWatchesBody(p.zxid, "/x"))
		p.recv("a")
		p.open("b", 0, nil)
		p.do("a", 14, wire.OpExists, pathAndFlag("/x", false))
	}, `
			a: xid -2 at +0, code 0, 0 bytes
			a: xid -2 at +0, code 0, 0 bytes
			a: xid 8 at +1, code 0, 6 bytes
			a: xid 9 at +2, code -110, 0 bytes
			a: xid 10 at +2, code 0, 72 bytes
			a: xid 11 at +2, code -101, 0 bytes
			a: xid 12 at +2, code 0, 9 bytes
			a: xid 13 at +3, code 0, 0 bytes
			a: xid -1 at never, code 0, 14 bytes
			a: xid -8 at +3, code 0, 0 bytes
			b: new session, timeout 5000, key of 16 bytes, version 0, 0 bytes more
			a: xid 14 at +4, code -101, 0 bytes
			`},
	{"requests the client library lacks", func(p *peer) {
		p.do("a", 1, wire.OpCreate2, createBody("/x", "1", 0))
		p.do("a", 2, wire.OpCreateContainer, createBody("/x/c", "1", flagContainer))
		p.do("a", 3, wire.OpCreateContainer, createBody("/x/c-", "1", 2))
		p.do("a", 4, wire.OpGetChildren, pathAndFlag("/x", false))
		p.do("a", 5, wire.OpCreate, createBody("/x/d", "1", 5))
		p.do("a", 6, wire.OpCreate, createBody("/x/d", "1", 7))
		p.do("a", 7, wire.OpCreate, createBody("/x//d", "1", 0)) // the parent, "/x/", is looked for first
		p.do("a", 8, wire.OpCreate, createBody("/x/..", "1", 0))
		p.do("a", 9, wire.OpCreate, createBody("x", "1", 0))
		p.do("a", 10, wire.OpDelete, deleteBody("x"))
		p.do("a", 11, wire.OpGetData, pathAndFlag("x", false))
		p.do("a", 12, wire.OpDelete, deleteBody("/x/c"))
		p.do("a", 13, wire.OpDelete, deleteBody("/x/c-0000000001"))
		p.do("a", 14, wire.OpDelete, deleteBody("/x"))
	}, `
			a: xid 1 at +1, code 0, 74 bytes
			a: xid 2 at +2, code 0, 76 bytes
			a: xid 3 at +3, code 0, 87 bytes
			a: xid 4 at +3, code 0, 25 bytes
			a: xid 5 at +4, code -6, 0 bytes
			a: xid 6 at +5, code -8, 0 bytes
			a: xid 7 at +6, code -101, 0 bytes
			a: xid 8 at +7, code -8, 0 bytes
			a: xid 9 at +8, code -8, 0 bytes
			a: xid 10 at +9, code -8, 0 bytes
			a: xid 11 at +9, code -101, 0 bytes
			a: xid 12 at +10, code 0, 0 bytes
			a: xid 13 at +11, code 0, 0 bytes
			a: xid 14 at +12, code 0, 0 bytes
			`},
	{"in a multi, flags say what is created", func(p *peer) {
		for i, op := range []int32{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
			for _, flags := range []int32{0, flagContainer} {
				d := p.do("a", int32(i), wire.OpMulti, multiBody(op, createBody("/x", "", flags)))
				p.logf("%s with flags %d: %s", wire.OpName(op), flags, wire.OpName(d.Int32()))
				p.do("a", 9, wire.OpDelete, deleteBody("/x"))
			}
		}
	}, `
			a: xid 0 at +1, code 0, 24 bytes
			create with flags 0: create
			a: xid 9 at +2, code 0, 0 bytes
			a: xid 0 at +3, code 0, 92 bytes
			create with flags 4: create2
			a: xid 9 at +4, code 0, 0 bytes
			a: xid 1 at +5, code 0, 24 bytes
			create2 with flags 0: create
			a: xid 9 at +6, code 0, 0 bytes
			a: xid 1 at +7, code 0, 92 bytes
			create2 with flags 4: create2
			a: xid 9 at +8, code 0, 0 bytes
			a: xid 2 at +9, code 0, 24 bytes
			createContainer with flags 0: create
			a: xid 9 at +10, code 0, 0 bytes
			a: xid 2 at +11, code 0, 92 bytes
			createContainer with flags 4: create2
			a: xid 9 at +12, code 0, 0 bytes
			`},
	{"flags without a meaning in a multi", func(p *peer) {
		for i, op := range []int32{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
			p.do("a", int32(i), wire.OpMulti, multiBody(op, createBody("/x", "", 7)))
		}
	}, `
			a: xid 0 at +1, code 0, 22 bytes
			a: xid 1 at +2, code 0, 22 bytes
			a: xid 2 at +3, code 0, 22 bytes
			`},
	{"half a create", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/x", "", 0)[:10])
	}, `
			a: xid 1 at +1, code -5, 0 bytes
			`},
	{"malformed requests", func(p *peer) {
		p.do("a", 1, wire.OpMulti, multiBody(wire.OpGetData, pathAndFlag("/", false)))
		p.do("a", 2, wire.OpMulti, multiBody(wire.OpSetACL, pathAndFlag("/", false)))
		p.do("a", 3, wire.OpExists, nil)
		p.do("a", 4, wire.OpSetWatches, nil)
	}, `
			a: xid 1 at +1, code -5, 0 bytes
			a: xid 2 at +2, code -5, 0 bytes
			a: xid 3 at +2, code -5, 0 bytes
			a: xid 4 at +2, code -5, 0 bytes
			`},
	{"too long a frame", func(p *peer) {
		p.conns["a"].Write(oversized)
		p.recv("a")
	}, `
			a: closed
			`},
	{"unknown requests", func(p *peer) {
		p.do("a", 1, 77, nil)
		p.recv("a")
		p.open("b", p.ids["a"], p.keys["a"])
	}, `
			a: xid 1 at never, code -6, 0 bytes
			a: closed
			b: same session, timeout 5000, key of 16 bytes, version 0, 0 bytes more
			`},
	{"unknown scheme", func(p *peer) {
		p.do("a", 1, wire.OpSetAuth, authBody("digest", "u:p"))
		p.do("a", 2, wire.OpSetAuth, authBody("digest", "nocolon"))
		p.do("a", 3, wire.OpSetAuth, authBody("nonsense", "u:p"))
		p.recv("a")
		p.open("b", p.ids["a"], p.keys["a"])
	}, `
			a: xid 1 at never, code 0, 0 bytes
			a: xid 2 at never, code 0, 0 bytes
			a: xid 3 at never, code -115, 0 bytes
			a: closed
			b: same session, timeout 5000, key of 16 bytes, version 0, 0 bytes more
			`},
}

func authBody(scheme, auth string) (e wire.Encoder) {
	e.Int32(0)
	e.String(scheme)
	e.Buffer([]byte(auth))
	return e
}

func setWatchesBody(zxid int64, data ...string) (e wire.Encoder) {
	e.SetWatches(wire.SetWatches{Zxid: zxid, Data: data})
	return e
}
