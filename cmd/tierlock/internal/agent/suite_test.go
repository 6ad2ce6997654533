package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/agentstore"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// A host is an agent in memory. In a bubble of testing/synctest its time is virtual.
type host struct {
	agent *Agent
	locks *tier.Registry
	conns chan net.Conn
	ended chan struct{}
	uid   atomic.Int64 // the user of the next connections
}

const lease = 3 * time.Second // of the holds

var hosts atomic.Int64

// newHost starts an agent whose session in the store lasts for three leases.
func newHost(tb testing.TB, server *memlock.Server, opts []tier.RegistryOption, change ...func(*Config)) *host {
	tb.Helper()
	label := fmt.Sprint("agent ", hosts.Add(1))
	locks := need.Get(server.Connect(append(opts, tier.WithLeaseTTL(3*lease), tier.WithLabel(label))...))(tb)
	return serveLocks(tb, locks, label, change...)
}

// serveLocks starts an agent for the locks of a registry.
func serveLocks(tb testing.TB, locks *tier.Registry, label string, change ...func(*Config)) *host {
	h := &host{locks: locks, conns: make(chan net.Conn), ended: make(chan struct{})}
	h.uid.Store(int64(os.Getuid()))
	config := Config{Label: label, Lease: lease, Clients: 1000, Check: checkPath, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&config)
	}
	h.agent = New(h.locks, config)
	served := make(chan error, 1)
	go func() { served <- h.agent.server.Serve(h) }()
	tb.Cleanup(sync.OnceFunc(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		h.agent.Shutdown(now)
		need.WantErr(tb, "Serve", <-served, http.ErrServerClosed)
	}))
	return h
}

func checkPath(path string) error {
	if path == "/forbidden" {
		return errors.New("no such path here")
	}
	return nil
}

// Accept, Close and Addr make the host a net.Listener.
func (h *host) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return &peer{Conn: conn, pid: os.Getpid(), uid: int(h.uid.Load()), gid: os.Getgid()}, nil
	case <-h.ended:
		return nil, net.ErrClosed
	}
}

func (h *host) Close() error {
	select {
	case <-h.ended:
	default:
		close(h.ended)
	}
	return nil
}

func (h *host) Addr() net.Addr { return &net.UnixAddr{Name: "host", Net: "unix"} }

func (h *host) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case h.conns <- far:
		return near, nil
	case <-h.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A process is a Go program on the host. Its network can be cut.
type process struct {
	*queue.Tier
	host *host

	mu    sync.Mutex
	whole chan struct{} // closed while the network is whole
	conns []*conn
}

type conn struct {
	net.Conn
	of      *process
	once    sync.Once
	closed  chan struct{}
	streams atomic.Bool                   // the newest request is for a hold
	held    atomic.Pointer[chan struct{}] // if it is set, Read waits until the channel is closed
}

func (c *conn) pass() {
	c.of.mu.Lock()
	whole := c.of.whole
	c.of.mu.Unlock()
	select {
	case <-whole:
	case <-c.closed:
	}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if held := c.held.Load(); held != nil {
		<-*held
	}
	c.pass()
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.pass()
	c.streams.Store(bytes.HasPrefix(b, []byte("POST /v1/hold")))
	return c.Conn.Write(b)
}

func (h *host) process(label string) *process {
	p := &process{host: h, whole: make(chan struct{})}
	close(p.whole)
	o := second.Defaults
	o.Label, o.Logger = label, slog.New(slog.DiscardHandler)
	p.Tier = agentstore.Open("host", func(ctx context.Context) (net.Conn, error) {
		one, err := h.dial(ctx)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: one, of: p, closed: make(chan struct{})}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns = append(p.conns, c)
		return c, nil
	}, o)
	return p
}

// holdBack makes the process read nothing from the streams of the holds for which it waits now, as if the goroutines that read them were
// slow.
func (p *process) holdBack() (read func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(chan struct{})
	for _, c := range p.conns {
		if c.streams.Load() {
			c.held.Store(&held)
		}
	}
	return sync.OnceFunc(func() { close(held) })
}

func (p *process) cut() (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := make(chan struct{})
	p.whole = whole
	return sync.OnceFunc(func() { close(whole) })
}

// inBubble runs a test of the suite in virtual time, with a new server. Each process is on a host of its own, and no host hands a lock off
// locally. A grant of a process is then one of the store, with a token of its own, as the suite expects.
func inBubble(t *testing.T, test func(*testing.T, tiertest.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		outside := need.Get(server.Connect())(t)
		defer outside.Close()
		var hosts []*host
		left := func(at place, inStore []tier.Contender, err error) int {
			need.OK(t, err)
			clients := 0
			for _, h := range hosts {
				clients += h.left(at)
			}
			return max(clients, len(inStore))
		}
		test(t, tiertest.Harness{
			Lease: lease, Virtual: true, Unpromised: unpromised,
			Dial: func(tb testing.TB, _ time.Duration) *tiertest.Process {
				h := newHost(tb, server, []tier.RegistryOption{tier.WithStrictOrder()})
				hosts = append(hosts, h)
				p := h.process(fmt.Sprint("process ", len(hosts)))
				need.OK(tb, p.Ready(tb.Context()))
				return &tiertest.Process{
					Tier: p.Tier, Cut: p.cut,
					Blind: func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
					Sleep: func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
				}
			},
			Left: func(path string) int {
				all, err := outside.Mutex(path).Contenders(context.Background())
				return left(place{path, false}, all, err)
			},
			LeftPermits: func(path string) int {
				all, err := outside.Semaphore(path, 1).Contenders(context.Background())
				return left(place{path, true}, all, err)
			},
		})
	})
}

// The agent keeps these promises in another way, or not at all.
var unpromised = map[string]string{
	"share":              sharesAtOnce,
	"share-ends":         sharesAtOnce,
	"share-contended":    sharesAtOnce,
	"no-loss":            sharesAtOnce,
	"standing":           tellsNoPlace,
	"permits-standing":   tellsNoPlace,
	"permits-part":       together,
	"permits-demand":     together,
	"permits-order":      together,
	"permits-bounds":     together,
	"permits-contenders": together,
	"break-permits":      together,
	"permits-more":       tellsNoNumber,
	"permits-number":     tellsNoNumber,
	"permits-renumber":   tellsNoNumber,
	"permits-set":        tellsNoNumber,
	"revoke-readers":     "another host is one contender, however many of its clients wait",
}

const (
	sharesAtOnce  = "the agent makes a writer a reader at once; other hosts may have to wait until no other contender is ahead"
	tellsNoPlace  = "a client that waits does not learn which contender is ahead"
	together      = "the permits of one acquisition return to the agent together, and a request cannot be reduced"
	tellsNoNumber = "the agent uses the number of permits in the store, and does not tell it to clients"
)

// A Go program on a host with an agent gets the promises of the suite.
func TestTier(t *testing.T) { tiertest.Run(t, inBubble) }

// left returns how many clients hold or wait at a place.
func (h *host) left(at place) int { return len(h.agent.clients(at)) }
