package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store with one name, which tells what it is asked to.
type oneName struct{ *scripted }

func (oneName) Name(string) string { return "n" }
func (oneName) Follow(queue.Ref)   {}
func (oneName) Unfollow(queue.Ref) {}

func TestNextContenderOfANameIsAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(scripted)
		s.start(t, queue.Config{}, oneName{s})
		l, old := s.acquire(t)
		grants := make(chan second.Grant, 1)
		entered := make(chan struct{})
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			switch c.Op {
			case queue.Enter:
				close(entered)
				return queue.Answer{Outcome: queue.Done, View: queue.View{ID: "n", Known: true, Token: 2, At: 2, Ahead: 1}}, true
			case queue.Leave: // the name is free as soon as that is executed
				go func() {
					g, _ := l.Acquire(t.Context(), nil)
					grants <- g
				}()
				<-entered
				return queue.Answer{Outcome: queue.Done}, true
			}
			return a, false
		})
		if err := old.Release(); err != nil {
			t.Error(err)
		}
		synctest.Wait()                                   // until the old one has come to its end
		s.tier.Tell(queue.View{ID: "n", Token: 1, At: 3}) // it is gone
		s.tier.Tell(queue.View{ID: "n", Known: true, Token: 2, At: 3, Has: true})
		synctest.Wait()
		select {
		case g := <-grants:
			s.says(func(queue.Command) (a queue.Answer, said bool) { return a, false })
			if g.Token() != 2 || g.Err() != nil {
				t.Errorf("token %d, %v; want 2 and no loss by what was told of the old one", g.Token(), g.Err())
			}
		default:
			t.Error("the next one is told nothing")
		}
	})
}

// A store that needs two looks for a try may queue before it knows.
func TestTryThatHasEnteredBehindSomebodyIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		l, _ := s.tier.Claim("x", second.Options{})
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			return queue.Answer{Outcome: queue.Done, View: queue.View{ID: c.ID, Known: true, Token: 2, At: 2, Ahead: 1}}, c.Op == queue.Try
		})
		if _, err := l.TryAcquire(t.Context()); !errors.Is(err, second.ErrLocked) {
			t.Errorf("TryAcquire: %v, want that it is locked", err)
		}
		synctest.Wait()
		if n := s.count(queue.Leave); n != 1 {
			t.Errorf("%d removals, want one", n)
		}
	})
}
