package zklock_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

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
