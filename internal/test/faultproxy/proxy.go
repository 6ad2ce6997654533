// Package faultproxy is a proxy between clients and a real ZooKeeper server. It reads the frames of both sides. A test can forward or cut
// each frame, as with [zktest.Server.Intercept], and gets the same frames. The package is for tests.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/tierlock/tierlock/zklock/zktest"
)

// A Proxy listens on an address, and forwards connections to a server. All methods may be called concurrently.
type Proxy struct {
	server   string
	listener net.Listener
	ctx      context.Context // context for dialing the server; ends at Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // counts every goroutine of the proxy

	mu           sync.Mutex // guards the fields below, and fields with a comment that says so; never held while waiting
	conns        map[*conn]struct{}
	closed       bool
	refuses      bool
	muted        map[zktest.Direction]chan struct{} // for each muted direction: a channel that Unmute closes
	hook         func(*zktest.Frame) zktest.Action
	nth          map[string]int
	nthOfSession map[opCount]int
}

// Start returns a proxy on a loopback port of its own. The server need not be running. Until it is, the proxy closes new connections. The
// proxy lasts until Close.
func Start(server string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{
		server:       server,
		listener:     listener,
		conns:        make(map[*conn]struct{}),
		muted:        make(map[zktest.Direction]chan struct{}),
		nth:          make(map[string]int),
		nthOfSession: make(map[opCount]int),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background()) // ends with Close
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the host:port for clients, which is also the Member of frames.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes every connection and returns when all goroutines of the proxy have ended. A second Close does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.mu.Unlock()
	p.cancel()
	p.listener.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuses {
		client.Close()
		return
	}
	c := &conn{proxy: p, client: client, done: make(chan struct{})}
	p.conns[c] = struct{}{}
	p.wg.Go(c.serve)
}

// Cut closes every connection, on both sides. The sessions stay.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for c := range p.conns {
		c.cutLocked()
	}
}

// Refuse makes the proxy close new connections at once. Existing connections stay; see [Proxy.Cut].
func (p *Proxy) Refuse() { p.setRefuses(true) }

// Accept makes the proxy accept new connections again after Refuse.
func (p *Proxy) Accept() { p.setRefuses(false) }

func (p *Proxy) setRefuses(refuses bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuses
}

// Mute blocks one direction, as a network partition does. Until Unmute, nothing gets through on existing or new connections. After that,
// connections that still exist receive the data that was sent in the meantime.
func (p *Proxy) Mute(dir zktest.Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.muted[dir] == nil {
		p.muted[dir] = make(chan struct{})
	}
}

// Unmute lets data through again after Mute.
func (p *Proxy) Unmute(dir zktest.Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gate := p.muted[dir]; gate != nil {
		close(gate)
		delete(p.muted, dir)
	}
}
