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

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

// TestWireOnModel and TestWireOnServer expect the same of both, but for changes, where the client library is too polite
// to look.
func TestWireOnModel(t *testing.T) {
	s := Start(t, Config{MinSessionTimeout: 2 * time.Second, MaxSessionTimeout: time.Minute})
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
				p.send(name, 99, wire.OpClose, nil)
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
	p.openAs(name, wire.ConnectRequest{Timeout: 5 * time.Second, Session: id, Password: key})
}

func (p *peer) openAs(name string, q wire.ConnectRequest) {
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

// read returns the next frame, or logs the end of the connection and returns nil.
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

// oversized is the header of a frame that is longer than a server allows.
var oversized = binary.BigEndian.AppendUint32(nil, maxFrame+1)
