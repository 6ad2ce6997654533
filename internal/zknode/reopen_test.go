package zknode_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The connection is replaced while the check of held nodes on the old one still hangs. The new connection must not wait for that check.
func TestNewConnectionServesAtOnceThoughALookAtTheOneBeforeHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var slow atomic.Bool
		slowly := make(chan struct{})
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return tap{conn, func(frame []byte) {
				d := wire.Decoder{Rest: wire.Body(frame)}
				if d.RequestHeader().Op == wire.OpMulti && slow.Swap(false) {
					<-slowly
				}
			}}, err
		}
		p := start(t, s, zknode.WithDialContext(dial))
		p.acquire(t)
		other := lockAt(t, p.Client, "/locks/y")
		time.Sleep(beat / 4)
		slow.Store(true)
		s.Cut(p.session)
		synctest.Wait()
		need.That(t, "the held nodes were not checked", !slow.Load())
		s.Cut(p.session)
		synctest.Wait()
		need.OK(t, p.Err())
		close(slowly)
		r := submit(func() (*zknode.Node, error) { return other.Acquire(t.Context()) })
		r.granted(t).Release()
	})
}

// If the answer to the create came on the new connection, the node need not be checked because of the reconnect.
func TestNodeThatIsGrantedAfterAReconnectIsNotLookedAtBecauseOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		start(t, s).acquire(t)
		p := start(t, s)
		p.queue(t.Context()) // the client can renew its lease with this node
		put(t, p.Library(), 0, "/locks/y")
		other := lockAt(t, p.Client, "/locks/y")
		var reads atomic.Int64
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Session == p.session && heartbeat(f) && f.Op != "connect" && f.Dir == zktest.Reply:
				return zktest.Delay(timeout / 60)
			case f.Op == "getData" && strings.HasPrefix(f.Path, other.Path()):
				reads.Add(1)
			}
			return zktest.Pass
		})
		s.Cut(p.session)
		synctest.Wait()
		n := acquire(t, other)
		defer n.Release()
		time.Sleep(timeout / 10)
		need.Equal(t, "requests and answers", reads.Load(), 0)
	})
}

// These nodes were deleted during the outage, and their ends are not watched yet. The periodic check would come too late, because one of
// the nodes renews the lease until then.
func TestNodesThatWentMeanwhileAreMissedAsSoonAsTheConnectionIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := start(t, s), raw(t, s)
		nodes := []*zknode.Node{p.acquire(t), need.Get(lockAt(t, p.Client, "/locks/y").Acquire(t.Context()))(t)}
		s.Member(addr).Refuse()
		s.Cut(p.session)
		for _, n := range nodes {
			remove(t, conn, n.Path())
		}
		time.Sleep(timeout / 12)
		var back time.Time
		meet(s, func(f *zktest.Frame) bool {
			if is("connect", zktest.Reply)(f) {
				back = time.Now()
			}
			return false
		}, zktest.Pass)
		s.Member(addr).Accept()
		for _, n := range nodes {
			awaitLoss(t, n)
		}
		need.That(t, "the connection is not back", !back.IsZero())
		need.Equal(t, "missed after the connection was back", time.Since(back), 0)
	})
}

// A waiting node reads the queue and sets its watches after a reconnect anyway. It needs no check of its own. Held nodes are checked before
// that.
func TestNodeThatWaitsIsReadOnceBecauseOfAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		held := start(t, s).acquire(t)
		p := start(t, s)
		r := p.queue(t.Context())
		var reads atomic.Int64
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && is("getData", zktest.Request)(f) && f.Path != held.Path() {
				reads.Add(1)
			}
			return zktest.Pass
		})
		s.Cut(p.session)
		synctest.Wait()
		need.Equal(t, "reads", reads.Load(), 1)
		need.OK(t, held.Release())
		r.granted(t).Release()
	})
}
