package faultproxy

import (
	"fmt"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// A Frame is one message between a client and the server, with what only the wire tells.
type Frame struct {
	zktest.Frame
	Xid  int32       // zero in a handshake
	Zxid int64       // of a reply: the last transaction its server knows of; for a write, its own
	Code zktest.Code // of a reply; zero is success
}

// An Action is what happens to a frame. The zero Action is [Pass]. The actions mean what they mean in zktest.
type Action struct {
	verb  verb
	delay time.Duration
	code  zktest.Code
}

type verb int

const (
	pass verb = iota
	drop
	cut
	expired
	delay
	fail
)

var (
	// Pass lets the frame through.
	Pass = Action{}
	// Drop loses the frame and nothing else. A dropped request never reaches the server.
	Drop = Action{verb: drop}
	// Cut closes the connection instead: at [zktest.Request] the operation is not applied, at [zktest.Reply] it is.
	Cut = Action{verb: cut}
	// Expired answers a handshake as if the session had expired, while session and ephemeral nodes live on.
	Expired = Action{verb: expired}
)

// Delay holds the frame, and all behind it in the same direction of the connection, for d.
func Delay(d time.Duration) Action { return Action{verb: delay, delay: d} }

// Error answers a request with code and does not apply it. The answer keeps its place among the others, and like any
// request it prolongs the session.
func Error(code zktest.Code) Action { return Action{verb: fail, code: code} }

// Intercept makes hook decide the fate of every frame from now on; nil lets all pass again.
// The hook is called without any lock held, concurrently for different connections and for the two directions of one.
// It may block, which holds up one direction of one connection, and may call every method of the proxy but Close.
// It panics if an Action does not fit the frame: [Error] is for requests, [Expired] for the requests of handshakes.
func (p *Proxy) Intercept(hook func(f *Frame) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// fate asks the hook. It has waited out a delay when it returns.
func (c *conn) fate(f *Frame) Action {
	c.proxy.mu.Lock()
	hook := c.proxy.hook
	c.proxy.mu.Unlock()
	if hook == nil {
		return Pass
	}
	a := hook(f)
	switch {
	case a.verb == delay:
		return c.sleep(a.delay)
	case a.verb == fail && (f.Stage != zktest.Request || f.Op == zktest.OpConnect):
		panic(fmt.Sprintf("faultproxy: Intercept answered Error to %v", f))
	case a.verb == expired && (f.Stage != zktest.Request || f.Op != zktest.OpConnect):
		panic(fmt.Sprintf("faultproxy: Intercept answered Expired to %v", f))
	}
	return a
}

// sleep returns early if the connection ends.
func (c *conn) sleep(d time.Duration) Action {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Pass
	case <-c.done:
		return Cut
	}
}

type opCount struct {
	session int64
	op      zktest.Op
}

// frameLocked numbers a new frame.
func (c *conn) frameLocked(stage zktest.Stage, op zktest.Op, path string, xid int32) Frame {
	p := c.proxy
	p.nth[op]++
	p.nthOfSession[opCount{c.session, op}]++
	return Frame{Xid: xid, Frame: zktest.Frame{
		Stage: stage, Op: op, Path: path, Session: c.session, Member: p.Addr(),
		Nth: p.nth[op], NthOfSession: p.nthOfSession[opCount{c.session, op}],
	}}
}
