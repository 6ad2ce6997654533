package zklock_test

import (
	"context"
	"net"
	"sync"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A forger stands between a client and the server and puts its own bytes in the place of a frame.
type forger struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	op     int32 // whose next answer is forged
	forge  func(genuine []byte) []byte
	xid    int32 // put in the place of an event's, if not zero
	refuse bool  // no more connections, once it has forged
}

func newForger(s *zktest.Server) *forger { return &forger{dial: s.DialContext} }

// next forges the body of the next frame that answers op, behind the header if it has one.
func (f *forger) next(op int32, forge func(genuine []byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.op, f.forge = op, forge
}

// disguise makes a reply of the next event.
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

func (f *forger) option() zklock.Option {
	return zklock.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
		f.mu.Lock()
		refuse := f.refuse && f.forge == nil
		f.mu.Unlock()
		if refuse {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := f.dial(ctx, network, address)
		return &forged{Conn: conn, forger: f, ops: make(map[int32]int32)}, err
	})
}

// A forged is a connection under a forger.
type forged struct {
	net.Conn
	forger *forger
	shaken bool
	rest   []byte // of the frame that is being read

	mu    sync.Mutex
	begun bool
	ops   map[int32]int32 // by xid
}

// Write is given whole frames.
func (c *forged) Write(frame []byte) (int, error) {
	c.mu.Lock()
	if c.begun {
		d := wire.Decoder{Rest: wire.Body(frame)}
		h := d.RequestHeader()
		c.ops[h.Xid] = h.Op
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

// with forges bytes whatever the genuine ones are.
func with(body []byte) func([]byte) []byte { return func([]byte) []byte { return body } }
