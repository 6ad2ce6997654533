// Package memory is a store in memory, for tests, that keeps queues. It also simulates the processes that use the store. To them it behaves
// like a real store. A script decides when each command is answered, and whether it is lost, executed twice, or executed late. In a bubble
// of testing/synctest its time is virtual.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A Server is the store. Any number of processes can connect to it.
type Server struct {
	OwnTTL, Apart bool                                    // the kind of store that it simulates; see [queue.Config]
	As            func(*Process, queue.Store) queue.Store // may wrap the store that a process uses
	Logger        *slog.Logger                            // the logger of the processes

	script atomic.Pointer[func(process string, c queue.Command) Fault]
	frozen atomic.Pointer[chan struct{}] // closed when the server resumes; nil while it is not frozen
	writes atomic.Int64
	dialed atomic.Int64 // how many processes have connected

	mu       sync.Mutex          // guards the fields below
	revision int64               // grows with each change, and each time that a view is read
	until    time.Time           // the end of the grace period
	queues   map[string][]*place // by path; each in the order of the queue
	permits  map[string]int      // by path, the totals that a Resize has set
	values   map[string]value    // by path
	sessions map[string]*session
}

// A Fault decides what happens to a command. The zero Fault answers at once.
type Fault struct {
	Before, After time.Duration // how long until the command is executed, and then until it is answered
	Refused       queue.Outcome // the command is refused with this outcome, unless that is Unknown
	Begun         bool          // a command that is refused is executed nevertheless
	Never         bool          // the command is neither executed nor answered
	Lost          bool          // the answer is lost
	Again         time.Duration // after this time the command is executed a second time, without an answer; 0 for never
}

// A place is a contender in a queue.
type place struct {
	second.Contender // Permits is how many it wants, or has
	session          *session
	expiry           *time.Timer
	view             queue.View // the newest view, with At unset
	gone             bool
}

// A value is saved beside a lock. If its holder has removed it, Data is nil, but the value stays: its turn shows which Saves of that holder
// are late.
type value struct {
	second.Value
	turn int64
}

type session struct {
	name    string
	process *Process
	expiry  *time.Timer
}

// NewServer returns an empty store.
func NewServer() *Server {
	as := func(_ *Process, s queue.Store) queue.Store { return s }
	return &Server{As: as, Logger: slog.New(slog.DiscardHandler), queues: make(map[string][]*place), permits: make(map[string]int),
		values: make(map[string]value), sessions: make(map[string]*session)}
}

// Script makes the server call f for each command from now on. f decides what happens to the command. A nil f ends that.
func (s *Server) Script(f func(process string, c queue.Command) Fault) { s.script.Store(&f) }

// Writes returns the number of changes so far. It does not count changes of sessions.
func (s *Server) Writes() int64 { return s.writes.Load() }

// Freeze pauses the server until thaw is called. A paused server answers no request, and ends no session.
func (s *Server) Freeze() (thaw func()) {
	frozen := make(chan struct{})
	s.frozen.Store(&frozen)
	return func() {
		s.frozen.Store(nil)
		close(frozen)
	}
}

// Queue returns the contenders at path, the holder first.
func (s *Server) Queue(path string) []second.Contender {
	return s.execute(nil, queue.Command{Op: queue.List, Ref: queue.Ref{Path: path}}).Queue
}

// Remove deletes the i-th contender at path, as an operator would.
func (s *Server) Remove(path string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked(path, s.queues[path][i].ID)
}

// Expire ends the session of the i-th contender at path.
func (s *Server) Expire(path string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(s.queues[path][i].session)
}

// GracePeriod makes the server grant nothing new for the time d. Its answers report the grace period.
func (s *Server) GracePeriod(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for path := range s.queues {
			s.settleLocked(path)
		}
	})
}

// A Process is the tier of one simulated process. Its methods can disturb its traffic with the server.
type Process struct {
	*queue.Tier
	server *Server
	name   string
	lease  time.Duration
	cut    atomic.Bool
	hook   atomic.Pointer[func(queue.Record) (lose bool)]
	delay  atomic.Int64 // how long each request takes to the server
	losing atomic.Int64 // how many of the next answers are lost
	closed atomic.Pointer[func()]
	number int64 // counts the processes of a server from 1
	names  atomic.Int64
	self   second.Description
}

// A store is the server as one process uses it.
type store struct{ *Process }

