package zktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/wire"
)

// TestWireOnModel and TestWireOnServer send requests that the client library never sends. Both expect the same answers, except for those
// that later releases have changed.
func TestWireOnModel(t *testing.T) {
	s := Start(t, Config{MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: time.Minute})
	runWire(t, Modelled, func() (net.Conn, error) { return s.DialTimeout("tcp", "127.0.0.1:2181", 0) })
}

func TestWireOnServer(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TickTime: time.Second})
	release := need.Get(s.Version())(t)
	runWire(t, release, func() (net.Conn, error) { return net.Dial("tcp", s.Addr()) })
}

func runWire(t *testing.T, release string, dial func() (net.Conn, error)) {
	t.Helper()
	for _, test := range wireTests {
		t.Run(test.name, func(t *testing.T) {
			p := &peer{t: t, dial: dial}
			p.open("a", 0, nil)
			p.zxid = p.zxidNow("a")
			p.log.Reset()
			test.run(p)
			got := p.log.String()
			for name, nc := range p.conns {
				p.send(name, 99, wire.OpClose, nil)
				io.Copy(io.Discard, nc) // reads until the session is closed
			}
			want := Expect(t, release, test.name, strings.ReplaceAll(test.want, "\n\t\t\t", "\n")[1:])
			need.Equal(t, "the conversation", got, want)
		})
	}
}

// A peer speaks the wire protocol over named connections, and records what it receives.
type peer struct {
	t     *testing.T
	dial  func() (net.Conn, error)
	conns map[string]net.Conn
	ids   map[string]int64
	keys  map[string][]byte
	zxid  int64 // the zxid at the start of the test
	log   strings.Builder
}

func (p *peer) logf(format string, args ...any) { fmt.Fprintf(&p.log, format+"\n", args...) }

// open connects and requests a session. If id is 0, it requests a new session.
func (p *peer) open(name string, id int64, key []byte) {
	p.t.Helper()
	p.openAs(name, wire.ConnectRequest{Timeout: 5 * time.Second, Session: id, Password: key})
}

func (p *peer) openAs(name string, q wire.ConnectRequest) {
	p.t.Helper()
	nc := need.Get(p.dial())(p.t)
	p.t.Cleanup(func() { nc.Close() })
	if p.conns == nil {
		p.conns, p.ids, p.keys = map[string]net.Conn{}, map[string]int64{}, map[string][]byte{}
	}
	p.conns[name] = nc
	if q.Password == nil {
		q.Password = make([]byte, wire.PasswordLen)
	}
	var e wire.Encoder
	e.ConnectRequest(q)
	p.write(name, e)
	d := p.read(name)
	if d == nil {
		return
	}
	version, timeout, id, key := d.Int32(), d.Int32(), d.Int64(), d.Buffer()
	p.ids[name], p.keys[name] = id, key
	what := "new session"
	switch id {
	case 0:
		what = "expired"
	case q.Session:
		what = "same session"
	}
	p.logf("%s: %s, timeout %d, key of %d bytes, version %d, %d bytes more", name, what, timeout, len(key), version, len(d.Rest))
}

func (p *peer) write(name string, body wire.Encoder) {
	p.t.Helper()
	if _, err := p.conns[name].Write(wire.Frame(body)); err != nil {
		p.logf("%s: write fails", name)
	}
}

// read returns the next frame. If the connection ends, it logs the end and returns nil.
func (p *peer) read(name string) *wire.Decoder {
	p.t.Helper()
	p.conns[name].SetReadDeadline(time.Now().Add(5 * time.Second))
	frame, err := wire.ReadFrame(p.conns[name], nil, maxFrame)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		p.t.Fatalf("%s: no answer after\n%s", name, &p.log)
	}
	if err != nil {
		p.logf("%s: closed", name)
		return nil
	}
	return &wire.Decoder{Rest: wire.Body(frame)}
}

