package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A scripted store says what the test wants, and else that all is well and the lock free.
type scripted struct {
	tier *queue.Tier

	mu   sync.Mutex // guards the fields below
	said func(queue.Command) (a queue.Answer, said bool)
	sent []queue.Op
}

func script(t *testing.T, config queue.Config) *scripted {
	s := new(scripted)
	s.start(t, config, s)
	return s
}

func (s *scripted) start(t *testing.T, config queue.Config, store queue.Store) {
	s.says(func(queue.Command) (a queue.Answer, said bool) { return a, false })
	config.Package, config.Store, config.TTL, config.Logger = "test", "Test", 3*time.Second, slog.New(slog.DiscardHandler)
	config.Lost = func(r queue.Ref) string { return r.ID + " is gone" }
	s.tier = queue.New(config, store)
	s.tier.Start()
	t.Cleanup(func() { s.tier.Close() })
}

func (s *scripted) says(f func(queue.Command) (a queue.Answer, said bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = f
}

func (s *scripted) Do(_ context.Context, c queue.Command) queue.Answer {
	s.mu.Lock()
	s.sent = append(s.sent, c.Op)
	says := s.said
	s.mu.Unlock()
	if a, said := says(c); said {
		return a
	}
	return queue.Answer{Outcome: queue.Done, Name: "1", TTL: 3 * time.Second, View: has(c.ID, 1)}
}

func (s *scripted) Name(string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint("contender ", len(s.sent))
}

func (*scripted) Close() {}

func has(id string, at int64) queue.View {
	return queue.View{ID: id, Known: true, Token: 1, At: at, Has: true}
}

func (s *scripted) count(op queue.Op) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.sent {
		if o == op {
			n++
		}
	}
	return n
}

func (s *scripted) acquire(t *testing.T) (second.Claim, *queue.Contender) {
	t.Helper()
	l, err := s.tier.Claim("x", second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Acquire(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, g.(*queue.Contender)
}

// A script that fails halfway may have removed the old contender. That is no loss.
func TestRequeueThatIsRefusedHalfwayLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		l, old := s.acquire(t)
		refused := errors.New("refused")
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			switch c.Op {
			case queue.Enter:
				return queue.Answer{Outcome: queue.Denied, Err: refused, Begun: true}, true
			case queue.Leave:
				return queue.Answer{Outcome: queue.Done, Removed: queue.Missing}, true
			}
			return a, false
		})
		if _, err := l.Requeue(t.Context(), old, nil); !errors.Is(err, refused) {
			t.Errorf("Requeue: %v, want that it was refused", err)
		}
		if err := old.AwaitRelease(); err != nil {
			t.Errorf("the old one: %v", err)
		}
	})
}

// Whose lease was not renewed has lost the lock, however late it was told how it stood.
func TestContenderThatCannotStayIsLostThoughNewsCameSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		_, c := s.acquire(t)
		refused := errors.New("refused")
		s.says(func(cmd queue.Command) (a queue.Answer, said bool) {
			if cmd.Op != queue.Beat {
				return a, false
			}
			time.Sleep(time.Millisecond)
			s.tier.Tell(has(c.Ref().ID, 2))
			return queue.Answer{Outcome: queue.Done, Views: []queue.View{{ID: c.Ref().ID, Err: refused}}}, true
		})
		time.Sleep(time.Second)
		if err := c.Err(); !errors.Is(err, refused) || second.CauseOf(err) != second.ByOther {
			t.Errorf("Err: %v, want a loss as that was refused", err)
		}
	})
}

// What no Beat names goes by itself, where each contender has a lease of its own.
func TestNobodyIsLookedForWhereEachContenderHasItsOwnLease(t *testing.T) {
	for own, audits := range map[bool]int{true: 0, false: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := script(t, queue.Config{OwnTTL: own})
			s.says(func(c queue.Command) (a queue.Answer, said bool) {
				return a, c.Op == queue.Enter && s.count(queue.Enter) == 1
			})
			s.acquire(t)
			time.Sleep(time.Second) // for a renewal
			if n := s.count(queue.Audit); n != audits {
				t.Errorf("own leases %v: %d audits, want %d", own, n, audits)
			}
		})
	}
}

// The answer that tells of the end of a session is also the first after an outage.
func TestEndOfASessionIsToldBeforeTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		for range 1000 { // their losses take a while
			s.acquire(t)
		}
		var told []second.ConnectionState
		s.tier.Notify(func(c second.Connection) { told = append(told, c.State) })
		synctest.Wait()
		for _, says := range []queue.Answer{{Away: errors.New("away")}, {Outcome: queue.Expired, Err: errors.New("over")}} {
			s.says(func(c queue.Command) (queue.Answer, bool) {
				if c.Op == queue.Open {
					return queue.Answer{Outcome: queue.Done, Name: "2", TTL: 3 * time.Second}, true
				}
				return says, c.Op == queue.Beat
			})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if want := []second.ConnectionState{second.Connected, second.Suspended, second.Expired, second.Connected}; !slices.Equal(told[:min(4, len(told))], want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
