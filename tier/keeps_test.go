package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// While the connection is up, too: only the grant is lost, not the session.
func TestLostGrantIsNotHandedOn(t *testing.T) { // I1
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithHandOff(time.Hour))
		hold := acquire(t, mu)
		next := start(soon(t), mu).blocked(t)
		s.Remove("/locks/a", 0)
		<-hold.Lost()
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		got := next.granted(t)
		if got.Err() != nil || got.Token() <= hold.Token() {
			t.Errorf("the next owner has token %d after %d, and is told %v; want a grant of its own", got.Token(), hold.Token(), got.Err())
		}
		release(t, got)
	})
}

// The last one that reads is about to leave the lock to linger, which the server has to confirm where there is no lease. Whoever
// joins meanwhile has it.
func TestReaderThatJoinsTheLastOneWhileItLeavesKeepsTheLock(t *testing.T) { // I1
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		client, err := zklock.Attach(outsider(t, "127.0.0.1:2181", srv.DialTimeout))
		if err != nil {
			t.Fatal(err)
		}
		locks, err := tier.New(client.Tier(), tier.WithLinger(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		mu := locks.RWMutex("/locks/a")
		last := acquire(t, mu.Reader())
		time.Sleep(time.Second) // then what the server said last does not count any more
		srv.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.First == zktest.OpCheck {
				return zktest.Delay(100 * time.Millisecond)
			}
			return zktest.Pass
		})
		left := make(chan error)
		go func() { left <- last.Release() }()
		synctest.Wait()
		joined := acquire(t, mu.Reader())
		if err := <-left; err != nil {
			t.Errorf("Release: %v", err)
		}
		writer := start(soon(t), zkProcess(t, srv).RWMutex("/locks/a").Writer())
		time.Sleep(time.Second)
		writer.blocked(t)
		if err := joined.Err(); err != nil {
			t.Errorf("who joined is told %v", err)
		}
		release(t, joined)
		release(t, writer.granted(t))
	})
}

// A reader of this process that had to wait behind a writer comes in with those of other processes, once that writer has left.
func TestReadersThatWaitHereComeInOnceTheGrantIsShared(t *testing.T) {
	const budget = 30 * time.Millisecond
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithHandOff(budget)), process()
		write := acquire(t, a.Writer())
		read, err := a.Reader().Acquire(write.Context(soon(t)))
		if err != nil {
			t.Fatal(err)
		}
		release(t, write)
		there := start(soon(t), b.Reader()).blocked(t)
		ctx, cancel := context.WithCancel(soon(t))
		writer := start(ctx, a.Writer()).blocked(t)
		here := start(soon(t), a.Reader()).blocked(t)
		time.Sleep(budget + budget/2)
		cancel()
		<-writer.done
		here.blocked(t) // others have waited for the budget
		there.blocked(t)
		time.Sleep(budget)
		synctest.Wait()
		if here.pending() || there.pending() {
			t.Fatalf("after two budgets a reader waits here: %t, there: %t; want both inside", here.pending(), there.pending())
		}
		release(t, here.granted(t))
		release(t, there.granted(t))
		release(t, read)
	})
}
