// Package memory is a store of queues in the memory of a test, and of the processes that talk to it: what they see of a real
// one, with a script of who is answered when, and what is lost, executed twice, or late. In a bubble of testing/synctest its time
// is virtual.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A Server keeps the queues.
type Server struct {
	mu       sync.Mutex // guards the fields below
	revision int64      // grows with each change
	writes   int64
	names    int
	queues   map[string][]*place // in order
	sessions map[string]*session
	script   func(process string, c queue.Command) Fault
	frozen   chan struct{} // closed by the thaw; nil while it answers
}

// A Fault is what becomes of a command. The zero Fault is an answer at once.
type Fault struct {
	Before, After time.Duration // until it is executed, and from then until the answer comes
	Refused       queue.Outcome // it is not executed, with that outcome, if that is not Unknown
	Never         bool          // it is neither executed nor answered
	Lost          bool          // the answer is
	Again         time.Duration // after which it is executed once more, nobody hears of it; 0 if it is not
}

// A place is a contender in a queue.
type place struct {
	ref     queue.Ref // Reads as it is now
	session *session
	who     second.Contender
	asked   bool
	told    queue.View // as its process was told last
}

type session struct {
	name    string
	process *process
	ttl     time.Duration
	expiry  *time.Timer
}

// NewServer returns an empty store.
func NewServer() *Server {
	return &Server{queues: make(map[string][]*place), sessions: make(map[string]*session)}
}

// Script has f decide what becomes of each command from now on; nil lets all be.
func (s *Server) Script(f func(process string, c queue.Command) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}

// Freeze stops the server until thaw: nobody is answered, and no session ends.
func (s *Server) Freeze() (thaw func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	frozen := make(chan struct{})
	s.frozen = frozen
	for _, x := range s.sessions {
		x.expiry.Stop()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.frozen = nil
		for _, x := range s.sessions { // as a server that takes over: nobody is to suffer from its silence
			x.expiry.Reset(x.ttl)
		}
		close(frozen)
	}
}

// Writes is how many changes there were, but for sessions.
func (s *Server) Writes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Queue returns who is at path, the holder first.
func (s *Server) Queue(path string) []second.Contender {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked(path)
}

func (s *Server) listLocked(path string) (list []second.Contender) {
	for _, p := range s.queues[path] {
		c := p.who
		c.ID, c.Token, c.Shared, c.Asked = p.ref.ID, p.ref.Token, p.ref.Reads, p.asked
		list = append(list, c)
	}
	return list
}

// Remove deletes the i-th contender at path, as an operator would.
func (s *Server) Remove(path string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(path, func(p *place) bool { return p == s.queues[path][i] })
	s.tellLocked(path)
}

// A process talks to the server.
type process struct {
	server *Server
	name   string
	lease  time.Duration
	tier   *queue.Tier

	mu     sync.Mutex    // guards the fields below
	cut    chan struct{} // closed by the end of a cut; nil while there is none
	hook   func() (lose bool)
	closed bool
}

// A Process is a tier on the server, and what can be done to it.
type Process struct {
	*queue.Tier
	process *process
}

// Dial returns the tier of a process, of which the store keeps what it has for so long.
func (s *Server) Dial(name string, lease time.Duration, logger *slog.Logger, record func(queue.Record)) Process {
	p := &process{server: s, name: name, lease: lease}
	p.tier = queue.New(queue.Config{
		Package: "memory", Store: "memory", TTL: lease, Logger: cmp.Or(logger, slog.New(slog.DiscardHandler)), Record: record,
		Lost: func(r queue.Ref) string { return "contender " + r.ID + " was deleted" },
	}, p)
	p.tier.Start()
	return Process{p.tier, p}
}

// Cut keeps everything from getting through between the process and the server, until heal.
func (p Process) Cut() (heal func()) {
	p.process.mu.Lock()
	defer p.process.mu.Unlock()
	cut := make(chan struct{})
	p.process.cut = cut
	return func() {
		p.process.mu.Lock()
		defer p.process.mu.Unlock()
		p.process.cut = nil
		close(cut)
	}
}

// Kill ends the process, which says nothing to the server any more.
func (p Process) Kill() {
	p.Cut()
	p.Close()
}

