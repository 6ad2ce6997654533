package link

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var nowhere = []string{}

// A nameService resolves host names. Tests change its answers.
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

// blackholes returns a dialer. Connections to the given addresses get no answer at all, not even a refusal.
func blackholes(s *zktest.Server, addresses ...string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(addresses, address) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return s.DialContext(ctx, network, address)
	}
}

// by returns the configuration of a link that knows its servers by their names.
func by(s *zktest.Server, names *nameService) Config {
	c := to(s)
	c.LookUp = names.lookUp
	return c
}

func TestAServerThatMovesIsFoundAgain(t *testing.T) {
	for _, before := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}} { // in the second case, one address is not dialed at first
		bubble(t, func(t *testing.T, s *zktest.Server) {
			names := new(nameService)
			names.set("zk", before...)
			dial(t, by(s, names), "zk:2181")
			names.set("zk", "10.0.0.3")
			s.CutAll()
			need.Equal(t, "connected, without a pause, to", member(t, s), "10.0.0.3:2181")
		})
	}
}

func TestClientsSpreadOverTheAddressesOfAName(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		names := new(nameService)
		names.set("zk", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		dialed := make(map[string]bool)
		for range 30 { // the probability that all clients choose one address is 1 in 10^13
			dial(t, by(s, names), "zk:2181")
			sessions := s.Sessions()
			dialed[sessions[len(sessions)-1].Member] = true
		}
		need.AtLeast(t, "addresses that were dialed", len(dialed), 2)
	})
}

func TestEachAddressOfANameIsTriedWithoutAPause(t *testing.T) {
	type row struct {
		trouble func(*zktest.Server)
		lost    []string // addresses that do not answer at all
		within  time.Duration
	}
	need.Each(t, map[string]row{
		"two refuse": {func(s *zktest.Server) { s.Member("10.0.0.1:2181").Refuse(); s.Member("10.0.0.2:2181").Refuse() }, nil, 0},
		"two hang":   {func(s *zktest.Server) { s.Member("10.0.0.1:2181").Freeze(); s.Member("10.0.0.2:2181").Freeze() }, nil, 2 * timeout / 6},
		"two drop":   {func(*zktest.Server) {}, []string{"10.0.0.1:2181", "10.0.0.2:2181"}, 2 * time.Second},
	}, func(t *testing.T, c row) {
		for range 10 { // the order is random
			bubble(t, func(t *testing.T, s *zktest.Server) {
				c.trouble(s)
				names := new(nameService)
				names.set("zk", "10.0.0.1", "10.0.0.2", "10.0.0.3")
				begun := time.Now()
				config := by(s, names)
				config.Dial = blackholes(s, c.lost...)
				dial(t, config, "zk:2181")
				need.AtMost(t, "connected after", time.Since(begun), c.within)
				need.Equal(t, "connected to", member(t, s), "10.0.0.3:2181")
			})
		}
	})
}

// The library alone would pause for a second before it dials a lone server again. The link avoids that pause.
func TestALoneServerIsDialedAgainWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		dial(t, to(s), addr)
		for range 3 {
			begun := time.Now()
			s.CutAll()
			need.Must(t, "not connected again at once", member(t, s) != "" && time.Since(begun) == 0)
		}
	})
}

func TestServersThatAllRefuseAreTriedOncePerSecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		dials := 0
		config := to(s)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return s.DialContext(ctx, network, address)
		}
		servers := []string{"zk1:2181", "zk2:2181", "zk3:2181"}
		for _, server := range servers {
			s.Member(server).Refuse()
		}
		wantErr(t, "Dial", need.ErrOf(tryDial(need.Within(t, 9500*time.Millisecond), config, servers...)), context.DeadlineExceeded)
		need.Equal(t, "dials, ten of each of three", dials, 30)
	})
}