func (p *peer) send(name string, xid int32, op int32, body wire.Encoder) {
	p.t.Helper()
	var e wire.Encoder
	e.RequestHeader(wire.RequestHeader{Xid: xid, Op: op})
	p.write(name, append(e, body...))
}

// recv logs the next reply and returns its body.
func (p *peer) recv(name string) *wire.Decoder {
	p.t.Helper()
	d := p.read(name)
	if d == nil {
		return nil
	}
	h := d.ReplyHeader()
	at := "never"
	if h.Zxid > 0 {
		at = fmt.Sprintf("+%d", h.Zxid-p.zxid)
	}
	p.logf("%s: xid %d at %s, code %d, %d bytes", name, h.Xid, at, h.Code, len(d.Rest))
	return d
}

func (p *peer) do(name string, xid int32, op int32, body wire.Encoder) *wire.Decoder {
	p.t.Helper()
	p.send(name, xid, op, body)
	return p.recv(name)
}

func (p *peer) zxidNow(name string) int64 {
	p.t.Helper()
	p.send(name, 1, wire.OpExists, pathAndFlag("/", false))
	return p.read(name).ReplyHeader().Zxid
}

func pathAndFlag(path string, flag bool) (e wire.Encoder) {
	e.String(path)
	e.Bool(flag)
	return e
}

func createBody(path, data string, flags int32) (e wire.Encoder) {
	e.String(path)
	e.Buffer([]byte(data))
	writeACL(&e, worldAll)
	e.Int32(flags)
	return e
}

func deleteBody(path string) (e wire.Encoder) {
	e.String(path)
	e.Int32(-1)
	return e
}

func multiBody(op int32, body wire.Encoder) (e wire.Encoder) {
	e.MultiHeader(wire.MultiHeader{Op: op, Code: -1})
	e = append(e, body...)
	e.MultiHeader(wire.LastOfMulti)
	return e
}

