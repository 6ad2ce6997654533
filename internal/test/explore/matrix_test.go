package explore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A cell is one case of the matrix of faults. It combines a state of the victim, a kind of request, a fault of that request, and whether
// the session survives.
type cell struct {
	state   state
	request request
	mishap  mishap
	outcome outcome
}

func (c cell) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.state.name, c.request.name, c.mishap.name, c.outcome.name)
}

type state struct {
	name     string
	requests []request
	play     func(s *scene, c cell, p, q *actor)
}

type request struct {
	name  string
	op    string
	first string // the first operation, if the request is a multi
}

func (q request) is(f *zktest.Frame) bool {
	return f.Op == q.op && (q.first == "" || f.First == q.first)
}

// A mishap is a fault with a name. The function before prepares the victim for the fault.
type mishap struct {
	name   string
	at     zktest.Direction
	do     zktest.Action
	before func(victim) // nil: there is nothing to prepare
	late   bool         // the answer comes after the client has given up
}

// A victim is the session that a fault of the matrix affects.
type victim struct {
	scene   *scene
	session int64
}

type outcome struct {
	name  string
	first func(s *scene, c cell, p *actor, session int64)
}

var (
	create   = request{name: "create", op: "create"}
	list     = request{name: "list", op: "getChildren2"}
	readOwn  = request{name: "read own", op: "getData"}
	readPred = request{name: "read predecessor", op: "getData"}
	lookUp   = request{"look up", "multi", "check"}
	remove   = request{name: "delete", op: "delete"}
	requeue  = request{"requeue", "multi", "delete"}
	beat     = request{"heartbeat", "multi", "check"}
	beatSync = request{name: "sync of a heartbeat", op: "sync"}
	connect  = request{name: "connect", op: "connect"}
)

var states = []state{
	{"idle", []request{create, list, lookUp, connect}, playIdle},
	{"waiting", []request{create, list, readOwn, readPred, lookUp, remove, connect}, playWaiting},
	{"holding", []request{beat, beatSync, readOwn, connect}, playHolding},
	{"releasing", []request{remove, requeue, connect}, playReleasing},
}

const late = time.Second // longer than the caller waits

var mishaps = []mishap{
	{name: "not sent", at: zktest.Request, do: zktest.Drop, before: partition},
	{name: "not applied", at: zktest.Request, do: zktest.Cut},
	{name: "reply lost", at: zktest.Reply, do: zktest.Cut},
	{name: "later than the context", at: zktest.Reply, do: zktest.Delay(late), late: true},
	{name: "later than the session", at: zktest.Reply, do: zktest.Delay(sessionTimeout + time.Second)},
	{name: "held up between servers", at: zktest.Request, do: zktest.Pass, before: isolateFor(late)},
	{name: "held up between servers for long", at: zktest.Request, do: zktest.Pass, before: isolateFor(sessionTimeout + time.Second)},
	{name: refused, at: zktest.Request, do: zktest.Throttled},
}

// refused is the name of the fault that refuses a request. For a handshake, it means a forged answer that the session has expired.
const refused = "refused"

// partition blocks all requests of the victim from this one on. A stream cannot lose a single message and keep the following ones.
func partition(v victim) {
	srv := v.scene.srv
	srv.Mute(v.session, zktest.Request)
	srv.Mute(v.session, zktest.Reply)
	time.AfterFunc(late, func() {
		srv.Cut(v.session)
		srv.Unmute(v.session, zktest.Request)
		srv.Unmute(v.session, zktest.Reply)
	})
}

// isolateFor cuts the server of the victim off from the leader, just before the server gets the request.
func isolateFor(d time.Duration) func(victim) {
	return func(v victim) {
		for _, sess := range v.scene.srv.Sessions() {
			if sess.ID == v.session && sess.Member != "" {
				m := v.scene.srv.Member(sess.Member)
				m.Isolate()
				time.AfterFunc(d, m.Rejoin)
			}
		}
	}
}

var outcomes = []outcome{
	{"same session", func(*scene, cell, *actor, int64) {}},
	{"new session", expire},
	{"closed", func(s *scene, _ cell, p *actor, _ int64) { s.background.Go(func() { p.locks.Close() }) }},
}

// expire ends the session by force, except while a lock is held: no lease protects a holder from a session that ends early.
func expire(s *scene, c cell, p *actor, session int64) {
	if c.state.name != "holding" {
		s.srv.Expire(session)
		return
	}
	p.unplug()
	time.AfterFunc(sessionTimeout+time.Second, p.plug)
}

