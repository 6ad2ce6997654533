package link

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// answering returns the address of a server that waits for the first bytes, sends the answer, and closes the connection.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l := need.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// If the server on the port is not a ZooKeeper, the error of Dial says what it seems to be.
func TestDialTellsWhatIsWrongWithThePort(t *testing.T) {
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	defer secure.Close()
	plain := zktest.Start(t)
	overTLS := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		client := tls.Client(conn, &tls.Config{ServerName: "zookeeper", MinVersion: tls.VersionTLS12})
		if err := client.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return client, nil
	}
	for _, c := range []struct {
		name, addr string
		dial       func(ctx context.Context, network, address string) (net.Conn, error) // nil for the usual dialer
		want       []string
	}{
		{"an HTTP server that waits for the end of the line", web.Listener.Addr().String(), nil, []string{"no answer", "an HTTP server waits"}},
		{"an HTTP server that answers anything", answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), nil, []string{"this is an HTTP server"}},
		{
			"a TLS server that hangs up", secure.Listener.Addr().String(), nil,
			[]string{"hung up", "may require TLS", "WithTLS", "secureClientPort", "maxClientCnxns"},
		},
		{"a TLS server that sends an alert", answering(t, "\x15\x03\x01\x00\x02\x02\x46"), nil, []string{"wants TLS", "WithTLS", "clientPort"}},
		{"a server that sends what is no alert", answering(t, "\x15\x04\x01\x00\x02\x02\x46"), nil, []string{"not ZooKeeper's protocol"}},
		{"TLS on a port without", addr, overTLS, []string{"dial " + addr, "no TLS on this port"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := need.Within(t, 500*time.Millisecond)
			config := Config{Settings: second.Settings{TTL: 600 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}, Dial: c.dial}
			if c.dial == nil {
				config.Dial = new(net.Dialer).DialContext
			}
			l, err := tryDial(ctx, config, c.addr)
			if err == nil {
				shut(l)
			}
			wantErr(t, "Dial", err, context.DeadlineExceeded, zk.ErrNoServer)
			wantMention(t, err, append(c.want, c.addr)...)
		})
	}
}
