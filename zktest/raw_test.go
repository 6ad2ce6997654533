package zktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

// TestWireOnModel and TestWireOnServer expect the same of both, but for changes, where the client library is too polite
// to look.
func TestWireOnModel(t *testing.T) {
	s := NewServer(Config{MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: time.Minute})
	t.Cleanup(s.Close)
	runWire(t, Modelled, func() (net.Conn, error) { return s.DialTimeout("tcp", "127.0.0.1:2181", 0) })
}

func TestWireOnServer(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true, TickTime: time.Second})
	release, err := s.Version()
	if err != nil {
		t.Fatal(err)
	}
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
				p.send(name, 99, OpClose, nil)
				io.Copy(io.Discard, nc) // until the session is closed
			}
			want := Expect(t, release, test.name, strings.ReplaceAll(test.want, "\n\t\t\t", "\n")[1:])
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// A peer speaks the wire protocol over named connections and keeps a log of what it is told.
type peer struct {
	t     *testing.T
	dial  func() (net.Conn, error)
	conns map[string]net.Conn
	ids   map[string]int64
	keys  map[string][]byte
	zxid  int64 // at the start of the test
	log   strings.Builder
}

func (p *peer) logf(format string, args ...any) { fmt.Fprintf(&p.log, format+"\n", args...) }

// open connects and asks for a session: with id 0 for a new one.
func (p *peer) open(name string, id int64, key []byte) {
	p.t.Helper()
	p.openAs(name, connectRequest{timeout: 5 * time.Second, session: id, password: key})
}

func (p *peer) openAs(name string, q connectRequest) {
	p.t.Helper()
	nc, err := p.dial()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { nc.Close() })
	if p.conns == nil {
		p.conns, p.ids, p.keys = map[string]net.Conn{}, map[string]int64{}, map[string][]byte{}
	}
	p.conns[name] = nc
	if q.password == nil {
		q.password = make([]byte, passwordLen)
	}
	var e encoder
	e.int32(0)
	e.int64(q.lastZxid)
	e.int32(int32(q.timeout.Milliseconds()))
	e.int64(q.session)
	e.buffer(q.password)
	if q.readOnly {
		e.bool(false)
	}
	p.write(name, e)
	d := p.read(name)
	if d == nil {
		return
	}
	version, timeout, id, key := d.int32(), d.int32(), d.int64(), d.buffer()
	p.ids[name], p.keys[name] = id, key
	what := "new session"
	switch id {
	case 0:
		what = "expired"
	case q.session:
		what = "same session"
	}
	p.logf("%s: %s, timeout %d, key of %d bytes, version %d, %d bytes more", name, what, timeout, len(key), version, len(d.buf))
}

func (p *peer) write(name string, body encoder) {
	p.t.Helper()
	if _, err := p.conns[name].Write(frame(body)); err != nil {
		p.logf("%s: write fails", name)
	}
}

// read returns the next frame, or logs the end of the connection and returns nil.
func (p *peer) read(name string) *decoder {
	p.t.Helper()
	p.conns[name].SetReadDeadline(time.Now().Add(5 * time.Second))
	body, err := readFrame(p.conns[name])
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		p.t.Fatalf("%s: no answer after\n%s", name, &p.log)
	}
	if err != nil {
		p.logf("%s: closed", name)
		return nil
	}
	return &decoder{buf: body}
}

func (p *peer) send(name string, xid int32, op Op, body encoder) {
	p.t.Helper()
	var e encoder
	e.int32(xid)
	e.int32(int32(op))
	p.write(name, append(e, body...))
}

// recv logs the next reply and returns its body.
func (p *peer) recv(name string) *decoder {
	p.t.Helper()
	d := p.read(name)
	if d == nil {
		return nil
	}
	xid, zxid, code := d.int32(), d.int64(), d.int32()
	at := "never"
	if zxid > 0 {
		at = fmt.Sprintf("+%d", zxid-p.zxid)
	}
	p.logf("%s: xid %d at %s, code %d, %d bytes", name, xid, at, code, len(d.buf))
	return d
}

func (p *peer) do(name string, xid int32, op Op, body encoder) *decoder {
	p.t.Helper()
	p.send(name, xid, op, body)
	return p.recv(name)
}

func (p *peer) zxidNow(name string) int64 {
	p.t.Helper()
	p.send(name, 1, OpExists, pathAndFlag("/", false))
	d := p.read(name)
	d.int32()
	return d.int64()
}

func pathAndFlag(path string, flag bool) (e encoder) {
	e.string(path)
	e.bool(flag)
	return e
}

func createBody(path, data string, flags int32) (e encoder) {
	e.string(path)
	e.buffer([]byte(data))
	e.acl(worldAll)
	e.int32(flags)
	return e
}

func deleteBody(path string) (e encoder) {
	e.string(path)
	e.int32(-1)
	return e
}

func multiBody(op Op, body encoder) (e encoder) {
	e.multiHeader(op, false, -1)
	e = append(e, body...)
	e.multiHeader(-1, true, -1)
	return e
}

// oversized is the header of a frame that is longer than a server allows.
var oversized = binary.BigEndian.AppendUint32(nil, maxFrame+1)
