package zktest

import (
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/fate"
)

// A Stage is a point in the life of a frame at which [Server.Intercept] sees it.
type Stage int

const (
	Request Stage = iota + 1 // a request or handshake has arrived and is not applied yet
	Reply                    // it is applied, the answer is about to be sent
	Event                    // a watch event is about to be sent
)

func (s Stage) String() string {
	switch s {
	case Request:
		return "request"
	case Reply:
		return "reply"
	case Event:
		return "event"
	}
	return fmt.Sprintf("stage %d", int(s))
}

// A Frame is one message between a client and the server. The request and the reply of one operation have equal Op,
// Path, Nth and NthOfSession.
type Frame struct {
	Stage   Stage
	Op      Op     // OpConnect for a handshake, OpEvent for a watch event
	First   Op     // the type of the first operation of a multi; else 0
	Path    string // as in the request, that of the first operation of a multi; "" if there is none
	Session int64  // zero in the request of a handshake that asks for a new session
	Member  string // address of the member it passes through

	Nth          int // it is the Nth with this Op, from 1
	NthOfSession int // and with this Op and Session
}

func (f Frame) String() string {
	return fmt.Sprintf("%v %v %s (session %#x, member %s, nth %d, nth of session %d)",
		f.Op, f.Stage, f.Path, f.Session, f.Member, f.Nth, f.NthOfSession)
}

// An Action is what happens to a frame: [Pass], [Drop], [Cut], [Expired], a [Delay] or an [Error]. The zero Action is
// Pass. Actions can be compared.
type Action = fate.Action

var (
	// Pass lets the frame through.
	Pass = Action{}
	// Drop loses the frame and nothing else. A dropped request never reached the server: it is not applied and does
	// not prolong the session.
	Drop = Action{Verb: fate.Drop}
	// Cut closes the connection instead: at [Request] the operation is not applied, at [Reply] it is.
	Cut = Action{Verb: fate.Cut}
	// Expired answers a handshake as if the session had expired, while session and ephemeral nodes live on.
	Expired = Action{Verb: fate.Expired}
)

// Delay holds the frame, and all behind it in the same direction of the connection, for d.
func Delay(d time.Duration) Action { return Action{Verb: fate.Delay, Delay: d} }

// Error answers a request with code and does not apply it.
func Error(code Code) Action { return Action{Verb: fate.Error, Code: int32(code)} }

// Intercept makes hook decide the fate of every frame from now on; nil lets all pass again.
// The hook is called without any lock held, concurrently for different connections and for the two directions of one.
// It may block, which holds up one direction of one connection, and may call every method of the server but Close.
// It panics if an Action does not fit the frame: [Error] is for requests, [Expired] for the requests of handshakes.
func (s *Server) Intercept(hook func(f *Frame) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// fate asks the hook, and has waited out a delay when it returns.
func (c *conn) fate(f *Frame) Action {
	c.server.mu.Lock()
	hook := c.server.hook
	c.server.mu.Unlock()
	if hook == nil {
		return Pass
	}
	a := hook(f)
	if !a.Fits(f.Stage == Request, f.Op == OpConnect) {
		panic(fmt.Sprintf("zktest: Intercept answered %v to %v", a, f))
	}
	return a.Await(c.done)
}

type opCount struct {
	session int64
	op      Op
}

// frameLocked numbers a new frame.
func (s *Server) frameLocked(c *conn, stage Stage, op Op, path string) Frame {
	s.nth[op]++
	s.nthOfSession[opCount{c.claim, op}]++
	return Frame{
		Stage: stage, Op: op, Path: path, Session: c.claim, Member: c.member.addr,
		Nth: s.nth[op], NthOfSession: s.nthOfSession[opCount{c.claim, op}],
	}
}
