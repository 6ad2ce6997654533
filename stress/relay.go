package main

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// relay is all that connects one worker with the servers, so that its connections can
// be cut while those of others live on.
type relay struct {
	listeners []net.Listener
	flowing   mutexbool.Bool // false while nothing passes either way
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool
	conns    map[net.Conn]struct{}
}

func newRelay(targets []string) (*relay, error) {
	r := &relay{conns: make(map[net.Conn]struct{})}
	r.flowing.Set()
	for _, target := range targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.Close()
			return nil, err
		}
		r.listeners = append(r.listeners, l)
		r.tasks.Go(func() { r.serve(l, target) })
	}
	return r, nil
}

func (r *relay) addrs() []string {
	var addrs []string
	for _, l := range r.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// cut closes all connections, and new ones at once until heal.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = true
	for c := range r.conns {
		_ = c.Close()
	}
}

// mute keeps the connections open and passes nothing on until heal.
func (r *relay) mute() { r.flowing.Clear() }

func (r *relay) heal() {
	r.flowing.Set()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = false
}

func (r *relay) serve(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		r.tasks.Go(func() { r.join(client, target) })
	}
}

// join carries the bytes of one connection until either side ends it.
func (r *relay) join(client net.Conn, target string) {
	defer r.drop(client)
	if !r.admit(client) {
		return
	}
	server, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		return
	}
	defer r.drop(server)
	if !r.admit(server) {
		return
	}
	r.tasks.Go(func() { r.pump(server, client) })
	r.pump(client, server)
}

// pump copies until an error and then closes both ends, so that the other direction
// ends, too.
func (r *relay) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		<-r.flowing.C()
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

func (r *relay) admit(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusing {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// Close ends all connections and leaves no goroutine.
func (r *relay) Close() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	r.cut()
	r.flowing.Set()
	r.tasks.Wait()
	return errors.Join(errs...)
}
