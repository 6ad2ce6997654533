package zklock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// The holder's budget begins when the look was sent that showed the contender, and not a round trip later.
func TestContestedSinceTheLookWasSent(t *testing.T) { // I11
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 40 * time.Millisecond
		s := zktest.Start(t, zktest.Config{Latency: roundTrip / 2})
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		other.queue(t.Context())
		time.Sleep(time.Second)
		began := time.Now()
		<-n.Contested()
		if took := time.Since(began); took != roundTrip || n.ContestedFor() != roundTrip {
			t.Errorf("contested for %v after a look of %v, want both to be %v", n.ContestedFor(), took, roundTrip)
		}
	})
}

// The budget is for the time of the hold, though the contender was seen long before.
func TestContestedNotBeforeTheGrant(t *testing.T) { // I11
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		start(t, s).queue(t.Context())
		time.Sleep(2 * timeout) // the one in the middle has looked again
		n.Release()
		if got := next.granted(t).ContestedFor(); got > time.Millisecond || got == 0 {
			t.Errorf("contested for %v at the grant, want the least there is", got)
		}
	})
}

// contested reports whether n is known to be, once nothing moves any more.
func contested(n interface{ Contested() <-chan struct{} }) bool {
	c := n.Contested() // which may begin to look
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A look that fails is repeated soon, and sets the watch then.
func TestContenderIsNoticedAtOnceAlthoughTheFirstLookFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		other := start(t, s)
		failed := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request && !failed {
				failed = true
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		contested(n)
		if time.Sleep(timeout / 3); !failed || contested(n) {
			t.Fatalf("the look failed: %t; contested without a contender: %t", failed, contested(n))
		}
		other.queue(t.Context())
		if !contested(n) {
			t.Error("not noticed at once")
		}
	})
}

// Each request for a watch is one more channel that the library keeps until the watch fires.
func TestLooksAtTheQueueShareOneWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var looks, watches atomic.Int32
		n := start(t, s, zklock.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return tap{conn, func(frame []byte) {
				d := wire.Decoder{Rest: wire.Body(frame)}
				if h := d.RequestHeader(); h.Op == wire.OpGetChildren || h.Op == wire.OpGetChildren2 {
					looks.Add(1)
					if d.Buffer(); d.Bool() { // path, watch
						watches.Add(1)
					}
				}
			}}, err
		})).acquire(t)
		n.Contested()
		time.Sleep(10 * timeout)
		if looks.Load() < 5 || watches.Load() != 1 {
			t.Errorf("%d looks asked for %d watches, want 1", looks.Load(), watches.Load())
		}
	})
}

// A tap shows what a client writes.
type tap struct {
	net.Conn
	show func(frame []byte)
}

func (c tap) Write(frame []byte) (int, error) {
	c.show(frame)
	return c.Conn.Write(frame)
}
