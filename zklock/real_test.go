package zklock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

// What follows runs on a real server and in real time.

func realServer(t *testing.T) (*zkserver.Server, context.Context) {
	t.Helper()
	t.Parallel()
	s := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	return s, patient(t)
}

// patient returns a context that ends a test that hangs, on any machine.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var shared struct {
	once   sync.Once
	server *zkserver.Server
	err    error
}

// sharedServer is for tests that leave it as it is, each with a path of its own.
func sharedServer(t *testing.T) *zkserver.Server {
	t.Helper()
	t.Parallel()
	shared.once.Do(func() {
		shared.server, shared.err = zkserver.Start(context.Background(), zkserver.Config{NoSync: true, ContainerCheck: 100 * time.Millisecond})
	})
	zkservertest.Check(t, shared.err)
	return shared.server
}

// connect starts a process whose lease no busy machine uses up.
func connect(ctx context.Context, t *testing.T, servers string, opts ...zklock.Option) process {
	t.Helper()
	c, err := zklock.Dial(ctx, servers, append([]zklock.Option{zklock.WithSessionTimeout(30 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return process{Client: c, lock: lockAt(t, c, path)}
}

// enqueue starts to acquire the lock and returns once want contenders are in the queue.
func (p process) enqueue(ctx context.Context, t *testing.T, want int) *request {
	t.Helper()
	r := &request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.node, r.err = p.lock.Acquire(ctx)
	}()
	p.awaitQueue(ctx, t, want)
	return r
}

func (p process) awaitQueue(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	for got := -1; got != want; {
		queue, err := p.lock.Contenders(ctx)
		if err != nil {
			t.Fatalf("waiting for %d contenders, have %d: %v", want, got, err)
		}
		got = len(queue)
	}
}

// What follows runs on a real server.

func TestRealChrootThatIsMissingComesWithTheFirstLockAndGoesWithTheLast(t *testing.T) {
	s := sharedServer(t)
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	p := connect(ctx, t, s.Addr()+"/app/team")
	if queue, err := p.lock.Contenders(ctx); err != nil || len(queue) > 0 {
		t.Errorf("Contenders: got %v, %v", queue, err)
	}
	if exists, _, err := conn.Exists("/app"); err != nil || exists {
		t.Errorf("before the first lock /app is there: %v, %v", exists, err)
	}
	for _, take := range []func(context.Context) (*zklock.Node, error){p.lock.TryAcquire, p.lock.Acquire} {
		n, err := take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		for {
			exists, _, err := conn.Exists("/app")
			if err != nil {
				t.Fatal(err)
			}
			if !exists {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("/app is left")
			}
		}
	}
}

func TestRealChrootThatIsThereStays(t *testing.T) {
	s := sharedServer(t)
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	put(t, conn, 0, "/kept")
	if err := releaseOnce(connect(ctx, t, s.Addr()+"/kept").lock, ctx); err != nil {
		t.Fatal(err)
	}
	for there := true; there && ctx.Err() == nil; { // until the server has looked at containers
		var err error
		if there, _, err = conn.Exists("/kept/locks"); err != nil {
			t.Fatal(err)
		}
	}
	if exists, _, err := conn.Exists("/kept"); err != nil || !exists {
		t.Errorf("/kept is there: %v, %v", exists, err)
	}
}

func TestRealChrootThatMayNotBeMadeIsNamedWithThePermission(t *testing.T) {
	t.Parallel()
	s := zkservertest.Start(t, zkserver.Config{NoSync: true})
	ctx := patient(t)
	conn := zkconn.Start(t, []string{s.Addr(), s.Addr()}, 4*time.Second, nil)
	put(t, conn, 0, "/theirs")
	for _, node := range []string{"/theirs", "/"} {
		if _, err := conn.SetACL(node, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1); err != nil {
			t.Fatal(err)
		}
	}
	for chroot, want := range map[string]string{
		"/app/team":    "create parent /app: no CREATE permission on / ",
		"/theirs":      "create parent /theirs/locks: no CREATE permission on /theirs ",
		"/theirs/team": "create parent /theirs/team: no CREATE permission on /theirs ",
	} {
		p := connect(ctx, t, s.Addr()+chroot)
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		wantMention(t, err, want, "WithAuth")
		_, err = p.lock.TryAcquire(ctx)
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		wantMention(t, err, want, "WithAuth")
	}
}

// What follows runs on the secure port of a real server.

// secureTimeout leaves a server time for its first handshake: Java has a lot to load.
const secureTimeout = 12 * time.Second

// A hosts is a dialer for names that are not in the DNS.
type hosts map[string]string // address by host:port

func (h hosts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	at, ok := h[address]
	if !ok {
		return nil, errors.New("no such host")
	}
	return new(net.Dialer).DialContext(ctx, network, at)
}

func dialSecure(t *testing.T, connect string, patience time.Duration, opts ...zklock.Option) (*zklock.Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := zklock.Dial(ctx, connect, append([]zklock.Option{zklock.WithSessionTimeout(secureTimeout)}, opts...)...)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// wantNoSession fails unless Dial says what is wrong, sooner or later: a machine with a lot to do may have no answer at first.
func wantNoSession(t *testing.T, connect string, want []string, opts ...zklock.Option) {
	t.Helper()
	var err error
	for patience := time.Second; patience < time.Minute; patience *= 2 {
		_, err = dialSecure(t, connect, patience, opts...)
		wantErr(t, "Dial", err, context.DeadlineExceeded)
		wantErr(t, "Dial", err, zk.ErrNoServer)
		if err == nil || !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return
		}
	}
	wantMention(t, err, want...)
}

func TestRealServersAreVerifiedByTheirNamesInTheConnectString(t *testing.T) {
	t.Parallel()
	ca := zkservertest.NewAuthority(t)
	names := hosts{}
	var servers []string
	for _, name := range []string{"zk1.test", "zk2.test"} {
		s := zkservertest.Start(t, zkserver.Config{NoSync: true, TLS: ca.TLS(name)})
		servers = append(servers, name+":2281")
		names[name+":2281"] = zkserver.SecureAddr(s)
	}
	cfg := &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Issue("client").Certificate}}
	for _, server := range servers {
		c, err := dialSecure(t, server, time.Minute, zklock.WithTLS(cfg), zklock.WithDialContext(names.dial))
		if err != nil {
			t.Fatal(err)
		}
		n, err := lockAt(t, c, path).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Release(); err != nil {
			t.Error(err)
		}
	}
	names[servers[0]], names[servers[1]] = names[servers[1]], names[servers[0]]
	wantNoSession(t, strings.Join(servers, ","), []string{"TLS handshake with zk", "use a name that is in the server's certificate"},
		zklock.WithTLS(cfg), zklock.WithDialContext(names.dial))
}

func TestRealHoldOutlivesItsServerBehindTLS(t *testing.T) {
	t.Parallel()
	ca := zkservertest.NewAuthority(t)
	names := []string{"zk1.test", "zk2.test", "zk3.test"}
	var members []zkserver.Config
	for _, name := range names {
		members = append(members, zkserver.Config{NoSync: true, TLS: ca.TLS(name)})
	}
	e, err := zkserver.StartMembers(t.Context(), members...)
	zkservertest.Check(t, err)
	defer func() { _ = e.Stop() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	leader, err := e.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := hosts{} // the followers
	servers := make(map[string]*zkserver.Server)
	for i, name := range names {
		if s := e.Members[i]; s != leader {
			at[name+":2281"], servers[name+":2281"] = zkserver.SecureAddr(s), s
		}
	}
	dialed := make(chan string, 100)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := at.dial(ctx, network, address)
		if err == nil {
			dialed <- address
		}
		return conn, err
	}
	c, err := dialSecure(t, strings.Join(slices.Sorted(maps.Keys(at)), ","), time.Minute, zklock.WithDialContext(dial),
		zklock.WithTLS(&tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Issue("client").Certificate}}))
	if err != nil {
		t.Fatal(err)
	}
	n, err := lockAt(t, c, path).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for len(dialed) > 0 {
		last = <-dialed
	}
	servers[last].Kill()
	for another := last; another == last || c.Err() != nil; {
		select {
		case another = <-dialed:
		case <-n.Lost():
			t.Fatalf("lost: %v", n.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := n.Release(); err != nil {
		t.Error(err)
	}
}

func TestRealSecurePortRefusesWhomItShould(t *testing.T) {
	t.Parallel()
	ca, other := zkservertest.NewAuthority(t), zkservertest.NewAuthority(t)
	s := zkservertest.Start(t, zkserver.Config{NoSync: true, TLS: ca.TLS("localhost")})
	_, port, err := net.SplitHostPort(zkserver.SecureAddr(s))
	if err != nil {
		t.Fatal(err)
	}
	secure := "localhost:" + port
	client := ca.Issue("client").Certificate
	if _, err := dialSecure(t, secure, time.Minute, zklock.WithTLS(&tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{client}})); err != nil {
		t.Fatal(err) // and the server is warm
	}
	for _, c := range []struct {
		name, connect string
		cfg           *tls.Config
		want          string
	}{
		{"no client certificate", secure, &tls.Config{RootCAs: ca.Pool}, "client certificate"},
		{"a client certificate of another authority", secure, &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{other.Issue("client").Certificate}}, "client certificate"},
		{"a server of another authority", secure, &tls.Config{RootCAs: other.Pool, Certificates: []tls.Certificate{client}}, "RootCAs"},
		{"a server of another name", zkserver.SecureAddr(s), &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{client}}, "name that is in the server's certificate"},
		{"TLS to the plain port", s.Addr(), &tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{client}}, "port without TLS"},
		{"no TLS to the secure port", secure, nil, "WithTLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var opts []zklock.Option
			if c.cfg != nil {
				opts = append(opts, zklock.WithTLS(c.cfg))
			}
			wantNoSession(t, c.connect, []string{c.connect, c.want}, opts...)
		})
	}
}