// The variable oversized is the header of a frame that is longer than a server permits.
var oversized = binary.BigEndian.AppendUint32(nil, maxFrame+1)

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
		p.recv("a") // another request for the session ends its earlier connection
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
		p.do("a", -8, wire.OpSetWatches, setWatchesBody(wire.SetWatches{Zxid: p.zxid, Data: []string{"/x"}}))
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
		p.do("a", 7, wire.OpCreate, createBody("/x//d", "1", 0)) // the server looks for the parent, "/x/", first
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
	{"reads as one", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/x", "1", 0))
		p.do("a", 2, wire.OpCreate, createBody("/x/y", "", 0))
		var lists wire.Encoder
		for _, path := range []string{"/x", "/none", "/x/y"} {
			lists.MultiHeader(wire.MultiHeader{Op: wire.OpGetChildren, Code: -1})
			lists = append(lists, pathAndFlag(path, true)...) // the flag asks for a watch, but the server sets none
		}
		lists.MultiHeader(wire.LastOfMulti)
		d := p.do("a", 3, wire.OpMultiRead, lists)
		for h := d.MultiHeader(); !h.Done && !d.Bad; h = d.MultiHeader() {
			if h.Op == wire.OpError {
				p.logf("error %d, %d", h.Code, d.Int32())
			} else {
				p.logf("%s, code %d: %q", wire.OpName(h.Op), h.Code, d.Strings())
			}
		}
		p.do("a", 4, wire.OpMultiRead, multiBody(wire.OpGetData, pathAndFlag("/x", true)))
		p.do("a", 5, wire.OpDelete, deleteBody("/x/y"))
		p.do("a", 6, wire.OpDelete, deleteBody("/x"))
		p.do("a", 7, wire.OpMultiRead, nil)
		p.do("a", 8, wire.OpMultiRead, multiBody(wire.OpGetData, nil)[:9])
	}, `
			a: xid 1 at +1, code 0, 6 bytes
			a: xid 2 at +2, code 0, 8 bytes
			a: xid 3 at +2, code 0, 53 bytes
			getChildren, code 0: ["y"]
			error -101, -101
			getChildren, code 0: []
			a: xid 4 at +2, code 0, 91 bytes
			a: xid 5 at +3, code 0, 0 bytes
			a: xid 6 at +4, code 0, 0 bytes
			a: xid 7 at +4, code -5, 0 bytes
			a: xid 8 at +4, code -5, 0 bytes
			`},
	{"watches that are removed", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/x", "1", 0))
		remove := func(xid, kind int32) {
			var q wire.Encoder
			q.RemoveWatches(wire.RemoveWatches{Path: "/x", Kind: kind})
			p.do("a", xid, wire.OpRemoveWatches, q)
		}
		remove(2, wire.AnyWatch)
		p.do("a", 3, wire.OpGetData, pathAndFlag("/x", true))
		p.do("a", 4, wire.OpGetChildren2, pathAndFlag("/x", true))
		remove(5, wire.AnyWatch)
		remove(6, wire.AnyWatch)
		p.do("a", 7, wire.OpGetData, pathAndFlag("/x", true))
		remove(8, 1)
		remove(9, 2)
		p.do("a", 10, wire.OpDelete, deleteBody("/x")) // this causes no event
		remove(11, wire.AnyWatch)
	}, `
			a: xid 1 at +1, code 0, 6 bytes
			a: xid 2 at +1, code -121, 0 bytes
			a: xid 3 at +1, code 0, 73 bytes
			a: xid 4 at +1, code 0, 72 bytes
			a: xid 5 at +1, code 0, 0 bytes
			a: xid 6 at +1, code -121, 0 bytes
			a: xid 7 at +1, code 0, 73 bytes
			a: xid 8 at +1, code -121, 0 bytes
			a: xid 9 at +1, code 0, 0 bytes
			a: xid 10 at +2, code 0, 0 bytes
			a: xid 11 at +2, code -121, 0 bytes
			`},
	{"watches as one", func(p *peer) {
		p.do("a", 1, wire.OpCreate, createBody("/x", "1", 0))
		p.do("a", 2, wire.OpCreate, createBody("/y", "", 0))
		q := wire.SetWatches{Zxid: math.MaxInt64, Data: []string{"/x", "/none"}, Children: []string{"/y", "/z"}}
		p.send("a", -1000, wire.OpSetWatches, setWatchesBody(q))
		event := func() {
			e := p.recv("a").Event()
			p.logf("%v of %s", e.Type, e.Path)
		}
		event()
		event()
		p.recv("a")
		p.send("a", 3, wire.OpDelete, deleteBody("/x"))
		event()
		p.recv("a")
		p.send("a", 4, wire.OpCreate, createBody("/y/z", "", 0))
		event()
		p.recv("a")
		p.do("a", 5, wire.OpDelete, deleteBody("/y/z"))
		p.do("a", 6, wire.OpDelete, deleteBody("/y"))
	}, `
			a: xid 1 at +1, code 0, 6 bytes
			a: xid 2 at +2, code 0, 6 bytes
			a: xid -1 at never, code 0, 17 bytes
			EventNodeDeleted of /none
			a: xid -1 at never, code 0, 14 bytes
			EventNodeDeleted of /z
			a: xid -1000 at +2, code 0, 0 bytes
			a: xid -1 at never, code 0, 14 bytes
			EventNodeDeleted of /x
			a: xid 3 at +3, code 0, 0 bytes
			a: xid -1 at never, code 0, 14 bytes
			EventNodeChildrenChanged of /y
			a: xid 4 at +4, code 0, 8 bytes
			a: xid 5 at +5, code 0, 0 bytes
			a: xid 6 at +6, code 0, 0 bytes
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

func setWatchesBody(q wire.SetWatches) (e wire.Encoder) {
	e.SetWatches(q)
	return e
}

// Modelled is the release whose answers the model gives. The tests expect these answers, unless a later release has changed them. It is
// Debian's package of that release, which has the fix for CVE-2024-23944. Other packages have this fix from 3.8.4 and 3.9.2 on.
const Modelled = "3.8.0"

// A change is an answer that differs in later releases.
type change struct {
	in      string   // the name of the script or of the wire test
	since   []string // the first release with the change, for each branch that has it, in order
	was, is string
}

// The variable changes lists all changes that the tests have found up to 3.9.3. The model has none of them.
var changes = []change{
	// exists requires the permission to read an existing node (ZOOKEEPER-2590). Code that has to work with both answers must not use exists
	// to bypass a node's ACL.
	{
		"acl", []string{"3.8.4", "3.9.2"},
		"b exists /a/auth\n  true c+8 m+8 p+8 v0 cv0 av0 owner=none len=1 kids=0\n",
		"b exists /a/auth\n  zk: not authenticated\n",
	},
	// From these releases on, an event has the zxid of its cause (ZOOKEEPER-4655). Neither the client library nor zklock uses it. If the
	// zxid of an event counted as seen, a later event of the same multi would not be requested again.
	{
		"closing ends session and connection", []string{"3.9.0"},
		"a: xid -1 at never,",
		"a: xid -1 at +2,",
	},
	// From these releases on, creates in a multi get the same answers as outside of it (ZOOKEEPER-4026). The client library sends only
	// create.
	{
		"in a multi, flags say what is created", []string{"3.8.2", "3.9.0"},
		"a: xid 1 at +5, code 0, 24 bytes\ncreate2 with flags 0: create\n",
		"a: xid 1 at +5, code 0, 92 bytes\ncreate2 with flags 0: create2\n",
	},
	{
		"in a multi, flags say what is created", []string{"3.8.2", "3.9.0"},
		"a: xid 2 at +9, code 0, 24 bytes\ncreateContainer with flags 0: create\n",
		"a: xid 2 at +9, code 0, 92 bytes\ncreateContainer with flags 0: create2\n",
	},
}

// Expect returns the answers that a release has to give to a script or a wire test. want has the answers of the modelled release.
func Expect(t *testing.T, release, test, want string) string {
	t.Helper()
	for _, c := range changes {
		if c.in != test {
			continue
		}
		need.Must(t, fmt.Sprintf("%s does not expect, or more than once:\n%s", test, c.was), strings.Count(want, c.was) == 1)
		if c.appliesTo(release) {
			want = strings.Replace(want, c.was, c.is, 1)
		}
	}
	return want
}

func (c change) appliesTo(release string) bool {
	have := numbers(release)
	for i, since := range c.since {
		first := numbers(since)
		sameBranch := slices.Equal(have[:2], first[:2])
		if slices.Compare(have, first) >= 0 && (sameBranch || i == len(c.since)-1) {
			return true
		}
	}
	return false
}

func numbers(release string) []int {
	var list []int
	for part := range strings.SplitSeq(release, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			panic(err)
		}
		list = append(list, n)
	}
	return list
}

func TestChangesReachBranchesOneByOne(t *testing.T) {
	c := change{since: []string{"3.8.4", "3.9.2"}}
	for release, want := range map[string]bool{
		"3.7.9": false, "3.8.0": false, "3.8.4": true, "3.8.10": true, "3.9.0": false, "3.9.2": true, "3.10.0": true, "4.0.0": true,
	} {
		need.Equal(t, fmt.Sprintf("a change of %v in %s", c.since, release), c.appliesTo(release), want)
	}
}

// FuzzRequest sends two arbitrary requests. The server answers or closes the connection, and its tree stays consistent.
func FuzzRequest(f *testing.F) {
	for _, op := range []int32{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
		for _, flags := range []int32{0, 1, 2, 3, flagContainer} {
			f.Add(op, []byte(createBody("/a", "x", flags)),
				int32(wire.OpMulti), []byte(multiBody(op, createBody("/a/b", "x", flags))))
		}
	}
	f.Add(int32(wire.OpCreateContainer), []byte(createBody("/a", "x", 4)), int32(wire.OpDelete), []byte(deleteBody("/a")))
	watches := wire.SetWatches{Data: []string{"/a", "/"}}
	f.Add(int32(wire.OpSetWatches), []byte(setWatchesBody(watches)), int32(wire.OpSetAuth), []byte(authBody("digest", "u:p")))
	f.Add(int32(wire.OpExists), []byte(pathAndFlag("", true)), int32(wire.OpGetChildren2), []byte(pathAndFlag("/", true)))
	f.Add(int32(wire.OpDelete), []byte(deleteBody("")), int32(wire.OpCreate), []byte(createBody("", "x", 0)))
	f.Add(int32(wire.OpMultiRead), []byte(multiBody(wire.OpGetChildren, pathAndFlag("/", true))), int32(wire.OpMultiRead), []byte{})
	f.Add(int32(wire.OpPing), []byte{}, int32(wire.OpClose), []byte{})
	f.Add(int32(77), []byte{1}, int32(-1), []byte{})
	f.Fuzz(func(t *testing.T, op1 int32, body1 []byte, op2 int32, body2 []byte) {
		if len(body1)+len(body2) > maxFrame/2 {
			t.Skip()
		}
		s := NewServer(Config{})
		p := &peer{t: t, dial: func() (net.Conn, error) { return s.DialTimeout("tcp", "a", 0) }}
		p.open("a", 0, nil)
		p.conns["a"].SetDeadline(time.Now().Add(5 * time.Second))
		p.send("a", 1, op1, body1)
		p.send("a", 2, op2, body2)
		p.send("a", 3, wire.OpClose, nil)
		for p.read("a") != nil {
		}
		s.Expire(p.ids["a"]) // the session still exists if the connection ended before the third request
		s.Close()
		checkTree(t, s)
		need.Equal(t, "connections left after Close", len(s.conns), 0)
	})
}

// checkTree checks that the counts and the indexes match the nodes.
func checkTree(t *testing.T, s *Server) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	kids := make(map[string]int32)
	ephemerals, containers := 0, 0
	for path, n := range s.tree.nodes {
		parent, name := splitPath(path)
		if path != "/" {
			kids[parent]++
			_, ok := s.tree.children[parent][name]
			need.That(t, fmt.Sprintf("%q is not a child of its parent", path), ok && s.tree.nodes[parent] != nil)
		}
		if n.ephemeral() {
			ephemerals++
			_, ok := s.tree.ephemerals[n.stat.EphemeralOwner][path]
			need.That(t, fmt.Sprintf("%q is not among the nodes of its session", path), ok)
		}
		if n.container() {
			containers++
		}
	}
	for path, n := range s.tree.nodes {
		need.Equal(t, path+": children it counts", n.kids, kids[path])
		need.Equal(t, path+": children it lists", len(s.tree.children[path]), int(kids[path]))
	}
	need.Equal(t, "ephemeral nodes after the end of the session", ephemerals, 0)
	need.Equal(t, "their index", len(s.tree.ephemerals), 0)
	need.Equal(t, fmt.Sprintf("containers in %v", s.tree.containers), len(s.tree.containers), containers)
}

func TestActionThatDoesNotFitPanics(t *testing.T) {
	for action, f := range map[Action]Frame{
		Throttled:                 {Dir: Reply, Op: "create"},
		Error(zk.ErrSessionMoved): {Dir: Request, Op: "connect"},
	} {
		s := NewServer(Config{})
		s.Intercept(func(*Frame) Action { return action })
		func() {
			defer func() { need.That(t, fmt.Sprintf("%+v for %v: no panic", action, f), recover() != nil) }()
			(&conn{server: s}).fate(&f)
		}()
		s.Close()
	}
}
