package zknode_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A stuffed connection accepts no more data, as if the peer had stopped reading. Then writes block.
type stuffed struct {
	server *zktest.Server
	full   atomic.Bool
	talks  bool // the server still sends, so the reader notices nothing
}

func (w *stuffed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	far, err := w.server.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, peer := net.Pipe()
	go func() {
		defer near.Close()
		_, _ = io.Copy(peer, far)
	}()
	way := leaving{near, make(chan struct{})}
	go func() {
		defer far.Close()
		for frame := make([]byte, 64<<10); ; {
			n, err := peer.Read(frame)
			if err != nil {
				return
			}
			for w.full.Load() {
				select {
				case <-way.left:
					return
				case <-time.After(time.Second):
				}
				if w.talks {
					var pong wire.Encoder
					pong.ReplyHeader(wire.ReplyHeader{Xid: -2})
					_, _ = peer.Write(wire.Frame(pong))
				}
			}
			if _, err := far.Write(frame[:n]); err != nil {
				return
			}
		}
	}()
	return way, nil
}

// A leaving connection reports that it was closed.
type leaving struct {
	net.Conn
	left chan struct{}
}

func (c leaving) Close() error {
	close(c.left)
	return c.Conn.Close()
}

func TestNobodyWaitsForAServerThatStopsReading(t *testing.T) {
	each(t, map[string]bool{"silent": false, "talking": true}, func(t *testing.T, s *zktest.Server, talks bool) {
		way := &stuffed{server: s, talks: talks}
		p := start(t, s, zknode.WithDialContext(way.dial))
		n := p.acquire(t)
		other := lockAt(t, p.Client, "/locks/y")
		way.full.Store(true)
		began := time.Now()
		within := func(what string, bound time.Duration) {
			t.Helper()
			took := time.Since(began)
			need.AtMost(t, what+" took", took, bound)
			began = time.Now()
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			wantErr(t, "Acquire", need.ErrOf(other.Acquire(ctx)), context.DeadlineExceeded)
			cancel()
			within("Acquire", 100*time.Millisecond)
		}
		n.Release()
		within("Release", timeout/3)
		for p.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		within("the end of the connection", timeout)
		way.full.Store(false)
		p.acquire(t).Release()
		within("the next Acquire", 2*timeout)
		way.full.Store(true)
		submit(func() (*zknode.Node, error) { return other.Acquire(t.Context()) })
		p.Close()
		within("Close", 4*time.Second)
	})
}