func TestNamesThatCannotBeLookedUpAnyMoreAreDialedWhereTheyWere(t *testing.T) {
	type row struct {
		trouble func(*nameService)
		within  time.Duration
	}
	each(t, map[string]row{
		"the name is gone":          {func(n *nameService) { n.set("zk") }, 0},
		"the name service is mute":  {(*nameService).hang, time.Second},
		"the name has no addresses": {func(n *nameService) { n.set("zk", nowhere...) }, 0},
	}, func(t *testing.T, s *zktest.Server, c row) {
		names := new(nameService)
		names.set("zk", "10.0.0.1")
		l := dial(t, by(s, names), "zk:2181")
		c.trouble(names)
		s.CutAll()
		time.Sleep(c.within)
		need.Equal(t, fmt.Sprintf("connected after %v to", c.within), member(t, s), "10.0.0.1:2181")
		s.Member("10.0.0.1:2181").Refuse()
		s.CutAll()
		time.Sleep(2 * time.Second)
		wantMention(t, l.Err(), "dial zk:2181, at its last known address", "connection refused")
	})
}

func TestDialFailsSoonIfNoNameCanBeLookedUp(t *testing.T) {
	type row struct {
		mute bool
		took time.Duration
		want string
	}
	each(t, map[string]row{
		"no such host":        {false, 0, "no such host"},
		"a mute name service": {true, 3 * time.Second, "timeout"},
	}, func(t *testing.T, s *zktest.Server, c row) {
		names := &nameService{mute: c.mute}
		begun := time.Now()
		wantMention(t, need.ErrOf(tryDial(t.Context(), by(s, names), "zk1:2181", "zk2:2181")), "lookup zk1: ", "lookup zk2: ", c.want)
		need.Equal(t, "returned after", time.Since(begun), c.took)
	})
}

// If the name service is unavailable when a program starts, the client looks the names up again until it finds the servers.
func TestLazyStartLooksNamesUpUntilTheyAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		names := new(nameService)
		c := by(s, names)
		c.Lazy = true
		l := New(c)
		t.Cleanup(func() { shut(l) })
		need.OK(t, l.Dial(t.Context(), []string{"zk:2181"}))
		l.Spawn(func() { l.Present(l.Context()) })
		need.WantMention(t, l.ErrOnceHeard(t.Context()), "zk: no such host")
		time.Sleep(time.Hour)
		names.set("zk", "10.0.0.1")
		need.Get(l.AwaitSession(t.Context()))(t)
		need.OK(t, l.Err())
	})
}

// The name of a server may be removed while the server is down. One name that resolves is enough.
func TestOneNameIsEnough(t *testing.T) {
	for range 5 { // the order is random
		bubble(t, func(t *testing.T, s *zktest.Server) {
			names := new(nameService)
			names.set("zk2", "10.0.0.2")
			var log bytes.Buffer
			config := by(s, names)
			config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			dial(t, config, "zk1:2181", "zk2:2181", "zk3:2181")
			for _, name := range []string{"lookup zk1", "lookup zk3"} {
				need.Has(t, "logged", log.String(), name)
			}
			names.set("zk3", "10.0.0.3")
			s.Member("10.0.0.2:2181").Refuse()
			s.CutAll()
			time.Sleep(time.Second)
			need.Equal(t, "the server whose name has come, connected to", member(t, s), "10.0.0.3:2181")
		})
	}
}

func TestDialEndsALookUpWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ctx := need.Within(t, time.Second)
		begun := time.Now()
		wantErr(t, "Dial", need.ErrOf(tryDial(ctx, by(s, &nameService{mute: true}), "zk1:2181")), context.DeadlineExceeded)
		need.Equal(t, "returned after", time.Since(begun), time.Second)
	})
}

func TestCloseEndsALookUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		names := new(nameService)
		names.set("zk", "10.0.0.1")
		l := dial(t, by(s, names), "zk:2181")
		names.hang()
		s.CutAll()
		time.Sleep(500 * time.Millisecond)
		begun := time.Now()
		shut(l)
		need.AtMost(t, "closed after", time.Since(begun), 10*time.Millisecond)
	})
}
