package faultproxy

import (
	"fmt"

	"github.com/tierlock/tierlock/zklock/zktest"
)

// Intercept makes hook decide the fate of every frame from now on; nil lets all pass again.
// The hook is called without any lock held, concurrently for different connections and for the two directions of one.
// It may block, which holds up one direction of one connection, and may call every method of the proxy but Close.
// It panics if an Action does not fit the frame: errors are for requests. The answer that is an error keeps its place
// among the others, and like any request the one it is for prolongs the session.
func (p *Proxy) Intercept(hook func(f *zktest.Frame) zktest.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// fate asks the hook, and has waited out a delay when it returns.
func (c *conn) fate(f *zktest.Frame) zktest.Action {
	c.proxy.mu.Lock()
	hook := c.proxy.hook
	c.proxy.mu.Unlock()
	if hook == nil {
		return zktest.Pass
	}
	a := hook(f)
	if !a.Fits(f.Dir == zktest.Request, f.Op == "connect") {
		panic(fmt.Sprintf("faultproxy: Intercept answered %v to %v", a, f))
	}
	return a.Await(c.done)
}

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
