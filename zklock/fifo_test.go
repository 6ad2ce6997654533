package zklock_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

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
