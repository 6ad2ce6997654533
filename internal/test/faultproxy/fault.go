package faultproxy

import (
	"fmt"

	"github.com/tierlock/tierlock/zklock/zktest"
)

// Intercept makes hook decide from now on whether a frame passes; nil lets all pass again. The hook is called without any lock held.
// Calls for different connections, and for the two directions of one, are concurrent. It may block, which delays one direction of one
// connection, and it may call every method of the proxy but Close. It panics unless the Action is [zktest.Pass] or [zktest.Cut].
func (p *Proxy) Intercept(hook func(f *zktest.Frame) zktest.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// passes asks the hook whether to forward a frame. If not, it cuts the connection.
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

const maxFrame = 32 << 20 // no honest frame is longer

type opCount struct {
	session int64
	op      string
}

// frameLocked numbers a new frame.
func (c *conn) frameLocked(dir zktest.Direction, op, path string) zktest.Frame {
	p := c.proxy
	p.nth[op]++
	p.nthOfSession[opCount{c.session, op}]++
	return zktest.Frame{
		Dir: dir, Op: op, Path: path, Session: c.session, Member: p.Addr(),
		Nth: p.nth[op], NthOfSession: p.nthOfSession[opCount{c.session, op}],
	}
}
