package zklock_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

var nowhere = []string{}

// A nameService says where hosts are, and can be told otherwise.
type nameService struct {
	mu      sync.Mutex // guards the fields below
	records map[string][]string
	mute    bool
}

func (n *nameService) set(host string, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.records == nil {
		n.records = make(map[string][]string)
	}
	n.records[host] = addresses
}

func (n *nameService) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = true
}

func (n *nameService) lookUp(ctx context.Context, host string) ([]string, error) {
	n.mu.Lock()
	mute, addresses := n.mute, n.records[host]
	n.mu.Unlock()
	if mute {
		<-ctx.Done()
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
	}
	if addresses == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return addresses, nil
}

// blackholes are addresses that do not even refuse.
func blackholes(s *zktest.Server, addresses ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(addresses, address) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return s.DialContext(ctx, network, address)
	}
}

// by starts a process that knows its servers by name; names may be nil.
func by(t *testing.T, s *zktest.Server, names *nameService, connect string, opts ...zklock.Option) process {
	t.Helper()
	by := []zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext)}
	if names != nil {
		by = append(by, zklock.WithLookUp(names.lookUp))
	}
	opts = append(by, opts...)
	c, err := zklock.Dial(t.Context(), connect, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	synctest.Wait()
	sessions := s.Sessions()
	return process{c, lockAt(t, c, path), sessions[len(sessions)-1].ID}
}

// member is where the only session is connected, "" if it is not.
func member(t *testing.T, s *zktest.Server) string {
	t.Helper()
	synctest.Wait()
	sessions := s.Sessions()
	if len(sessions) != 1 {
		t.Fatalf("%d sessions, want 1", len(sessions))
	}
	return sessions[0].Member
}

func TestADialerGetsTheNameOfTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		c, err := zklock.Dial(t.Context(), "zk1.test", zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := member(t, s); got != "zk1.test:2181" {
			t.Errorf("dialed %s", got)
		}
	})
}

func TestAServerThatMovesIsFoundAgain(t *testing.T) {
	for _, before := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}} { // of which one is not dialed at first
		bubble(t, func(t *testing.T, s *zktest.Server) {
			names := new(nameService)
			names.set("zk", before...)
			p := by(t, s, names, "zk")
			n := p.acquire(t)
			names.set("zk", "10.0.0.3")
			s.CutAll()
			if got := member(t, s); got != "10.0.0.3:2181" {
				t.Errorf("connected to %q without a pause, want the new address", got)
			}
			if err := n.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClientsSpreadOverTheAddressesOfAName(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		names := new(nameService)
		names.set("zk", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		dialed := make(map[string]bool)
		for range 30 { // all to one of them: once in 10^13 runs
			by(t, s, names, "zk")
			sessions := s.Sessions()
			dialed[sessions[len(sessions)-1].Member] = true
		}
		if len(dialed) == 1 {
			t.Errorf("all dialed %v", dialed)
		}
	})
}

func TestEachAddressOfANameIsTriedWithoutAPause(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*zktest.Server)
		lost    []string // addresses that do not even refuse
		within  time.Duration
	}{
		"two refuse": {func(s *zktest.Server) { s.Member("10.0.0.1:2181").Refuse(); s.Member("10.0.0.2:2181").Refuse() }, nil, 0},
		"two hang":   {func(s *zktest.Server) { s.Member("10.0.0.1:2181").Freeze(); s.Member("10.0.0.2:2181").Freeze() }, nil, 2 * timeout / 6},
		"two drop":   {func(*zktest.Server) {}, []string{"10.0.0.1:2181", "10.0.0.2:2181"}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order is random
				bubble(t, func(t *testing.T, s *zktest.Server) {
					c.trouble(s)
					names := new(nameService)
					names.set("zk", "10.0.0.1", "10.0.0.2", "10.0.0.3")
					begun := time.Now()
					by(t, s, names, "zk", zklock.WithDialContext(blackholes(s, c.lost...)), zklock.WithLookUp(names.lookUp))
					if took := time.Since(begun); took > c.within {
						t.Errorf("connected after %v, want it within %v", took, c.within)
					}
					if got := member(t, s); got != "10.0.0.3:2181" {
						t.Errorf("connected to %s", got)
					}
				})
			}
		})
	}
}

