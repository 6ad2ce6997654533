package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestI6ProcessesAreServedInTheOrderOfTheirNodes(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		held := start(t, s).acquire(t)
		var queue []*request
		for range 5 {
			queue = append(queue, start(t, s).queue(t.Context()))
		}
		for len(queue) > 0 {
			for i, r := range queue {
				if !r.waiting() {
					t.Fatalf("number %d in the queue has the lock beside its holder", i+1)
				}
			}
			if err := held.Release(); err != nil {
				t.Error(err)
			}
			next := queue[0].granted(t)
			if next.Token() <= held.Token() {
				t.Errorf("token %d after %d", next.Token(), held.Token())
			}
			held, queue = next, queue[1:]
		}
		held.Release()
		wantEmpty(t, s)
	})
}

func TestDepartureOfAWaiterGrantsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, leave := context.WithCancel(t.Context())
		middle, last := start(t, s).queue(ctx), start(t, s).queue(t.Context())
		leave()
		wantErr(t, "middle", middle.failed(t), context.Canceled)
		if !last.waiting() {
			t.Fatal("granted while another holds")
		}
		n.Release()
		last.granted(t).Release()
	})
}

func TestHandOverToTheNextTakesNoRead(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		tr := record(s)
		n.Release()
		r.granted(t)
		if got := tr.take(); len(got) != 1 || got[0] != zktest.OpDelete {
			t.Errorf("sent: %v, want one delete", got)
		}
	})
}

func TestDowngradeOfACuratorWriterIsNotTakenForItsDeparture(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/locks", path)
		writer, reader := path+"/_c_w-__WRIT__0000000000", path+"/_c_r-__READ__0000000000"
		put(t, conn, zk.FlagEphemeral, writer)
		if _, err := conn.Create(path+"/lock-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err) // moves the counter on
		}
		if err := conn.Delete(path+"/lock-0000000001", -1); err != nil {
			t.Fatal(err)
		}
		r := start(t, s).queue(t.Context())
		put(t, conn, zk.FlagEphemeral, reader) // with the number of the writer
		if err := conn.Delete(writer, -1); err != nil {
			t.Fatal(err)
		}
		if !r.waiting() {
			t.Fatal("granted beside the reader")
		}
		if err := conn.Delete(reader, -1); err != nil {
			t.Fatal(err)
		}
		r.granted(t).Release()
	})
}

func TestPredecessorGoneBeforeItIsWatchedIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, waiter := start(t, s), start(t, s)
		n := holder.acquire(t)
		var once sync.Once
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == waiter.session && f.Stage == zktest.Request && f.Op == zktest.OpGetData && f.Path == n.Path() {
				once.Do(func() { n.Release() })
			}
			return zktest.Pass
		})
		waiter.queue(t.Context()).granted(t).Release()
	})
}

func TestLostWatchDelaysTheGrantOnlyForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		n.Release()
		if time.Sleep(2 * timeout); r.waiting() {
			t.Fatal("the waiter never looks by itself")
		}
		r.granted(t).Release()
	})
}

func TestReturnOfTheConnectionIsALookAtTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, waiter := start(t, s).acquire(t), start(t, s)
		r := waiter.queue(t.Context())
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		n.Release()
		if !r.waiting() {
			t.Fatal("granted without an event")
		}
		s.Cut(waiter.session)
		r.granted(t).Release()
	})
}

func TestRequeueMovesTheNodeToTheTailInOneTransaction(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		other := start(t, s).queue(t.Context())
		type change = []zktest.Change
		changes := make(chan change, 10)
		s.OnChange(func(_ zktest.View, c []zktest.Change) { changes <- c })

		r := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
		held := other.granted(t)
		if !r.waiting() {
			t.Fatal("granted to both")
		}
		s.OnChange(nil)
		c := <-changes
		if len(c) != 2 || c[0].Kind != zktest.Deleted || c[0].Path != n.Path() || c[1].Kind != zktest.Created {
			t.Errorf("first transaction: got %+v, want deletion of %s and creation", c, n.Path())
		}
		if len(changes) > 0 {
			t.Errorf("a second transaction: %+v", <-changes)
		}
		if err := n.AwaitRelease(); err != nil {
			t.Error(err)
		}
		held.Release()
		next := r.granted(t)
		if next.Path() != c[1].Path || next.Token() != c[1].Zxid {
			t.Errorf("got %s with token %d, want %s with %d", next.Path(), next.Token(), c[1].Path, c[1].Zxid)
		}
		next.Release()
		wantEmpty(t, s)
	})
}

func TestRequeueWithAnEndedContextGivesTheLockUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		_, err := n.Requeue(ctx)
		wantErr(t, "Requeue", err, cause)
		if err := n.AwaitRelease(); err != nil {
			t.Error(err)
		}
		wantErr(t, "Err", n.Err(), zklock.ErrReleased)
		wantEmpty(t, s)
	})
}

// Else whoever queues next may do so before the delete has left.
func TestRequeueThatDoesNotBeginReturnsWhenTheNodeIsGone(t *testing.T) { // I3
	for name, number := range map[string]int32{"ended context": 0, "worn path": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				p.acquire(t).Release()
				s.SetSequence(path, number)
				n := p.acquire(t)
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Stage == zktest.Request && (f.Op == zktest.OpDelete || f.First == zktest.OpDelete) {
						return zktest.Delay(time.Second)
					}
					return zktest.Pass
				})
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := n.Requeue(ctx)
				wantErr(t, "Requeue", err, context.Canceled)
				if left := s.Children(path); len(left) > 0 {
					t.Errorf("returned before the node was gone: %v", left)
				}
			})
		})
	}
}

func TestRequeueOfALostLockQueuesAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		r := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
		if next := r.granted(t); next.Token() <= n.Token() {
			t.Errorf("token %d after %d", next.Token(), n.Token())
		}
		wantErr(t, "AwaitRelease of the lost one", n.AwaitRelease(), zklock.ErrLost)
	})
}
