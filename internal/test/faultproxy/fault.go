package faultproxy

import (
	"fmt"

	"github.com/tierlock/tierlock/zklock/zktest"
)

// Intercept makes hook decide from now on whether a frame passes. A nil hook lets all frames pass again. The proxy holds no lock when it
// calls the hook. Calls for different connections, and for the two directions of one connection, are concurrent. The hook may block, which
// delays one direction of one connection. It may call every method of the proxy except Close. The proxy panics if the Action is neither
// [zktest.Pass] nor [zktest.Cut].
func (p *Proxy) Intercept(hook func(f *zktest.Frame) zktest.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// The method passes asks the hook whether to forward a frame. If the frame is not to be forwarded, it cuts the connection.
func (c *conn) passes(f *zktest.Frame) bool {
	c.proxy.mu.Lock()
	hook := c.proxy.hook
	c.proxy.mu.Unlock()
	if hook == nil {
		return true
	}
	switch a := hook(f); a {
	case zktest.Pass:
		return true
	case zktest.Cut:
		return false
	default:
		panic(fmt.Sprintf("faultproxy: Intercept answered %v to %v", a, f))
	}
}

const maxFrame = 32 << 20 // no correct client or server sends a longer frame

type opCount struct {
	session int64
	op      string
}

// frameLocked returns a new frame with its numbers.
func (c *conn) frameLocked(dir zktest.Direction, op, path string) zktest.Frame {
	p := c.proxy
	p.nth[op]++
	p.nthOfSession[opCount{c.session, op}]++
	return zktest.Frame{
		Dir: dir, Op: op, Path: path, Session: c.session, Member: p.Addr(),
		Nth: p.nth[op], NthOfSession: p.nthOfSession[opCount{c.session, op}],
	}
}