// What an ACL gives to one client it keeps from the others, who are told why.
func TestRealACLsKeepOthersFromTheLock(t *testing.T) {
	t.Parallel()
	ca := zkservertest.NewAuthority(t)
	s := zkservertest.Start(t, zkserver.Config{NoSync: true, TLS: ca.TLS("127.0.0.1")})
	certified := func(name string) zklock.Option {
		return zklock.WithTLS(&tls.Config{RootCAs: ca.Pool, Certificates: []tls.Certificate{ca.Issue(name).Certificate}})
	}
	password := func(secret string) zklock.Option { return zklock.WithAuth("digest", []byte("service:"+secret)) }
	mine := zklock.WithACL(zk.AuthACL(zk.PermAll)) // for whoever is authenticated like this client
	for _, c := range []struct {
		name, server, path string
		owner              []zklock.Option
		others             map[string][]zklock.Option
	}{
		{"a password", s.Addr(), "/password", []zklock.Option{mine, password("right")}, map[string][]zklock.Option{
			"none": nil, "another password": {password("wrong")},
		}},
		{"a certificate", zkserver.SecureAddr(s), "/certificate", []zklock.Option{mine, certified("service")}, map[string][]zklock.Option{
			"another certificate": {certified("other")}, "another certificate, and a password": {certified("other"), password("right")},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner, err := dialSecure(t, c.server, time.Minute, c.owner...)
			if err != nil {
				t.Fatal(err)
			}
			n, err := lockAt(t, owner, c.path).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name, opts := range c.others {
				t.Run(name, func(t *testing.T) {
					other, err := dialSecure(t, c.server, time.Minute, opts...)
					if err != nil {
						t.Fatal(err)
					}
					for what, do := range map[string]func(*zklock.Lock, context.Context) error{
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
					_, err = conn.Set(n.Path(), nil, -1)
					wantErr(t, "write to the node", err, zk.ErrNoAuth)
					_, err = conn.SetACL(c.path, zk.WorldACL(zk.PermAll), -1)
					wantErr(t, "open the path", err, zk.ErrNoAuth)
					wantErr(t, "delete the path", conn.Delete(c.path, -1), zk.ErrNotEmpty)
				})
			}
			if err := n.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}
