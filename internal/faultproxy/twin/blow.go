package twin

import (
	"sync"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// A Blow is what the next request of some kind meets.
type Blow struct {
	Name string
	Late bool // the answer comes, but nobody waits for it so long

	at    zktest.Stage
	do    Action
	begin func(l *Line) // nil: nothing happens but do
	after time.Duration // from begin to end
	end   func(l *Line)
}

// Blows returns what can happen to a request of a session with this timeout. The longest come first, so that nobody
// waits for them alone.
func Blows(timeout time.Duration) []Blow {
	// A busy machine needs most of the lease that is left after a lost heartbeat, half the timeout, for itself.
	outage := timeout / 10
	late := timeout / 4 // than zklock waits for a handshake
	return []Blow{
		{
			Name: "cut off for longer than the session", at: zktest.Request, do: Cut,
			begin: (*Line).Refuse, after: timeout + time.Second, end: (*Line).Accept,
		},
		{
			Name: "dropped then cut", at: zktest.Request, do: Drop, // a stream loses nothing in the middle
			begin: func(l *Line) { l.Mute() }, after: outage, end: func(l *Line) { l.Cut(); l.Unmute() },
		},
		{Name: "cut at the request", at: zktest.Request, do: Cut},
		{Name: "cut at the reply", at: zktest.Reply, do: Cut},
		{Name: "answered late", Late: true, at: zktest.Reply, do: Delay(late)},
		{Name: Refused, at: zktest.Request, do: Error(zktest.CodeThrottled)},
	}
}

// Refused is the blow that for a handshake means a forged expiry.
const Refused = "refused"

// A Strike is a blow that waits for its request.
type Strike struct {
	Hit chan struct{} // closed when the blow has fallen

	blow  Blow
	ended sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	fallen   bool
	answered map[zktest.Op]int
}

// Strike lets the next request of a kind, and such that about says so if that is not nil, meet the blow.
func (l *Line) Strike(b Blow, op zktest.Op, about func(f *zktest.Frame) bool) *Strike {
	if op == zktest.OpConnect && b.Name == Refused {
		b.do = Expired
	}
	s := &Strike{Hit: make(chan struct{}), blow: b, answered: make(map[zktest.Op]int)}
	l.Intercept(func(f *zktest.Frame) Action {
		if !s.falls(f, op, about) {
			return Pass
		}
		s.begin(l)
		return b.do
	})
	return s
}

func (s *Strike) falls(f *zktest.Frame, op zktest.Op, about func(f *zktest.Frame) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fallen {
		if f.Stage == zktest.Reply {
			s.answered[f.Op]++
		}
		return false
	}
	s.fallen = f.Op == op && f.Stage == s.blow.at && (about == nil || about(f))
	return s.fallen
}

func (s *Strike) begin(l *Line) {
	if s.blow.begin != nil {
		s.blow.begin(l)
		s.ended.Go(func() {
			time.Sleep(s.blow.after)
			s.blow.end(l)
		})
	}
	close(s.Hit)
}

// Wait returns when a blow that has fallen is over.
func (s *Strike) Wait() { s.ended.Wait() }

// Answered returns how many requests of a kind have been answered after the blow.
func (s *Strike) Answered(op zktest.Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered[op]
}