// Dial returns the tier of a new process. If the process falls silent, the store keeps its contenders for the time lease.
func (s *Server) Dial(name string, lease time.Duration, record func(queue.Record)) *Process {
	return s.connect("memory", second.Settings{TTL: lease, Logger: s.Logger, Label: name}, record)
}

// Connect returns the tier of a new process. Its errors begin with pkg, the name of a package.
func (s *Server) Connect(pkg string, o second.Settings) *Process { return s.connect(pkg, o, nil) }

func (s *Server) connect(pkg string, o second.Settings, record func(queue.Record)) *Process {
	p := &Process{server: s, name: o.Label, number: s.dialed.Add(1), lease: o.TTL, self: second.Describe(o.Label)}
	p.Tier = queue.New(queue.Config{
		Package: pkg, Store: "memory", Settings: o, Record: record,
		Lost: func(r queue.Ref) string { return "contender " + r.ID + " was deleted" }, OwnTTL: s.OwnTTL, Apart: s.Apart,
	}, s.As(p, store{p}))
	p.Start()
	return p
}

// Expire ends the session of the process, if it has one.
func (p *Process) Expire() {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		if x.process == p {
			s.endLocked(x)
		}
	}
}

// Delay delays each request on its way to the server.
func (p *Process) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// LoseAnswers makes the next n answers get lost. Answers to the opening and the renewals of a session do not count, and are not lost.
func (p *Process) LoseAnswers(n int) { p.losing.Store(int64(n)) }

// OnClose registers f, which is called when the process has ended.
func (p *Process) OnClose(f func()) { p.closed.Store(&f) }

// Cut blocks all traffic between the process and the server, until heal is called.
func (p *Process) Cut() (heal func()) {
	p.cut.Store(true)
	return func() { p.cut.Store(false) }
}

// Deliver registers hook, which is called with each answer and each notification before the process gets it. If hook returns true, that
// message is lost.
func (p *Process) Deliver(hook func(queue.Record) (lose bool)) { p.hook.Store(&hook) }

// hears reports whether a message reaches the process. The hook is not called for answers to the opening and the renewals of a session.
func (p *Process) hears(m queue.Record) bool {
	hook := p.hook.Load()
	keeps := m.Command.Op == queue.Open || m.Command.Op == queue.Beat
	if m.Command.Op != "" && !keeps && p.losing.Add(-1) >= 0 {
		return false
	}
	return !p.cut.Load() && (keeps || hook == nil || !(*hook)(m))
}

// Do sends a command, and waits for the answer until ctx ends.
func (p store) Do(ctx context.Context, c queue.Command) queue.Answer {
	answers := make(chan queue.Answer, 1)
	go p.carry(c, answers)
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return queue.Answer{Err: context.Cause(ctx), Away: errors.New("memory cannot be reached: no answer")}
	}
}

// carry takes a command to the server, and the answer back to the process. Faults may delay or lose both.
func (p store) carry(c queue.Command, answers chan<- queue.Answer) {
	s := p.server
	var f Fault
	if script := s.script.Load(); script != nil && *script != nil {
		f = (*script)(p.name, c)
	}
	frozen := s.frozen.Load()
	switch {
	case f.Never || p.cut.Load():
		return
	case f.Refused != queue.Unknown:
		if f.Begun {
			s.execute(p.Process, c)
		}
		answers <- queue.Answer{Outcome: f.Refused, Begun: f.Begun, Err: fmt.Errorf("%s refused", c.Op)}
		return
	case frozen != nil:
		<-*frozen // when the server resumes, it executes the command
	}
	time.Sleep(f.Before + time.Duration(p.delay.Load()))
	a := s.execute(p.Process, c)
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	p.InGracePeriod(time.Until(until), time.Now(), "the server was started again")
	if f.Again > 0 {
		time.AfterFunc(f.Again, func() { s.execute(p.Process, c) })
	}
	time.Sleep(f.After)
	if !f.Lost && p.hears(queue.Record{Command: c, Answer: a}) {
		answers <- a
	}
}

func (p store) Name(string) string {
	return fmt.Sprintf("%d.%d", p.number, p.names.Add(1))
}

func (p store) Close() {
	if closed := p.closed.Load(); closed != nil {
		(*closed)()
	}
}

