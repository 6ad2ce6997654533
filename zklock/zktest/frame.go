package zktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// A Direction is one of the two directions of a connection.
type Direction int

const (
	Request Direction = iota + 1 // to the server: requests and handshakes
	Reply                        // to the client: answers and watch events
)

func (d Direction) String() string {
	switch d {
	case Request:
		return "request"
	case Reply:
		return "reply"
	}
	return fmt.Sprintf("direction %d", int(d))
}

// A Frame is one message between a client and the server, seen at the server. A request has arrived and is not applied yet. A reply is
// about to be sent. The request and the reply of one operation have the same Op, Path, Nth and NthOfSession.
//
// Op is the type of the request as ZooKeeper names it: create, delete, exists, getData, setData, getACL, setACL,
// getChildren, sync, ping, getChildren2, multi, create2, removeWatches, createContainer, multiRead, setAuth, setWatches, closeSession; or
// connect for a handshake, event for a watch event.
type Frame struct {
	Dir     Direction
	Op      string
	First   string // in a multi or a multiRead, the Op of the first operation, which may also be check; otherwise ""
	Path    string // path of the request, or of the first operation of a multi or multiRead; "" if there is none
	Session int64  // zero in the request of a handshake that asks for a new session
	Member  string // address of the member to which the client is connected

	Nth          int // number of this frame among the frames with this Op, from 1
	NthOfSession int // number of this frame among the frames with this Op and Session, from 1
}

func (f Frame) String() string {
	return fmt.Sprintf("%s %v %s (session %#x, member %s, nth %d, nth of session %d)",
		f.Op, f.Dir, f.Path, f.Session, f.Member, f.Nth, f.NthOfSession)
}

// An Action says what happens to a frame: [Pass], [Drop], [Cut], [Throttled], a [Delay] or an [Error]. The zero Action is Pass. Actions
// can be compared with ==.
type Action struct {
	verb  verb
	delay time.Duration // the delay, if verb is delayed
	code  int32         // the error code, if verb is refused
}

type verb int

const (
	passed verb = iota
	dropped
	cut
	delayed
	refused
)

var (
	// Pass lets the frame through.
	Pass = Action{}
	// Drop loses the frame, and keeps the connection. A dropped request is not applied, and does not prolong the session.
	Drop = Action{verb: dropped}
	// Cut loses the frame and closes the connection. If the frame is a request, it is not applied. If the frame is a reply, its request was
	// applied.
	Cut = Action{verb: cut}
	// Throttled refuses a request as an overloaded server does. The Go client has no error of its own for this refusal.
	Throttled = Action{verb: refused, code: wire.CodeThrottled}
)

// Delay delays the frame by d, and with it all later frames in the same direction of the connection.
func Delay(d time.Duration) Action { return Action{verb: delayed, delay: d} }

// Error answers a request with err, and does not apply the request. err must be an error that a client returns for an answer of the
// server, such as [zk.ErrNoAuth] or package zklock's ErrQuotaExceeded. Error panics for any other err. A handshake can be answered with
// [zk.ErrSessionExpired]; the session and its ephemeral nodes nevertheless stay.
func Error(err error) Action {
	var unnamed wire.Code // the Go client has no error for this code
	if errors.As(err, &unnamed) {
		return Action{verb: refused, code: int32(unnamed)}
	}
	for code, known := range wire.Errors {
		if errors.Is(err, known) {
			return Action{verb: refused, code: code}
		}
	}
	panic(fmt.Sprintf("zktest: Error(%v): a server never answers with this error", err))
}

func (a Action) String() string {
	switch a.verb {
	case passed:
		return "pass"
	case dropped:
		return "drop"
	case cut:
		return "cut"
	case delayed:
		return fmt.Sprintf("delay by %v", a.delay)
	case refused:
		return fmt.Sprintf("error %d", a.code)
	}
	return fmt.Sprintf("verb %d", int(a.verb))
}

// fits reports whether the action is possible for a frame. Only a request can be refused. For a handshake, the only possible error is that
// its session has expired.
func (a Action) fits(f *Frame) bool {
	return a.verb != refused || f.Dir == Request && (f.Op != "connect" || a.code == wire.CodeSessionExpired)
}

// await waits for the delay of an action, and returns what to do after the delay. If ended is closed first, it returns a cut, because the
// connection is already cut.
func (a Action) await(ended <-chan struct{}) Action {
	if a.verb != delayed {
		return a
	}
	timer := time.NewTimer(a.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Pass
	case <-ended:
		return Cut
	}
}

// Intercept sets a hook that the server calls for every frame. The hook decides what happens to the frame. With a nil hook all frames
// pass. The hook is called without any lock held. Calls for different connections, and for the two directions of one connection, may be
// concurrent. The hook may block, which delays one direction of one connection. It may call every method of the server except Close. The
// server panics if an Action does not fit the frame: [Error] and [Throttled] are only for requests.
func (s *Server) Intercept(hook func(f *Frame) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// fate asks the hook what to do with a frame. If the hook delays the frame, fate returns after the delay.
func (c *conn) fate(f *Frame) Action {
	c.server.mu.Lock()
	hook := c.server.hook
	c.server.mu.Unlock()
	if hook == nil {
		return Pass
	}
	a := hook(f)
	if !a.fits(f) {
		panic(fmt.Sprintf("zktest: the hook of Intercept returned %v for %v, which does not fit this frame", a, f))
	}
	return a.await(c.done)
}

type opCount struct {
	session int64
	op      string
}

// frameLocked returns a new frame with its numbers.
func (s *Server) frameLocked(c *conn, dir Direction, op, path string) Frame {
	s.nth[op]++
	s.nthOfSession[opCount{c.claim, op}]++
	return Frame{
		Dir: dir, Op: op, Path: path, Session: c.claim, Member: c.member.addr,
		Nth: s.nth[op], NthOfSession: s.nthOfSession[opCount{c.claim, op}],
	}
}
