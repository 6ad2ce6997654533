package link

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A front terminates TLS for the members of a server, in virtual time. One of the members is zk1.
type front struct {
	server *zktest.Server
	ca     *zkservertest.Authority

	mu    sync.Mutex             // guards the fields below
	certs map[string]*tls.Config // the key is host:port; a nil value accepts connections and does not answer
}

func newFront(t *testing.T, s *zktest.Server) *front {
	t.Helper()
	f := &front{server: s, ca: zkservertest.NewAuthority(t), certs: make(map[string]*tls.Config)}
	f.set("zk1:2181", shows(f.ca.Issue("zk1")))
	return f
}

// config returns the configuration of a link that connects through f and trusts its authority.
func (f *front) config() Config {
	c := to(f.server)
	c.Dial, c.TLS = f.dial, &tls.Config{RootCAs: f.ca.Pool}
	return c
}

func (f *front) set(address string, cfg *tls.Config) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.certs[address] = cfg
}

func (f *front) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	cfg := f.certs[address]
	f.mu.Unlock()
	behind, err := f.server.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	client, here := roomyPipe()
	if cfg == nil {
		go func() { // this server reads everything and does not answer
			defer behind.Close()
			io.Copy(io.Discard, here)
		}()
		return client, nil
	}
	secured := tls.Server(here, cfg)
	go forward(behind, secured)
	go forward(secured, behind)
	return client, nil
}

func forward(to, from net.Conn) {
	io.Copy(to, from)
	from.Close()
	to.Close()
}

// roomyPipe is like net.Pipe, with a buffer in each direction, because with TLS both sides may write at the same time.
func roomyPipe() (client, server net.Conn) {
	client, a := net.Pipe()
	b, server := net.Pipe()
	go carry(a, b)
	go carry(b, a)
	return client, server
}

func carry(from, to net.Conn) {
	room := make(chan []byte, 100)
	go func() {
		defer close(room)
		for {
			p := make([]byte, 1<<14)
			n, err := from.Read(p)
			if err != nil {
				return
			}
			room <- p[:n]
		}
	}()
	for p := range room {
		to.Write(p) // fails silently after the connection was closed
	}
	to.Close()
}

// shows returns the configuration of a server that presents a certificate.
func shows(cert zkservertest.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert.Certificate}}
}

func TestEachServerShowsACertificateForItsName(t *testing.T) {
	type row struct {
		asked string // the ServerName of the client
		cert  string // the name in the certificate of zk2
		want  string // the text of the error; "" for success
	}
	each(t, map[string]row{
		"its own":                                    {"", "zk2", ""},
		"another's":                                  {"", "zk1", "certificate is valid for zk1, not zk2"},
		"the one that is asked for":                  {"ensemble", "ensemble", ""},
		"its own, not the one that is asked for":     {"ensemble", "zk2", "certificate is valid for zk2, not ensemble"},
		"the name by which it is dialed, an address": {"", "10.0.0.2", ""},
	}, func(t *testing.T, s *zktest.Server, c row) {
		f := newFront(t, s)
		server := "zk2:2181"
		if net.ParseIP(c.cert) != nil {
			server = c.cert + ":2181"
		}
		s.Member("zk1:2181").Refuse()
		f.set(server, shows(f.ca.Issue(c.cert)))
		ctx := need.Within(t, 10*time.Second)
		config := f.config()
		config.TLS.ServerName = c.asked
		l, err := tryDial(ctx, config, server)
		if err == nil {
			defer shut(l)
		}
		if c.want == "" {
			wantErr(t, "Dial", err, nil)
			return
		}
		wantErr(t, "Dial", err, zk.ErrNoServer)
		wantMention(t, err, c.want, "TLS handshake with "+server, "set ServerName")
	})
}

func TestAServerIsNotVerifiedByTheNameOfTheLastOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newFront(t, s)
		f.set("zk2:2181", shows(f.ca.Issue("zk2")))
		dial(t, f.config(), "zk1:2181", "zk2:2181")
		for range 4 {
			last := member(t, s)
			s.CutAll()
			if now := member(t, s); now == last || now == "" {
				t.Fatalf("connected to %q after %q", now, last)
			}
		}
	})
}

func TestAServerThatHangsInTheTLSHandshakeIsLeftInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newFront(t, s)
		l := dial(t, f.config(), "zk1:2181")
		f.set("zk1:2181", nil)
		s.CutAll()
		time.Sleep(timeout / 6)
		synctest.Wait()
		wantMention(t, l.Err(), "TLS handshake with zk1:2181: no answer")
		f.set("zk1:2181", shows(f.ca.Issue("zk1")))
		time.Sleep(time.Second)
		need.That(t, "not connected again", member(t, s) != "")
	})
}

func TestCloseEndsATLSHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newFront(t, s)
		l := dial(t, f.config(), "zk1:2181")
		f.set("zk1:2181", nil)
		s.CutAll()
		time.Sleep(timeout / 12)
		begun := time.Now()
		shut(l)
		need.AtMost(t, "closed after", time.Since(begun), 10*time.Millisecond)
	})
}

func TestACertificateThatHasExpiredDoesNotConnectAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		f := newFront(t, s)
		f.set("zk1:2181", shows(f.ca.IssueFor(time.Minute, "zk1")))
		l := dial(t, f.config(), "zk1:2181")
		time.Sleep(time.Hour)
		wantErr(t, "while the connection stands", l.Err(), nil)
		s.CutAll()
		time.Sleep(timeout)
		wantErr(t, "Err", l.Err(), zk.ErrNoServer)
		wantMention(t, l.Err(), "TLS handshake with zk1:2181", "certificate has expired")
		f.set("zk1:2181", shows(f.ca.Issue("zk1")))
		time.Sleep(2 * time.Second)
		wantErr(t, "with another certificate", l.Err(), nil)
	})
}

// With TLS 1.3, the server refuses a client certificate when the client has already completed its handshake. The error still reports the
// refusal.
func TestTheRefusalOfAClientCertificateIsTold(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				f := newFront(t, s)
				server := shows(f.ca.Issue("zk1"))
				server.ClientAuth, server.ClientCAs, server.MaxVersion = tls.RequireAndVerifyClientCert, f.ca.Pool, version
				f.set("zk1:2181", server)
				_, err := tryDial(need.Within(t, 5*time.Second), f.config(), "zk1:2181")
				wantErr(t, "Dial", err, zk.ErrNoServer)
				wantMention(t, err, "handshake with zk1:2181", "the server may require a client certificate that it trusts")
			})
		})
	}
}
