package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// entering has the first Enter take a second, with a renewal in between that does not find the contender at time 10.
func entering(s *scripted, at int64) {
	s.says(func(c queue.Command) (a queue.Answer, said bool) {
		switch {
		case c.Op == queue.Enter && s.count(queue.Enter) == 1:
			time.Sleep(time.Second)
			return queue.Answer{Outcome: queue.Done, View: has(c.ID, at)}, true
		case c.Op == queue.Beat && len(c.Among) > 0:
			return queue.Answer{Outcome: queue.Done, Views: []queue.View{{ID: c.Among[0].ID, At: 10}}}, true
		}
		return a, false
	})
}

// A process may be stopped between the answer to its command and the look at it, for longer than its lease lasts, and then first
// hear of a renewal. A renewal can also be executed before the command.
func TestAnswerIsNoGrantIfARenewalHasFoundTheContenderGoneSince(t *testing.T) {
	for at, enters := range map[int64]int{5: 2, 15: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := script(t, queue.Config{})
			entering(s, at)
			time.AfterFunc(1100*time.Millisecond, func() {
				s.says(func(queue.Command) (a queue.Answer, said bool) { return a, false })
			})
			if _, c := s.acquire(t); c.Err() != nil {
				t.Errorf("at %d: %v", at, c.Err())
			}
			synctest.Wait()
			if n, left := s.count(queue.Enter), s.count(queue.Leave); n != enters || left != enters-1 {
				t.Errorf("at %d: entered %d times and left %d, want %d", at, n, left, enters)
			}
		})
	}
}

// News and answers overtake one another.
func TestWhatIsOlderDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		id := make(chan string, 1)
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			if c.Op != queue.Enter {
				return a, false
			}
			id <- c.ID
			return queue.Answer{Outcome: queue.Done, View: queue.View{ID: c.ID, Known: true, Token: 1, At: 10, Ahead: 1}}, true
		})
		granted := make(chan *queue.Contender, 1)
		go func() {
			_, c := s.acquire(t)
			granted <- c
		}()
		me := <-id
		synctest.Wait()
		s.tier.Tell(queue.View{ID: me, At: 8})
		s.tier.Tell(has(me, 9))
		synctest.Wait()
		if len(granted) > 0 || s.count(queue.Enter) > 1 {
			t.Error("what was said before has undone what was said later")
		}
		s.tier.Tell(has(me, 11))
		c := <-granted
		s.tier.Tell(queue.View{ID: me, At: 10})
		if err := c.Err(); err != nil {
			t.Errorf("lost as it was gone before: %v", err)
		}
		// The clock of the store is set back, which the answer to a new command shows.
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			return queue.Answer{Outcome: queue.Done, Views: []queue.View{{ID: me, At: 3}}}, c.Op == queue.Beat
		})
		time.Sleep(time.Second)
		if err := c.Err(); second.CauseOf(err) != second.ByDeletion {
			t.Errorf("%v, want that it was removed, as an answer to what was asked since says", err)
		}
	})
}

// A command that arrives late, after its contender has lost the lock, gives it another place.
func TestHolderWithAnotherPlaceThanBeforeHasLostTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		_, c := s.acquire(t)
		s.tier.Tell(queue.View{ID: c.Ref().ID, Known: true, Token: 2, At: 2, Has: true})
		if err := c.Err(); !errors.Is(err, second.ErrLost) {
			t.Errorf("%v, want that its place is lost", err)
		}
		if c.Release(); s.count(queue.Leave) != 1 {
			t.Error("the other place is left in the queue")
		}
	})
}

// Renewals and guarded writes are under way while the lock is released.
func TestWhatFindsAReleasedContenderGoneTellsOfNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		_, c := s.acquire(t)
		s.says(func(cmd queue.Command) (a queue.Answer, said bool) {
			if cmd.Op == queue.Leave {
				s.tier.Tell(queue.View{ID: cmd.ID, At: 2})
				s.tier.Tell(queue.View{ID: cmd.ID, Err: errors.New("no")})
				if err := c.Missing(); !errors.Is(err, second.ErrReleased) {
					t.Errorf("a write behind the release: %v, want ErrReleased", err)
				}
			}
			return a, false
		})
		if err := c.Release(); err != nil || context.Cause(c.Context()) != nil {
			t.Errorf("%v, %v; want no loss", err, context.Cause(c.Context()))
		}
	})
}

// The old contender of a requeue that may have been executed is gone because of that.
func TestReleaseOfWhatARequeueMayHaveRemovedIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		l, old := s.acquire(t)
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			if c.Op == queue.Leave {
				return queue.Answer{Outcome: queue.Done, Removed: queue.Missing}, true
			}
			return a, c.Op == queue.Enter
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := l.Requeue(ctx, old, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want DeadlineExceeded", err)
		}
		if err := old.AwaitRelease(); err != nil {
			t.Error(err)
		}
	})
}

// Whoever has been seen to wait before the grant has waited for this holder since then.
func TestContestedIsCountedFromTheLookAndFromTheGrantAtMost(t *testing.T) {
	for sent, want := range map[time.Duration]time.Duration{
		time.Nanosecond:         2 * time.Second, // long before the grant
		1500 * time.Millisecond: 1500 * time.Millisecond,
		0:                       time.Second, // it was told unasked
	} {
		synctest.Test(t, func(t *testing.T) {
			s := script(t, queue.Config{})
			time.Sleep(time.Second)
			_, c := s.acquire(t)
			time.Sleep(time.Second)
			v := has(c.Ref().ID, 2)
			v.Behind, v.Sent = true, sent
			s.tier.Tell(v)
			time.Sleep(time.Second)
			if d := c.Contested().For(); d != want {
				t.Errorf("sent at %v: contested for %v, want %v", sent, d, want)
			}
		})
	}
}

// A store may first tell that somebody is ahead, and then who.
func TestWhoWaitsStandsBehindThoseOfWhomItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script(t, queue.Config{})
		s.says(func(c queue.Command) (a queue.Answer, said bool) {
			return queue.Answer{Outcome: queue.Done, View: queue.View{ID: c.ID, Known: true, Token: 1, At: 1}}, c.Op == queue.Enter
		})
		l, _ := s.tier.Claim("x", second.Options{})
		var w second.Wait
		go l.Acquire(t.Context(), &w)
		synctest.Wait()
		if w.Behind() {
			t.Error("behind somebody before that is told")
		}
		s.tier.Tell(queue.View{ID: "contender 1", Known: true, Token: 1, At: 2, Ahead: 2})
		synctest.Wait()
		if !w.Behind() || w.Standing().Ahead != 2 {
			t.Errorf("behind %v: %+v", w.Behind(), w.Standing())
		}
	})
}
