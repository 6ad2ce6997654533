package tiertest

import (
	"context"
	"math"
	"sync/atomic"
)

// A mishap is a fault that happens at a message to a process.
type mishap struct {
	name         string
	cancel, lose bool   // cancel: the context of the call ends; lose: the message is lost
	do           func() // a further action while the message waits; may be nil
}

var (
	lost      = mishap{name: "a message is lost", lose: true}
	cancelled = mishap{name: "the context ends at a message", cancel: true}
	both      = mishap{name: "the context ends, and a message is lost", cancel: true, lose: true}
)

// manyMessages is more messages than any call needs.
const manyMessages = 60

// The method each runs play for n = 1, 2, and so on. In run n, the fault happens at message n to p. The method returns after the first run
// with fewer than n messages. The fault may end the context of play.
func (s *scene) each(p *proc, m mishap, play func(ctx context.Context)) {
	s.Helper()
	s.needs(p.Messages != nil, "lose a message")
	s.settled() // by then, the process has noticed that an earlier fault has cut its connection
	for n := int64(1); s.meets(p, m, n, play); n++ {
		if n == manyMessages {
			s.Fatalf("more than %d messages", n)
		}
	}
}

// The method meets runs play once, and reports whether there was a message n.
func (s *scene) meets(p *proc, m mishap, n int64, play func(context.Context)) bool {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	s.await("the process is connected again", s.patience(), func() bool { return p.Err() == nil })
	var messages atomic.Int64
	over := make(chan struct{})
	p.Messages(func() bool {
		if messages.Add(1) != n {
			return false
		}
		defer close(over)
		if m.cancel {
			cancel()
		}
		if m.do != nil {
			m.do()
		}
		return m.lose
	})
	defer p.Messages(nil)
	play(ctx)
	switch met := messages.Swap(math.MinInt32) >= n; { // turns the counting off, because later messages do not count
	case !met && n == 1:
		s.Fatalf("there was no message at all")
	case s.verdict.failed():
		s.Fatalf("that was when %s (message %d)", m.name, n)
	case met:
		<-over
		return true
	}
	return false
}