// Messages has hook see each answer and each news before the process does, and lose those for which it returns true.
func (p Process) Messages(hook func() (lose bool)) {
	p.process.mu.Lock()
	defer p.process.mu.Unlock()
	p.process.hook = hook
}

var (
	errAway    = errors.New("memory cannot be reached: no answer")
	errExpired = errors.New("the server does not know it any more")
)

// Do sends a command, and waits for the answer.
func (p *process) Do(ctx context.Context, c queue.Command) queue.Answer {
	answers := make(chan queue.Answer, 1)
	go p.carry(ctx, c, answers)
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return queue.Answer{Err: context.Cause(ctx), Away: errAway}
	}
}

// carry takes a command to the server and its answer back, unless one is lost.
func (p *process) carry(ctx context.Context, c queue.Command, answers chan<- queue.Answer) {
	s := p.server
	s.mu.Lock()
	script, frozen := s.script, s.frozen
	s.mu.Unlock()
	p.mu.Lock()
	cut, hook := p.cut, p.hook
	p.mu.Unlock()
	var f Fault
	if script != nil {
		f = script(p.name, c)
	}
	keeps := c.Op == queue.Open || c.Op == queue.Beat
	switch {
	case f.Never || cut != nil:
		return
	case f.Refused != queue.Unknown:
		answers <- queue.Answer{Outcome: f.Refused, Err: fmt.Errorf("%s refused", c.Op)}
		return
	case frozen != nil:
		<-frozen // what it was sent, it executes when it goes on
	}
	time.Sleep(f.Before)
	a := s.execute(p, c)
	if f.Again > 0 {
		time.AfterFunc(f.Again, func() { s.execute(p, c) })
	}
	time.Sleep(f.After)
	p.mu.Lock()
	cut = p.cut
	p.mu.Unlock()
	if f.Lost || cut != nil || hook != nil && !keeps && hook() {
		return
	}
	answers <- a
}

// tell takes news to a process, unless it is lost.
func (p *process) tell(v queue.View) {
	p.mu.Lock()
	cut, hook := p.cut, p.hook
	p.mu.Unlock()
	if cut == nil && (hook == nil || !hook()) {
		p.tier.Tell(v)
	}
}

func (p *process) Name(string) string {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.server.names++
	return fmt.Sprintf("%s.%d", p.name, p.server.names)
}

func (p *process) CheckPath(path string) error {
	if path == "" {
		return errors.New("memory: lock path \"\": empty")
	}
	return nil
}

func (p *process) Close() {}

// execute does what a command asks for, all at once.
func (s *Server) execute(p *process, c queue.Command) (a queue.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Outcome = queue.Done
	x := s.sessions[c.Session]
	switch c.Op {
	case queue.Open:
		return s.openLocked(p)
	case queue.List:
		a.Queue = s.listLocked(c.Path)
		return a
	case queue.Ask:
		for i, q := range s.queues[c.Path] {
			if has := s.viewLocked(c.Path, i).Has; has && !q.asked {
				q.asked = true
				s.writes++
			}
		}
		s.tellLocked(c.Path)
		return a
	}
	if x == nil {
		return queue.Answer{Outcome: queue.Expired, Err: errExpired}
	}
	switch c.Op {
	case queue.Beat:
		x.expiry.Reset(x.ttl)
		for path := range s.queues {
			s.tellLocked(path) // what was lost
		}
		for _, ref := range c.Among {
			a.Views = append(a.Views, s.standLocked(ref))
		}
	case queue.Audit:
		for _, places := range s.queues {
			for _, q := range places {
				if q.session == x {
					a.Present = append(a.Present, q.ref)
				}
			}
		}
	case queue.Drop:
		for _, ref := range c.Among {
			s.leaveLocked(ref)
		}
	case queue.Goodbye:
		s.endLocked(x)
	case queue.Leave:
		a.Removed = s.leaveLocked(c.Ref)
	case queue.Enter, queue.Try:
		a = s.enterLocked(x, c)
	case queue.Share:
		if i := s.find(c.Ref); i >= 0 && !s.queues[c.Path][i].ref.Reads {
			s.queues[c.Path][i].ref.Reads = true
			s.writes++
		}
		a.View = s.standLocked(c.Ref)
		s.tellLocked(c.Path)
	case queue.Look:
		a.View = s.standLocked(c.Ref)
	}
	return a
}

