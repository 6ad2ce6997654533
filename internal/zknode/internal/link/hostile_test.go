package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A forger is a proxy between a client and the server. It replaces frames by its own bytes.
type forger struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	op     int32 // the type of request whose next answer is forged
	forge  func(genuine []byte) []byte
	xid    int32 // if not zero: replaces the xid of an event
	refuse bool  // after the forgery, no more connections are accepted
}

func newForger(s *zktest.Server) *forger { return &forger{dial: s.DialContext} }

// forger.next replaces the body of the next frame that answers op. The header stays.
func (f *forger) next(op int32, forge func(genuine []byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.op, f.forge = op, forge
}

// disguise makes the server's next event look like a reply.
func (f *forger) disguise(xid int32) {
	f.next(wire.OpEvent, func(genuine []byte) []byte { return genuine })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.xid = xid
}

func (f *forger) take(op int32) (forge func([]byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.op == op {
		forge, f.forge = f.forge, nil
	}
	return forge
}

func (f *forger) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forge == nil
}

// config returns the configuration of a link through f.
func (f *forger) config() Config {
	c := Config{Settings: second.Settings{TTL: timeout, Logger: slog.New(slog.DiscardHandler)}}
	c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		f.mu.Lock()
		refuse := f.refuse && f.forge == nil
		f.mu.Unlock()
		if refuse {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := f.dial(ctx, network, address)
		return &forged{Conn: conn, forger: f, ops: make(map[int32]int32)}, err
	}
	return c
}

// A forged is a connection through a forger.
type forged struct {
	net.Conn
	forger *forger
	shaken bool
	rest   []byte // the rest of the frame that is being read

	mu    sync.Mutex
	begun bool
	ops   map[int32]int32 // the key is the xid
}

// Write expects whole frames.
func (c *forged) Write(frame []byte) (int, error) {
	c.mu.Lock()
	if c.begun {
		for all := (wire.Decoder{Rest: frame}); len(all.Rest) > 0; {
			d := wire.Decoder{Rest: all.Take(int(all.Int32()))}
			h := d.RequestHeader()
			c.ops[h.Xid] = h.Op
		}
	}
	c.begun = true
	c.mu.Unlock()
	return c.Conn.Write(frame)
}

func (c *forged) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		frame, err := wire.ReadFrame(c.Conn, nil, 1<<20)
		if err != nil {
			return 0, err
		}
		c.rest = c.forge(frame)
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *forged) forge(frame []byte) []byte {
	d := wire.Decoder{Rest: wire.Body(frame)}
	if !c.shaken {
		c.shaken = true
		if forge := c.forger.take(wire.OpConnect); forge != nil {
			return wire.Frame(forge(d.Rest))
		}
		return frame
	}
	h := d.ReplyHeader()
	op := int32(wire.OpEvent)
	if h.Xid != wire.XidEvent {
		c.mu.Lock()
		op = c.ops[h.Xid]
		c.mu.Unlock()
	}
	forge := c.forger.take(op)
	if forge == nil {
		return frame
	}
	var e wire.Encoder
	h.Code = wire.CodeOK
	if xid := c.forger.xid; op == wire.OpEvent && xid != 0 {
		h.Xid = xid
	}
	e.ReplyHeader(h)
	return wire.Frame(append(e, forge(d.Rest)...))
}

// with(body) returns a forgery that ignores the genuine bytes.
func with(body []byte) func([]byte) []byte { return func([]byte) []byte { return body } }

// body concatenates integers, single bytes and strings, in the form that follows a header. The length precedes each string.
func body(fields ...any) []byte {
	var e wire.Encoder
	for _, field := range fields {
		switch v := field.(type) {
		case int:
			e.Int32(int32(v))
		case bool:
			e.Bool(v)
		case string:
			e.String(v)
		case []byte:
			e = append(e, v...)
		}
	}
	return e
}

// result returns the header of a result in a multi. If done is true, it returns the header that follows the last result.
func result(op int32, done bool) []byte {
	var e wire.Encoder
	e.MultiHeader(wire.MultiHeader{Op: op, Done: done})
	return e
}

const huge = 1 << 30

var (
	stat = make([]byte, wire.StatSize)
	all  = zk.WorldACL(zk.PermAll)
	node = &zk.CreateRequest{Path: "/x", Acl: all}
)

