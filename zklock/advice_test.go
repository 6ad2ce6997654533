package zklock_test

import (
	"bytes"
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

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// answering returns the address of a server that waits for the first bytes, answers, and
// hangs up.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// What listens on the port is not what the client takes it for; the error of Dial says so.
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
		opts       []zklock.Option
		want       []string
	}{
		{"an HTTP server that waits for the end of the line", web.Listener.Addr().String(), nil, []string{"no answer", "an HTTP server waits"}},
		{"an HTTP server that answers anything", answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), nil, []string{"this is an HTTP server"}},
		{"a TLS server that hangs up", secure.Listener.Addr().String(), nil, []string{"hung up", "may want TLS", "WithTLS", "secureClientPort"}},
		{"a TLS server that sends an alert", answering(t, "\x15\x03\x01\x00\x02\x02\x46"), nil, []string{"wants TLS", "WithTLS", "clientPort"}},
		{"a server that sends what is no alert", answering(t, "\x15\x04\x01\x00\x02\x02\x46"), nil, []string{"not ZooKeeper's protocol"}},
		{"TLS on a port without", addr, []zklock.Option{zklock.WithDialContext(overTLS)}, []string{"dial " + addr, "no TLS on this port"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			client, err := zklock.Dial(ctx, c.addr, append(c.opts, zklock.WithSessionTimeout(600*time.Millisecond))...)
			if err == nil {
				client.Close()
			}
			wantErr(t, "Dial", err, context.DeadlineExceeded)
			wantErr(t, "Dial", err, zk.ErrNoServer)
			wantMention(t, err, append(c.want, c.addr)...)
		})
	}
}

// The error says what is missing where, and what presents credentials.
func TestAMissingPermissionIsNamedWithItsNode(t *testing.T) {
	without := func(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }
	for _, c := range []struct {
		name       string
		above, own []zk.ACL // of /locks and /locks/x; nil for none
		opts       []zklock.Option
		take       func(*zklock.Lock, context.Context) error
		want       string
	}{
		{"create a node", without(0), without(zk.PermCreate), nil, acquireOnce, "no CREATE permission on /locks/x "},
		{"try to create a node", without(0), without(zk.PermCreate), nil, tryOnce, "no CREATE permission on /locks/x "},
		{"list the queue", without(0), without(zk.PermRead), nil, acquireOnce, "no READ permission on /locks/x "},
		{"look at the queue", without(0), without(zk.PermRead), nil, tryOnce, "no READ permission on /locks/x "},
		{"show the queue", without(0), without(zk.PermRead), nil, contendersOnce, "no READ permission on /locks/x "},
		{"create the lock path", without(zk.PermCreate), nil, nil, acquireOnce, "no CREATE permission on /locks "},
		{"read the own node in the queue", without(0), without(0), []zklock.Option{zklock.WithACL(without(zk.PermRead))}, acquireTwice, "no READ permission on /locks/x/_c_"},
		{"read the own node", without(0), without(0), []zklock.Option{zklock.WithACL(without(zk.PermRead))}, holdOnce, "no READ permission on /locks/x/_c_"},
		{"delete the node", without(0), without(zk.PermDelete), nil, releaseOnce, "no DELETE permission on /locks/x "},
		{"requeue", without(0), without(zk.PermDelete), nil, requeueOnce, "no CREATE or DELETE permission on /locks/x "},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				for _, n := range []struct {
					path string
					acl  []zk.ACL
				}{{"/locks", c.above}, {path, c.own}} {
					if n.acl == nil {
						continue
					}
					if _, err := conn.Create(n.path, nil, 0, n.acl); err != nil {
						t.Fatal(err)
					}
				}
				err := c.take(start(t, s, c.opts...).lock, t.Context())
				wantErr(t, c.name, err, zk.ErrNoAuth)
				wantMention(t, err, c.want, "WithAuth")
			})
		})
	}
}

// Whether there is a node cannot be found out where its queue may not be listed.
func TestALookUpThatIsNotPermittedNamesThePermission(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermRead))
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpCreate && f.Stage == zktest.Reply {
				return zktest.Cut
			}
			return zktest.Pass
		})
		_, err := p.lock.Acquire(t.Context())
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, "no READ permission on /locks/x ")
	})
}

func acquireOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.Acquire(ctx)
	return err
}

func acquireTwice(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	defer n.Release()
	_, err = l.Acquire(ctx)
	return err
}

func holdOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	<-n.Lost()
	return n.Release()
}

func tryOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.TryAcquire(ctx)
	return err
}

func contendersOnce(l *zklock.Lock, ctx context.Context) error {
	_, err := l.Contenders(ctx)
	return err
}

func releaseOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return n.Release()
}

func requeueOnce(l *zklock.Lock, ctx context.Context) error {
	n, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	_, err = n.Requeue(ctx)
	return err
}

// It looks like a lock that somebody else has, and is not.
func TestAProcessThatWaitsBehindItsOwnNodeSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		setup(t, s, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		var log bytes.Buffer
		p := start(t, s, zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		n := p.acquire(t)
		err := n.Release()
		wantErr(t, "Release", err, zk.ErrNoAuth)
		wantMention(t, err, n.Path(), "in the way of this process", "no DELETE permission on /locks/x ")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process", "no DELETE permission on /locks/x ")
		if got := log.String(); !bytes.Contains(log.Bytes(), []byte("in the way of this process")) {
			t.Errorf("logged: %q", got)
		}
	})
}

func TestAProcessThatWaitsForItsOwnNodeToBeDeletedSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpDelete && f.Stage == zktest.Request {
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, n.Path(), "a node of this process that is still to be deleted")
		s.Intercept(nil)
		p.acquire(t).Release()
	})
}
