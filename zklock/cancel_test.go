package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		tr := record(s)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, cause)
		_, err = p.lock.TryAcquire(ctx)
		wantErr(t, "TryAcquire", err, cause)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
	})
}

// The request of every step of an acquisition, and its reply, is held up until the caller has left.
func TestCallerLeavesAtOnceWhateverIsInFlightAndNothingStays(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2} {
		for _, stage := range []zktest.Stage{zktest.Request, zktest.Reply} {
			t.Run(op.String()+" "+stage.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *zktest.Server) {
					p := start(t, s)
					p.acquire(t).Release() // makes the parents
					s.Intercept(func(f *zktest.Frame) zktest.Action {
						if f.Op == op && f.Stage == stage {
							return zktest.Delay(time.Second)
						}
						return zktest.Pass
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					defer cancel()
					begun := time.Now()
					_, err := p.lock.Acquire(ctx)
					wantErr(t, "Acquire", err, context.DeadlineExceeded)
					if d := time.Since(begun); d != time.Millisecond {
						t.Errorf("returned after %v, want 1ms", d)
					}
					time.Sleep(4 * time.Second)
					wantEmpty(t, s)
				})
			})
		}
	}
}

func TestI9CancelledWaiterCostsNobodyItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, leave := context.WithCancel(t.Context())
		p := start(t, s)
		leaver, stayer, last := p.queue(ctx), p.queue(t.Context()), start(t, s).queue(t.Context())
		before := s.Children(path)
		leave()
		wantErr(t, "leaver", leaver.failed(t), context.Canceled)
		if left := s.Children(path); len(left) != len(before)-1 {
			t.Errorf("queue: got %d nodes, want %d", len(left), len(before)-1)
		}
		n.Release()
		stayer.granted(t).Release()
		last.granted(t).Release()
		wantEmpty(t, s)
	})
}

func TestCancelAtTheMomentOfTheGrantNeverStrandsTheNode(t *testing.T) {
	grants := 0
	for i := range 80 {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			p := start(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			r := p.queue(ctx)
			go n.Release()
			go func() {
				for range i % 16 { // the release goes through about as many hands
					runtime.Gosched()
				}
				cancel()
			}()
			if r.waiting() {
				t.Fatal("neither granted nor cancelled")
			}
			if r.err == nil {
				grants++
				if err := r.node.Release(); err != nil {
					t.Errorf("Release of a grant: %v", err)
				}
			} else {
				wantErr(t, "Acquire", r.err, context.Canceled)
			}
			<-n.Released()
			wantEmpty(t, s)
			p.acquire(t).Release()
		})
	}
	t.Logf("%d of 80 were granted", grants)
}

func TestGrantDeliveredAtTheDeadlineIsEitherHeldOrGone(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			p := start(t, s)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Stage == zktest.Event && f.Session == p.session {
					return zktest.Delay(time.Second)
				}
				return zktest.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r := p.queue(ctx)
			n.Release()
			if time.Sleep(time.Second); r.waiting() {
				t.Fatal("still waiting")
			}
			if r.err == nil {
				r.node.Release()
			}
			wantEmpty(t, s)
		})
	}
}

func TestCallersWhoComeAndGoDoNotPileUpStuckCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		tr := record(s)
		s.Freeze()
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err := p.lock.Acquire(ctx)
			wantErr(t, "Acquire", err, context.DeadlineExceeded)
			cancel()
		}
		s.Unfreeze()
		creates := 0
		for _, op := range tr.take() {
			if op == zktest.OpCreate {
				creates++
			}
		}
		if creates != 1 {
			t.Errorf("%d calls were stuck, want 1", creates)
		}
		wantEmpty(t, s)
	})
}

// The one that the next caller waits for is remembered as long as its call is stuck.
func TestStuckCallThatHasEndedIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		if n := p.Abandoned(); n != 1 {
			t.Errorf("while the call is stuck: %d remembered, want 1", n)
		}
		s.Unfreeze()
		synctest.Wait()
		if n := p.Abandoned(); n != 0 {
			t.Errorf("after the call: %d remembered, want none", n)
		}
		wantEmpty(t, s)
	})
}

// Nothing is needed for that, and nobody ahead is watched.
func TestNodeOfACallerWhoHasLeftIsDeletedAtOnceAndDoesNotQueue(t *testing.T) {
	for name, taken := range map[string]bool{"nobody ahead": false, "somebody ahead": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				n, p := start(t, s).acquire(t), start(t, s) // which makes the parents
				if !taken {
					n.Release()
				}
				tr := record(s)
				s.Freeze()
				ctx, cancel := context.WithCancel(t.Context())
				r := p.queue(ctx)
				cancel()
				wantErr(t, "Acquire", r.failed(t), context.Canceled)
				s.Unfreeze()
				if got, want := tr.take(), []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpDelete}; !slices.Equal(got, want) {
					t.Errorf("sent: %v, want %v", got, want)
				}
				n.Release()
			})
		})
	}
}

// I10: who is told of events is who still waits, holds or looks.
func TestNobodyListensWhoHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		contested(n)
		next := other.queue(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		last := other.queue(ctx)
		cancel()
		last.failed(t)
		n.Release()
		next.granted(t).Release()
		p.acquire(t).Release()
		synctest.Wait()
		for _, c := range []process{p, other} {
			if listeners := c.Listeners(); listeners > 0 {
				t.Errorf("%d listeners although nothing is held or waited for", listeners)
			}
		}
	})
}

// The one ahead stays, and so does the watch on it; but nobody is told.
func TestNobodyListensWhoHasLeftThoseAhead(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, other := start(t, s), start(t, s)
		n := holder.acquire(t)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			r := other.queue(ctx)
			cancel()
			r.failed(t)
		}
		if synctest.Wait(); other.Listeners() > 0 {
			t.Errorf("%d listeners although nobody waits", other.Listeners())
		}
		n.Release()
	})
}

func TestWaitBehindAnotherProcessEndsWithTheContextsCauseAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := start(t, s).queue(ctx)
		time.Sleep(time.Second)
		err := r.failed(t)
		if want := "zklock: acquire " + path + ": " + context.DeadlineExceeded.Error(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		n.Release()
	})
}

func TestWaitersThatComeAndGoShareOneWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		p := start(t, s)
		visit := func() {
			ctx, cancel := context.WithCancel(t.Context())
			r := p.queue(ctx)
			cancel()
			r.failed(t)
		}
		visit()
		tr, before := record(s), s.Watches()
		for range 10 {
			visit()
		}
		synctest.Wait()
		if got := s.Watches(); got != before {
			t.Errorf("watches: got %d, want %d", got, before)
		}
		reads := 0
		for _, op := range tr.take() {
			if op == zktest.OpGetData {
				reads++
			}
		}
		if reads != 10 { // each looked at its own node, none asked for the predecessor again
			t.Errorf("got %d reads with a watch, want 10", reads)
		}
		n.Release()
	})
}

func TestTheEndOfTheAcquisitionContextDoesNotEndTheHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		n := start(t, s).queue(ctx).granted(t)
		cancel()
		if time.Sleep(time.Minute); n.Err() != nil {
			t.Errorf("Err: %v", n.Err())
		}
		select {
		case <-n.Lost():
			t.Error("lost")
		default:
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		wantErr(t, "second Release", n.Release(), zklock.ErrReleased)
	})
}