// Without the link's checks, these bodies would make the library panic, allocate as much as they claim, or read beyond its buffer.
var malformed = []struct {
	name string
	op   int32
	body []byte
}{
	{"create without a path", wire.OpCreate, nil},
	{"create with half a path", wire.OpCreate, body(9, []byte("/x"))},
	{"create with the null path", wire.OpCreate, body(-1)},
	{"sync without a path", wire.OpSync, body(false)},
	{"exists with half a stat", wire.OpExists, stat[1:]},
	{"set with half a stat", wire.OpSetData, stat[1:]},
	{"a gigabyte of data in 8 bytes", wire.OpGetData, body(huge, 0)},
	{"data without a stat", wire.OpGetData, body("data")},
	{"a billion children", wire.OpGetChildren2, body(huge)},
	{"children of a negative number", wire.OpGetChildren2, body(-1, stat)},
	{"a child of a gigabyte", wire.OpGetChildren2, body(1, huge, stat)},
	{"one child less than promised", wire.OpGetChildren2, body(2, "a")},
	{"children without a stat", wire.OpGetChildren2, body(1, "a", stat[1:])},
	{"multi without an end", wire.OpMulti, nil},
	{"multi with half a header", wire.OpMulti, body(1)},
	{"multi that ends behind a result", wire.OpMulti, body(result(wire.OpCreate, false), "/x")},
	{"multi with a path of a gigabyte", wire.OpMulti, body(result(wire.OpCreate, false), huge, result(-1, true))},
	{"multi with half a stat", wire.OpMulti, body(result(wire.OpSetData, false), stat[:9])},
	{"multi with half an error", wire.OpMulti, body(result(wire.OpError, false), false)},
	{"multi with deletes without an end", wire.OpMulti, body(result(wire.OpDelete, false), result(wire.OpCheck, false))},
	{"half a path behind an error", wire.OpMulti, body(result(wire.OpError, false), wire.CodeNoNode, result(wire.OpCreate, false), 100)},
	{"half a path behind another", wire.OpMulti, body(result(wire.OpCreate, false), "/x", result(wire.OpCreate, false), 100)},
	{"half a path behind a stat", wire.OpMulti, body(result(wire.OpSetData, false), stat, result(wire.OpCreate, false), 100)},
}

// ask makes the library send a request whose answer has a body of this type.
func ask(conn *zk.Conn, op int32) error {
	var err error
	switch op {
	case wire.OpCreate:
		_, err = conn.Create("/x", nil, 0, all)
	case wire.OpDelete:
		err = conn.Delete("/x", -1)
	case wire.OpSync:
		_, err = conn.Sync("/")
	case wire.OpExists:
		_, _, err = conn.Exists("/")
	case wire.OpGetData:
		_, _, err = conn.Get("/")
	case wire.OpSetData:
		_, err = conn.Set("/", nil, -1)
	case wire.OpGetChildren2:
		_, _, err = conn.Children("/")
	case wire.OpMulti:
		_, err = conn.Multi(node)
	default:
		return fmt.Errorf("no call for %s", wire.OpName(op))
	}
	return err
}

func TestMalformedReplyEndsTheConnectionAndSaysSo(t *testing.T) {
	for _, test := range malformed {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				f := newForger(s)
				l := dial(t, f.config(), addr)
				f.refuse = true
				f.next(test.op, with(test.body))
				wantErr(t, "the call", ask(l.Conn, test.op), zk.ErrConnectionClosed)
				synctest.Wait()
				wantMention(t, l.Err(), "malformed reply to "+wire.OpName(test.op))
			})
		})
	}
}

func TestMalformedEventEndsTheConnectionAndSaysSo(t *testing.T) {
	each(t, map[string][]byte{
		"without a path":           body(int32(zk.EventNodeDeleted), int32(zk.StateSyncConnected)),
		"with a path of gigabytes": body(int32(zk.EventNodeDeleted), int32(zk.StateSyncConnected), huge),
		"with half a type":         body(false),
	}, func(t *testing.T, s *zktest.Server, event []byte) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		f.refuse = true
		put(t, l.Conn, "/x")
		watch(t, l, "/x", true)
		f.next(wire.OpEvent, with(event))
		put(t, dial(t, to(s), addr).Conn, "/x/y")
		synctest.Wait()
		wantMention(t, l.Err(), "malformed event")
	})
}

func TestMalformedHandshakeEndsTheConnectionAndSaysSo(t *testing.T) {
	var reply wire.Encoder
	reply.ConnectReply(wire.ConnectReply{Timeout: timeout, Session: 1, Password: make([]byte, wire.PasswordLen)})
	claim := append([]byte(nil), reply[:20]...)
	binary.BigEndian.PutUint32(claim[16:], huge)
	each(t, map[string][]byte{
		"empty":                      nil,
		"with half a password":       reply[:30],
		"with a gigabyte in a count": claim,
	}, func(t *testing.T, s *zktest.Server, reply []byte) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		f.refuse = true
		f.next(wire.OpConnect, with(reply))
		s.CutAll()
		synctest.Wait()
		wantMention(t, l.Err(), "malformed reply")
	})
}