func TestFaultMatrix(t *testing.T) {
	for _, state := range states {
		for _, request := range state.requests {
			for _, mishap := range mishaps {
				for _, outcome := range outcomes {
					c := cell{state, request, mishap, outcome}
					t.Run(c.String(), play(func(s *scene) { c.state.play(s, c, s.join(role{}), s.join(role{})) }))
				}
			}
		}
	}
}

// The method arm makes the next request of the cell's kind meet the fault. The request has to be about a path for which the function of
// returns true.
func (c cell) arm(s *scene, p *actor, of func(path string) bool) *fault.Armed {
	session := p.session()
	if c.request == lookUp {
		of = func(path string) bool { return path == lockPath } // a request to look up nodes reads the lock's path; a heartbeat reads a node
	}
	f := fault.Fault{Op: c.request.op, At: c.mishap.at, Do: c.mishap.do, Times: 1}
	if c.request == connect && c.mishap.name == refused {
		f.Do = zktest.Error(zk.ErrSessionExpired)
	}
	f.About = func(f *zktest.Frame) bool { return c.request.is(f) && (of == nil || of(f.Path)) }
	f.Before = func(*zktest.Frame) {
		if c.mishap.before != nil {
			c.mishap.before(victim{s, session})
		}
		c.outcome.first(s, c, p, session)
	}
	armed := p.arm(f)
	if c.request == lookUp { // the process looks up its nodes because a create got no answer
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1})
	}
	if c.request == connect {
		s.srv.Cut(session)
	}
	return armed
}

// The method settles waits for an acquisition that is not blocked any more, and checks its outcome.
func (c cell) settles(s *scene, u *turn) {
	s.Helper()
	if u.settled(bound); u.err == nil {
		return
	}
	switch {
	case c.outcome.name == "closed":
		s.wantErr(u.err, tier.ErrClosed)
	case c.mishap.late:
		s.wantErr(u.err, errDeadline)
	default:
		s.Errorf("Acquire: %v", u.err)
	}
}

func (c cell) start(s *scene, p *actor) *turn {
	if c.mishap.late {
		return p.start(s.in(late / 2))
	}
	return p.start(s.Context())
}

func (c cell) struck(s *scene, f *fault.Armed) {
	s.Helper()
	need.Equal(s, "times that the fault struck", f.Struck(), 1)
}

func playIdle(s *scene, c cell, p, q *actor) {
	f := c.arm(s, p, nil)
	u := c.start(s, p)
	c.settles(s, u)
	u.end()
	q.acquire()
	c.struck(s, f)
	refusal := c.mishap.name == refused && c.request != connect
	if c.outcome.name == "same session" && (c.mishap.do == zktest.Cut || refusal) && s.nodes() != 2 {
		s.Errorf("%d nodes were created for two turns", s.nodes())
	}
}

func playWaiting(s *scene, c cell, p, q *actor) {
	holder := q.acquire()
	node := s.created[0]
	of := map[request]func(string) bool{
		readPred: func(path string) bool { return path == node },
		readOwn:  func(path string) bool { return path != node },
	}[c.request]
	var f *fault.Armed
	var u *turn
	if c.request == remove || c.request == connect {
		u = p.queue(s.Context())
		f = c.arm(s, p, of)
		if c.request == remove {
			u.cancel()
		}
	} else {
		f = c.arm(s, p, of)
		u = c.start(s, p)
	}
	time.Sleep(late * 2)
	holder.keeps()
	holder.end()
	if c.request == remove {
		u.settled(0)
	} else {
		c.settles(s, u)
	}
	u.end()
	q.start(s.Context()).granted(bound)
	c.struck(s, f)
}

func playHolding(s *scene, c cell, p, q *actor) {
	holder, next := p.acquire(), q.queue(s.Context())
	f := c.arm(s, p, nil)
	time.Sleep(2 * sessionTimeout)
	synctest.Wait()
	lost := holder.hold.Err() != nil
	need.That(s, "the holder does not know that the session is over", c.outcome.name == "same session" || lost)
	holder.end()
	next.granted(bound)
	c.struck(s, f)
}

func playReleasing(s *scene, c cell, p, q *actor) {
	holder, next := p.acquire(), q.queue(s.Context())
	var again *turn
	if c.request == requeue {
		again = p.queue(s.Context())
	}
	f := c.arm(s, p, nil)
	before := time.Now()
	holder.end()
	need.AtMost(s, "Release took", time.Since(before), sessionTimeout/3)
	next.granted(bound).end()
	if again != nil {
		c.settles(s, again)
	} else if c.outcome.name == "same session" { // the next caller of the process can then acquire the lock
		p.acquire()
	}
	c.struck(s, f)
}