func (s *Server) openLocked(p *process) queue.Answer {
	s.names++
	x := &session{name: fmt.Sprint(s.names), process: p, ttl: p.lease}
	x.expiry = time.AfterFunc(x.ttl, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sessions[x.name] == x && s.frozen == nil {
			s.endLocked(x)
		}
	})
	s.sessions[x.name] = x
	return queue.Answer{Outcome: queue.Done, Name: x.name, TTL: x.ttl}
}

func (s *Server) endLocked(x *session) {
	x.expiry.Stop()
	delete(s.sessions, x.name)
	for path := range s.queues {
		if s.removeLocked(path, func(p *place) bool { return p.session == x }) {
			s.tellLocked(path)
		}
	}
}

func (s *Server) enterLocked(x *session, c queue.Command) (a queue.Answer) {
	a.Outcome = queue.Done
	if c.Old.ID != "" && s.removeLocked(c.Path, func(p *place) bool { return p.ref.ID == c.Old.ID }) {
		s.writes-- // with the write of the other
		defer func() { a.Removed = queue.Removed }()
	}
	a.Removed = queue.Missing
	if s.find(c.Ref) < 0 {
		s.revision++
		p := &place{ref: c.Ref, session: x, who: second.Contender{
			Since: time.Now(), Host: "memory", PID: os.Getpid(), Label: x.process.name, Linger: c.Linger,
		}}
		p.ref.Token = s.revision
		if slices.ContainsFunc(s.queues[c.Path], func(q *place) bool { return !q.ref.Reads || !p.ref.Reads }) && c.Op == queue.Try {
			return queue.Answer{Outcome: queue.Locked}
		}
		s.queues[c.Path] = append(s.queues[c.Path], p)
		s.writes++
	}
	a.View = s.standLocked(c.Ref)
	s.tellLocked(c.Path)
	return a
}

// leaveLocked removes a contender.
func (s *Server) leaveLocked(ref queue.Ref) queue.Removal {
	if !s.removeLocked(ref.Path, func(p *place) bool { return p.ref.ID == ref.ID }) {
		return queue.Missing
	}
	s.tellLocked(ref.Path)
	return queue.Removed
}

// removeLocked removes those that are meant, and tells them so.
func (s *Server) removeLocked(path string, meant func(*place) bool) (found bool) {
	s.queues[path] = slices.DeleteFunc(s.queues[path], func(p *place) bool {
		if !meant(p) {
			return false
		}
		found = true
		s.revision++
		s.writes++
		s.news(p, queue.View{ID: p.ref.ID, At: s.revision})
		return true
	})
	return found
}

// tellLocked tells all in a queue for whom something has changed.
func (s *Server) tellLocked(path string) {
	s.revision++
	for i, p := range s.queues[path] {
		v := s.viewLocked(path, i)
		at := v.At
		if v.At = p.told.At; v != p.told {
			v.At = at
			p.told = v
			s.news(p, v)
		}
	}
}

// news goes its own way, one after the other.
func (s *Server) news(p *place, v queue.View) {
	time.AfterFunc(0, func() { p.session.process.tell(v) })
}

func (s *Server) find(ref queue.Ref) int {
	return slices.IndexFunc(s.queues[ref.Path], func(p *place) bool { return p.ref.ID == ref.ID })
}

// standLocked is how a contender stands.
func (s *Server) standLocked(ref queue.Ref) queue.View {
	s.revision++
	if i := s.find(ref); i >= 0 {
		return s.viewLocked(ref.Path, i)
	}
	return queue.View{ID: ref.ID, At: s.revision}
}

func (s *Server) viewLocked(path string, i int) queue.View {
	places := s.queues[path]
	p := places[i]
	v := queue.View{ID: p.ref.ID, Known: true, Token: p.ref.Token, At: s.revision, Reads: p.ref.Reads, Asked: p.asked}
	list := s.listLocked(path)
	for j, q := range places {
		switch excludes := !p.ref.Reads || !q.ref.Reads; {
		case j < i && excludes:
			v.Ahead, v.Nearest = v.Ahead+1, list[j]
		case j > i && excludes:
			v.Behind = true
		}
	}
	v.Has = v.Ahead == 0
	v.Reader = i+1 < len(places) && places[i+1].ref.Reads
	return v
}