// A reply may have the xid of a request that the library has registered and not yet written. The library alone would take that reply for
// the answer. The link ends the connection.
func TestReplyWithoutARequestEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		f.refuse = true
		put(t, l.Conn, "/x")
		watch(t, l, "/x", true)
		f.disguise(77)
		put(t, dial(t, to(s), addr).Conn, "/x/y")
		synctest.Wait()
		wantMention(t, l.Err(), "reply to request 77, which was never sent")
	})
}

// If the server's answer to an executed transaction is missing or malformed, the error has no code, because the outcome is unknown.
func TestAnswerThatDoesNotFitATransactionIsNotBelieved(t *testing.T) {
	each(t, map[string][]byte{
		"no results": body(result(-1, true)),
		"too few":    body(result(wire.OpCreate, false), "/x", result(-1, true)),
		"too many": body(result(wire.OpCreate, false), "/x", result(wire.OpCreate, false), "/z", result(wire.OpDelete, false),
			result(-1, true)),
		"of other operations":  body(result(wire.OpDelete, false), result(wire.OpDelete, false), result(-1, true)),
		"of other paths":       body(result(wire.OpCreate, false), "/x", result(wire.OpCreate, false), "/y", result(-1, true)),
		"of an unknown type":   body(result(77, false)),
		"an end and a trailer": body(result(-1, true), "trailer"),
		"an end and a code":    body(result(-1, true), wire.CodeNoNode),
	}, func(t *testing.T, s *zktest.Server, reply []byte) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		attached := New(to(s))
		attached.Attach(l.Conn, l.Conn.SessionID)
		for _, l := range []*Link{l, attached} {
			f.next(wire.OpMulti, with(reply))
			a := l.Ask(Transaction{node, &zk.CreateRequest{Path: "/z", Acl: all}})[0]
			need.That(t, fmt.Sprintf("forged: %t; believed %q", f.done(), a.Created), a.Err != nil && !errors.Is(a.Err, zk.ErrNoNode) && f.done())
		}
		need.That(t, "not done", s.Exists("/x") && s.Exists("/z"))
	})
}

func TestPathThatWasNotAskedForIsNotBelieved(t *testing.T) {
	each(t, map[string]func(path string) string{
		"none":               func(string) string { return "" },
		"another one":        func(string) string { return "/elsewhere" },
		"none at all":        func(string) string { return "x" },
		"the parent":         func(string) string { return "/q" },
		"without a number":   func(path string) string { return path[:len(path)-len("0000000000")] },
		"something below it": func(path string) string { return path + "/x" },
	}, func(t *testing.T, s *zktest.Server, forge func(path string) string) {
		f := newForger(s)
		l := dial(t, f.config(), addr)
		put(t, l.Conn, "/q")
		f.next(wire.OpCreate, func(genuine []byte) []byte {
			d := wire.Decoder{Rest: genuine}
			return body(forge(d.String()))
		})
		a := l.Ask(Transaction{&zk.CreateRequest{Path: "/q/lock-", Acl: all, Flags: zk.FlagEphemeral | zk.FlagSequence}})[0]
		need.That(t, fmt.Sprintf("forged: %t; believed %q", f.done(), a.Created), a.Err != nil && f.done() && len(s.Children("/q")) == 1)
	})
}

// FuzzHostileServer answers one request with any bytes. The client must not crash, and may allocate only in proportion to these bytes.
func FuzzHostileServer(f *testing.F) {
	for _, test := range malformed {
		f.Add(test.op, test.body)
	}
	for _, op := range []int32{
		wire.OpCreate, wire.OpDelete, wire.OpSync, wire.OpExists, wire.OpGetData, wire.OpSetData,
		wire.OpGetChildren2, wire.OpMulti,
	} {
		f.Add(op, []byte{})
		f.Add(op, make([]byte, 2*wire.StatSize))
	}
	f.Add(int32(wire.OpMulti), body(result(-1, true)))
	s := zktest.NewServer(zktest.Config{})
	f.Cleanup(s.Close)
	forger := newForger(s)
	l, err := tryDial(need.Within(f, time.Minute), forger.config(), addr)
	need.OK(f, err)
	f.Cleanup(func() { shut(l) })
	f.Fuzz(func(t *testing.T, op int32, reply []byte) {
		before := allocated()
		forger.next(op, with(reply))
		ask(l.Conn, op)
		forger.next(0, nil)
		err := errors.New("not asked")
		for tries := 0; err != nil && tries < 10; tries++ { // the connection may have been closed
			_, _, err = l.Conn.Get("/")
		}
		need.OK(t, err)
		need.AtMost(t, "bytes allocated", allocated()-before, uint64(4<<20+100*len(reply)))
	})
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
