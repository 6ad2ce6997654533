package zknode_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
	"github.com/tierlock/tierlock/internal/zknode"
)

// The following tests use the secure port of a real server.

// secureTimeout is long, because Java loads many classes during the first handshake of a server.
const secureTimeout = 12 * time.Second

func dialSecure(t *testing.T, connect string, patience time.Duration, opts ...zknode.Option) (*zknode.Client, error) {
	t.Helper()
	c, err := zknode.Dial(within(t, patience), connect, append([]zknode.Option{zknode.WithSessionTimeout(secureTimeout)}, opts...)...)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// wantNoSession fails the test unless Dial soon returns the expected error. It makes several attempts, because a server on a busy machine
// may not answer at first.
func wantNoSession(t *testing.T, connect string, want []string, opts ...zknode.Option) {
	t.Helper()
	var err error
	for patience := time.Second; patience < time.Minute; patience *= 2 {
		_, err = dialSecure(t, connect, patience, opts...)
		wantErr(t, "Dial", err, context.DeadlineExceeded, zk.ErrNoServer)
		if err == nil || !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return
		}
	}
	wantMention(t, err, want...)
}

func TestRealSecurePortRefusesWhomItShould(t *testing.T) {
	t.Parallel()
	ca, other := zkservertest.NewAuthority(t), zkservertest.NewAuthority(t)
	s := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TLS: ca.TLS("localhost")})
	_, port, err := net.SplitHostPort(zkserver.SecureAddr(s))
	need.OK(t, err)
	secure := "localhost:" + port
	client := ca.Issue("client").Certificate
	own := []tls.Certificate{client}
	need.Get(dialSecure(t, secure, time.Minute, zknode.WithTLS(&tls.Config{RootCAs: ca.Pool, Certificates: own})))(t) // waits for the server
	type row struct {
		connect string
		cfg     *tls.Config
		want    string
	}
	need.Each(t, map[string]row{
		"no client certificate": {secure, &tls.Config{RootCAs: ca.Pool}, "client certificate"},
		"a client certificate of another authority": {
			secure,
			&tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{other.Issue("client").Certificate}}, "client certificate",
		},
		"a server of another authority": {secure, &tls.Config{RootCAs: other.Pool, Certificates: own}, "RootCAs"},
		"a server of another name": {
			zkserver.SecureAddr(s),
			&tls.Config{RootCAs: ca.Pool, Certificates: own}, "name that is in the server's certificate",
		},
		"TLS to the plain port":     {s.Addr(), &tls.Config{RootCAs: ca.Pool, Certificates: own}, "port without TLS"},
		"no TLS to the secure port": {secure, nil, "WithTLS"},
	}, func(t *testing.T, c row) {
		t.Parallel()
		var opts []zknode.Option
		if c.cfg != nil {
			opts = append(opts, zknode.WithTLS(c.cfg))
		}
		wantNoSession(t, c.connect, []string{c.connect, c.want}, opts...)
	})
}

// A client that the ACL does not name gets an error with the missing permission.
func TestRealACLsKeepOthersFromTheLock(t *testing.T) {
	t.Parallel()
	ca := zkservertest.NewAuthority(t)
	s := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TLS: ca.TLS("127.0.0.1")})
	certified := func(name string) zknode.Option {
		return zknode.WithTLS(&tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Issue(name).Certificate}})
	}
	password := func(secret string) zknode.Option { return zknode.WithAuth("digest", []byte("service:"+secret)) }
	mine := zknode.WithACL(zk.AuthACL(zk.PermAll)) // all clients with the same credentials have all permissions
	type row struct {
		server, path string
		owner        []zknode.Option
		others       map[string][]zknode.Option
	}
	need.Each(t, map[string]row{
		"a password": {s.Addr(), "/password", []zknode.Option{mine, password("right")}, map[string][]zknode.Option{
			"none": nil, "another password": {password("wrong")},
		}},
		"a certificate": {zkserver.SecureAddr(s), "/certificate", []zknode.Option{mine, certified("service")}, map[string][]zknode.Option{
			"another certificate": {certified("other")}, "another certificate, and a password": {certified("other"), password("right")},
		}},
	}, func(t *testing.T, c row) {
		owner := need.Get(dialSecure(t, c.server, time.Minute, c.owner...))(t)
		n := need.Get(lockAt(t, owner, c.path).Acquire(t.Context()))(t)
		for name, opts := range c.others {
			t.Run(name, func(t *testing.T) {
				other := need.Get(dialSecure(t, c.server, time.Minute, opts...))(t)
				for what, do := range map[string]func(*zknode.Lock, context.Context) error{
					"CREATE permission on " + c.path: acquireOnce,
					"READ permission on " + c.path:   contendersOnce,
					"permission on " + c.path:        tryOnce,
				} {
					err := do(lockAt(t, other, c.path), t.Context())
					wantErr(t, what, err, zk.ErrNoAuth)
					wantMention(t, err, what, "WithAuth")
				}
				conn := other.Library()
				wantErr(t, "delete the node", conn.Delete(n.Path(), -1), zk.ErrNoAuth)
				wantErr(t, "write to the node", need.ErrOf(conn.Set(n.Path(), nil, -1)), zk.ErrNoAuth)
				wantErr(t, "open the path", need.ErrOf(conn.SetACL(c.path, zk.WorldACL(zk.PermAll), -1)), zk.ErrNoAuth)
				wantErr(t, "delete the path", conn.Delete(c.path, -1), zk.ErrNotEmpty)
			})
		}
		wantErr(t, "Release", n.Release(), nil)
	})
}