// execute executes a command in one step.
func (s *Server) execute(p *Process, c queue.Command) queue.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := queue.Answer{Outcome: queue.Done}
	x := s.sessions[c.Session]
	c.Ref = at(c.Ref)
	if x == nil && !slices.Contains([]queue.Op{queue.Open, queue.List, queue.Ask, queue.Resize, queue.Load}, c.Op) &&
		!(c.Op == queue.Leave && (s.OwnTTL || c.Session == "")) {
		return queue.Answer{Outcome: queue.Expired, Err: errors.New("the server no longer knows this session")}
	}
	switch c.Op {
	case queue.Open:
		x = &session{name: fmt.Sprintf("%d/%d", p.number, p.names.Add(1)), process: p}
		x.expiry = s.expiring(p, func() { s.endLocked(x) })
		s.sessions[x.name] = x
		a.Name, a.TTL = x.name, p.lease
	case queue.List:
		for _, q := range s.queues[c.Path] {
			a.Queue = append(a.Queue, q.Contender)
		}
		queue.Waiting(a.Queue)
	case queue.Ask:
		s.changeLocked(c.Path, func(q *place) { q.Asked = q.Asked || q.view.Has })
	case queue.Beat:
		x.expiry.Reset(p.lease)
		for _, ref := range c.Among {
			a.Views = append(a.Views, s.standLocked(at(ref)))
		}
	case queue.Audit:
		for path, places := range s.queues {
			for _, q := range places {
				if q.session == x {
					a.Present = append(a.Present, queue.Ref{Path: strings.TrimPrefix(path, permitsOf), ID: q.ID, Token: q.Token, Permits: q.Of})
				}
			}
		}
	case queue.Drop, queue.Goodbye:
		for _, ref := range c.Among {
			s.leaveLocked(at(ref).Path, ref.ID)
		}
		if c.Op == queue.Goodbye {
			s.endLocked(x)
		}
	case queue.Leave:
		a.Removed = s.leaveLocked(c.Path, c.ID)
	case queue.Enter, queue.Try:
		a = s.enterLocked(x, c)
	case queue.Share, queue.Weigh:
		s.changeLocked(c.Path, func(q *place) {
			if q.ID == c.ID {
				q.Shared, q.Permits = q.Shared || c.Op == queue.Share, min(q.Permits, c.Weight)
			}
		})
	case queue.Resize:
		s.permits[c.Path] = c.Permits
		s.changeLocked(c.Path, func(q *place) { q.Of = c.Permits })
	case queue.Save:
		a.Outcome = s.saveLocked(c)
	case queue.Load:
		if v := s.values[c.Path].Value; v.Data != nil {
			a.Value = &v
		}
	case queue.Look:
	default:
		return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
	}
	a.View = s.standLocked(c.Ref)
	return a
}

// saveLocked stores a value if the contender has the lock.
func (s *Server) saveLocked(c queue.Command) queue.Outcome {
	if !slices.ContainsFunc(s.queues[c.Path], func(p *place) bool { return p.ID == c.ID && p.view.Has }) {
		return queue.Gone
	}
	switch known := s.values[c.Path]; {
	case known.Token == c.Token && known.turn >= c.Turn: // this command is late, or was executed before
		return queue.Done
	case c.Data == nil && c.Turn == 1: // this contender has sent no earlier Save that could be executed late
		delete(s.values, c.Path)
	default:
		s.values[c.Path] = value{second.Value{Data: c.Data, Token: c.Token, Saved: time.Now()}, c.Turn}
	}
	s.writes.Add(1)
	return queue.Done
}

// changeLocked calls f with each contender of a queue. f may change the contender, or set gone to remove it. changeLocked then sends the
// notifications.
func (s *Server) changeLocked(path string, f func(*place)) queue.Removal {
	removal := queue.Missing
	s.queues[path] = slices.DeleteFunc(s.queues[path], func(p *place) bool {
		before := p.Contender
		f(p)
		if p.gone {
			removal = queue.Removed
			p.expiry.Stop()
			s.tellLocked(p, queue.View{ID: p.ID, Token: p.Token})
		}
		if p.gone || p.Contender != before {
			s.writes.Add(1)
		}
		return p.gone
	})
	if len(s.queues[path]) == 0 {
		delete(s.queues, path)
	}
	s.settleLocked(path)
	return removal
}

func (s *Server) leaveLocked(path, id string) queue.Removal {
	return s.changeLocked(path, func(p *place) { p.gone = p.ID == id })
}

