package zklock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestAttachedReleaseDoesNotOutliveItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		s.Freeze()
		released := make(chan error, 1)
		go func() { released <- n.Release() }()
		synctest.Wait()
		began := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { p.Close() })
		wantErr(t, "Release", <-released, zklock.ErrClosed)
		if took := time.Since(began); took > 0 {
			t.Errorf("Release went on for %v", took)
		}
		closing.Wait()
	})
}

func TestAttachedLockOfAClosedClientIsNotCertainAndNobodyIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		p.Close()
		tr, begun := record(s), time.Now()
		if certain := n.Confirm(); certain || time.Since(begun) > 0 || len(tr.take()) > 0 {
			t.Errorf("certain: %t, after %v", certain, time.Since(begun))
		}
	})
}

func TestAttachedCloseEndsEveryTaskAndNotTheConnection(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder := start(t, s)
		barrier := holder.acquire(t)
		p, conn := attach(t, s)
		waiter := p.queue(t.Context())
		other := lockAt(t, p.Client, "/locks/y")
		n, err := other.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.Contested() // one more watch, on a node that stays
		synctest.Wait()
		began := time.Now()
		wantErr(t, "Close", p.Close(), nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		wantErr(t, "waiter", waiter.failed(t), zklock.ErrClosed)
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		if _, _, err := conn.Exists("/"); err != nil {
			t.Errorf("the connection after Close: %v", err)
		}
		wantErr(t, "Release", barrier.Release(), nil)
	})
}

// What does not return in time ends with the connection; the bubble fails if it does not.
func TestAttachedCloseIsBoundedWhateverTheServerDoes(t *testing.T) {
	for name, trouble := range map[string]func(*zktest.Server, process){
		"mute":             func(s *zktest.Server, _ process) { s.Freeze() },
		"mute handshake":   func(s *zktest.Server, p process) { s.Freeze(); s.Cut(p.session) },
		"cannot be dialed": func(s *zktest.Server, _ process) { down(s) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, _ := attach(t, s)
				p.acquire(t)
				waiter := p.queue(t.Context())
				trouble(s, p)
				late := p.queue(t.Context())
				began := time.Now()
				wantErr(t, "Close", p.Close(), nil)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("Close took %v", took)
				}
				wantErr(t, "waiter", waiter.failed(t), zklock.ErrClosed)
				wantErr(t, "late waiter", late.failed(t), zklock.ErrClosed)
			})
		})
	}
}

func TestAttachedClientEndsWithItsConnection(t *testing.T) {
	for name, freeze := range map[string]bool{"answered": false, "unanswered": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				holder := start(t, s)
				barrier := holder.acquire(t)
				p, conn := attach(t, s)
				waiter := p.queue(t.Context())
				if freeze {
					s.Freeze()
				}
				began := time.Now()
				go conn.Close()
				select {
				case <-p.Done():
				case <-time.After(time.Hour): // virtual
					t.Fatal("the end of the connection was never noticed")
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the end of the connection was noticed after %v", took)
				}
				wantErr(t, "waiter", waiter.failed(t), zklock.ErrClosed)
				_, err := p.lock.Acquire(t.Context())
				wantErr(t, "Acquire over a closed connection", err, zklock.ErrClosed)
				wantErr(t, "Err", p.Err(), zklock.ErrClosed)
				s.Unfreeze()
				wantErr(t, "Release", barrier.Release(), nil)
			})
		})
	}
}

// The bubble fails if a goroutine is left.
func TestPollingForACloseSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		tr := record(s)
		for range 2 {
			leave, leaveToo := p.PollClose(), p.PollClose()
			leave()
			<-time.After(time.Minute) // virtual
			leaveToo()
		}
		if ops := tr.take(); len(ops) > 0 {
			t.Errorf("sent %v", ops)
		}
		conn.Close()
		<-time.After(time.Minute) // virtual
		select {
		case <-p.Done():
			t.Error("somebody has asked, though nobody waits")
		default:
		}
		defer p.PollClose()()
		select {
		case <-p.Done():
		case <-time.After(100 * time.Millisecond): // virtual
			t.Error("the end of the connection was not noticed")
		}
	})
}

// A connection that comes and goes is not closed, however often it breaks before it has
// answered anything, and however long the library takes to choose a server.
func TestAttachedClientOutlivesAFlappingConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		servers := &slowServers{}
		conn, events, err := zk.Connect([]string{addr, addr}, timeout, zk.WithDialer(s.DialTimeout),
			zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithHostProvider(servers))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			conn.Close()
			for range events { // closed as the last act of the library
			}
		})
		for conn.State() != zk.StateHasSession {
			<-time.After(time.Millisecond) // virtual
		}
		p := attachTo(t, conn)
		var cuts atomic.Int32
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op != zktest.OpConnect && f.Stage == zktest.Request && cuts.Add(1) <= 20 {
				return zktest.Cut
			}
			return zktest.Pass
		})
		s.Cut(p.session)
		synctest.Wait() // disconnected, and at the choice of a server
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := p.lock.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if cuts.Load() <= 20 {
			t.Errorf("%d requests, want more than those that were cut off", cuts.Load())
		}
		wantErr(t, "Release", n.Release(), nil)
	})
}

// slowServers is a list of servers that takes time to consult, as one does that
// resolves names anew.
type slowServers struct{ zk.DNSHostProvider }

func (p *slowServers) Next() (string, bool) {
	<-time.After(100 * time.Millisecond) // virtual
	server, _ := p.DNSHostProvider.Next()
	return server, false
}

// Whether the connection was closed matters to nobody else.
func TestItIsAskedForACloseAsLongAsALockIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		go conn.Close()
		<-time.After(101 * time.Millisecond) // virtual
		select {
		case <-p.Done():
		default:
			t.Error("the close was not noticed, though a lock is held")
		}
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		n.Release()
	})
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		p.acquire(t).Release()
		conn.Close()
		select {
		case <-p.Done():
			t.Error("somebody has asked, though no lock is held")
		case <-time.After(time.Minute): // virtual
		}
	})
}
