package link

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The library connects in one goroutine, and Close waits for it. If the program's dialer ignores its context, only the goroutine of that
// dialer is left after Close.
func TestDialerThatIgnoresItsContextHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var hangs atomic.Bool
		var open atomic.Int32
		stuck := make(chan struct{})
		config := to(s)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if hangs.Load() {
				<-stuck
			}
			conn, err := s.DialContext(context.WithoutCancel(ctx), network, address)
			if err == nil {
				open.Add(1)
			}
			return &counted{Conn: conn, open: &open}, err
		}
		l := dial(t, config, addr)
		hangs.Store(true)
		s.CutAll()
		time.Sleep(timeout / 2)
		wantMention(t, l.Err(), addr, "the program's dialer is still running")
		hangs.Store(false)
		time.Sleep(3 * time.Second)
		need.OK(t, l.Err())
		hangs.Store(true)
		s.CutAll()
		time.Sleep(timeout / 2)
		begun := time.Now()
		shut(l)
		need.AtMost(t, "Close took", time.Since(begun), 2*time.Second)
		close(stuck)
		synctest.Wait()
		need.Equal(t, "connections that are open in the end", open.Load(), 0)
	})
}

// A counted is a connection that counts as open until it is closed.
type counted struct {
	net.Conn
	once sync.Once
	open *atomic.Int32
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func TestCheckOfACertificateThatHangsHoldsUpNothing(t *testing.T) {
	server, stuck := httptest.NewTLSServer(http.NotFoundHandler()), make(chan struct{})
	defer server.Close()
	defer close(stuck)
	config := to(new(zktest.Server))
	config.Dial = new(net.Dialer).DialContext
	config.TLS = &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { <-stuck; return nil }}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantErr(t, "Dial", need.ErrOf(tryDial(ctx, config, server.Listener.Addr().String())), context.DeadlineExceeded)
}