// expiring starts a timer that calls end after the lease of the process. A renewal resets the timer.
func (s *Server) expiring(p *Process, end func()) (timer *time.Timer) {
	timer = time.AfterFunc(p.lease, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.frozen.Load() != nil { // a frozen server ends no session
			timer.Reset(p.lease)
			return
		}
		end()
	})
	return timer
}

// endLocked ends a session. The server does not tell the process of the session what it has lost. It only makes the process send a renewal.
func (s *Server) endLocked(x *session) {
	x.expiry.Stop()
	delete(s.sessions, x.name)
	for path := range s.queues {
		s.changeLocked(path, func(p *place) { p.gone = p.session == x && !s.OwnTTL })
	}
	x.process.Renew()
}

func (s *Server) enterLocked(x *session, c queue.Command) queue.Answer {
	a := queue.Answer{Outcome: queue.Done}
	if c.Old.ID != "" {
		if a.Removed = s.leaveLocked(c.Path, c.Old.ID); a.Removed == queue.Removed {
			s.writes.Add(-1) // the removal is part of the write that enters the new contender
		}
	}
	places := s.queues[c.Path]
	if s.standLocked(c.Ref).Known { // the command was executed before
		return a
	}
	of := s.permits[c.Path]
	if of == 0 && len(places) > 0 {
		of = places[0].Of
	}
	if of = cmp.Or(of, c.Permits); of != c.Permits {
		return queue.Answer{Outcome: queue.Denied, Permits: of, Err: fmt.Errorf("%w: there are %d", second.ErrTooManyPermits, of)}
	}
	places = append(places, &place{session: x, Contender: second.Contender{
		ID: c.ID, Token: s.revision + 1, Shared: c.Reads, Linger: c.Linger, Permits: c.Weight, Of: c.Ref.Permits,
		Since: time.Now(), Host: x.process.self.Host, PID: x.process.self.PID, Label: x.process.name,
	}})
	if c.Op == queue.Try && !view(places, len(places)-1).Has {
		return queue.Answer{Outcome: queue.Locked}
	}
	s.revision++
	s.queues[c.Path] = places
	s.writes.Add(1)
	places[len(places)-1].expiry = s.expiring(x.process, func() {
		if s.OwnTTL || s.Apart { // in other stores, the end of the session removes the contender
			s.leaveLocked(c.Path, c.ID)
		}
	})
	s.settleLocked(c.Path)
	return a
}

// settleLocked computes the views of all contenders in a queue, and notifies those whose view has changed.
func (s *Server) settleLocked(path string) {
	for i, p := range s.queues[path] {
		v := view(s.queues[path], i)
		if v.Has && !p.view.Has && time.Now().Before(s.until) {
			v.Has, v.InGracePeriod = false, true
		}
		if v != p.view {
			p.view = v
			s.tellLocked(p, v)
		}
	}
}

// tellLocked sends a notification to the process of a contender, unless its session has ended. The notification may overtake answers, and
// answers may overtake it.
func (s *Server) tellLocked(p *place, v queue.View) {
	s.revision++
	v.At = s.revision
	if process := p.session.process; s.OwnTTL || s.sessions[p.session.name] != nil {
		go func() {
			if process.hears(queue.Record{Answer: queue.Answer{View: v}}) {
				process.Tell(v)
			}
		}()
	}
}

const permitsOf = "permits of "

// at(ref) returns ref with the path of its queue. The queue for permits has another path than the queue for the lock.
func at(ref queue.Ref) queue.Ref {
	if ref.Permits > 0 {
		ref.Path = permitsOf + ref.Path
	}
	return ref
}

// standLocked returns the view of a contender, and renews the contender's own lease.
func (s *Server) standLocked(ref queue.Ref) queue.View {
	v := queue.View{ID: ref.ID, Token: ref.Token}
	for _, p := range s.queues[ref.Path] {
		if p.ID == ref.ID {
			v = p.view
			p.expiry.Reset(p.session.process.lease)
		}
	}
	s.revision++
	v.At = s.revision
	return v
}

// view returns the view of the i-th contender in a queue, without At and Sent.
func view(places []*place, i int) queue.View {
	v := queue.View{ID: places[i].ID}
	v.Stand(i, len(places), func(j int) *second.Contender { return &places[j].Contender })
	return v
}