// The library's own order pauses for a second before a server that is alone.
func TestALoneServerIsDialedAgainWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		start(t, s)
		for range 3 {
			begun := time.Now()
			s.CutAll()
			if member(t, s) == "" || time.Since(begun) > 0 {
				t.Fatal("not connected again at once")
			}
		}
	})
}

func TestServersThatAllRefuseAreTriedOncePerSecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		dials := 0
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return s.DialContext(ctx, network, address)
		}
		servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
		for _, server := range servers {
			s.Member(server).Refuse()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		_, err := zklock.Dial(ctx, "zk1,zk2,zk3", zklock.WithDialContext(dial))
		wantErr(t, "Dial", err, context.DeadlineExceeded)
		if dials != 30 {
			t.Errorf("dialed %d times, want each of three ten times", dials)
		}
	})
}

func TestNamesThatCannotBeLookedUpAnyMoreAreDialedWhereTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*nameService)
		within  time.Duration
	}{
		"the name is gone":          {func(n *nameService) { n.set("zk") }, 0},
		"the name service is mute":  {(*nameService).hang, time.Second},
		"the name has no addresses": {func(n *nameService) { n.set("zk", nowhere...) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				names := new(nameService)
				names.set("zk", "10.0.0.1")
				p := by(t, s, names, "zk")
				n := p.acquire(t)
				c.trouble(names)
				s.CutAll()
				time.Sleep(c.within)
				if got := member(t, s); got != "10.0.0.1:2181" {
					t.Errorf("connected to %q after %v", got, c.within)
				}
				if err := n.Release(); err != nil {
					t.Error(err)
				}
				s.Member("10.0.0.1:2181").Refuse()
				s.CutAll()
				time.Sleep(2 * time.Second)
				wantMention(t, p.Err(), "dial zk:2181, at its last known address", "connection refused")
			})
		})
	}
}

func TestDialFailsSoonIfNoNameCanBeLookedUp(t *testing.T) {
	for name, c := range map[string]struct {
		mute bool
		took time.Duration
		want string
	}{
		"no such host":        {false, 0, "no such host"},
		"a mute name service": {true, 3 * time.Second, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				names := &nameService{mute: c.mute}
				begun := time.Now()
				_, err := zklock.Dial(t.Context(), "zk1,zk2", zklock.WithDialContext(s.DialContext), zklock.WithLookUp(names.lookUp))
				wantMention(t, err, "lookup zk1: ", "lookup zk2: ", c.want)
				if took := time.Since(begun); took != c.took {
					t.Errorf("returned after %v, want %v", took, c.took)
				}
			})
		})
	}
}

// As where the name of a server goes while it is down.
func TestOneNameIsEnough(t *testing.T) {
	for range 5 { // the order is random
		bubble(t, func(t *testing.T, s *zktest.Server) {
			names := new(nameService)
			names.set("zk2", "10.0.0.2")
			var log bytes.Buffer
			p := by(t, s, names, "zk1,zk2,zk3", zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
			for _, name := range []string{"lookup zk1", "lookup zk3"} {
				if !bytes.Contains(log.Bytes(), []byte(name)) {
					t.Errorf("logged: %q", log.String())
				}
			}
			n := p.acquire(t)
			names.set("zk3", "10.0.0.3")
			s.Member("10.0.0.2:2181").Refuse()
			s.CutAll()
			time.Sleep(time.Second)
			if got := member(t, s); got != "10.0.0.3:2181" {
				t.Errorf("connected to %q, want the server whose name has come", got)
			}
			if err := n.Release(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseEndsALookUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		names := new(nameService)
		names.set("zk", "10.0.0.1")
		p := by(t, s, names, "zk")
		names.hang()
		s.CutAll()
		time.Sleep(500 * time.Millisecond)
		begun := time.Now()
		p.Close()
		if took := time.Since(begun); took > 10*time.Millisecond {
			t.Errorf("closed after %v", took)
		}
	})
}

func TestNamesAreLookedUpByTheSystem(t *testing.T) {
	s := zktest.Start(t)
	at, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(at.String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := zklock.Dial(ctx, net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
