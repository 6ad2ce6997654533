// Package relay puts a distance, and now and then a fault, between clients and servers.
package relay

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// Relay is all that connects its clients with the servers, so that their connections can
// be cut while those of others live on, and so that the servers can be far away.
type Relay struct {
	delay     time.Duration // one way
	listeners []net.Listener
	flowing   mutexbool.Bool // false while nothing passes either way
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool
	conns    map[net.Conn]struct{}
}

// New returns a relay to the targets, whose bytes take the delay each way on top of what
// they take anyway.
func New(targets []string, delay time.Duration) (*Relay, error) {
	r := &Relay{delay: delay, conns: make(map[net.Conn]struct{})}
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

// Addrs are where the clients find the targets, in the same order.
func (r *Relay) Addrs() []string {
	var addrs []string
	for _, l := range r.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Cut closes all connections, and new ones at once until Heal.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = true
	for c := range r.conns {
		_ = c.Close()
	}
}

// Mute keeps the connections open and passes nothing on until Heal.
func (r *Relay) Mute() { r.flowing.Clear() }

// Heal undoes Cut and Mute.
func (r *Relay) Heal() {
	r.flowing.Set()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = false
}

func (r *Relay) serve(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		r.tasks.Go(func() { r.join(client, target) })
	}
}

// join carries the bytes of one connection until either side ends it.
func (r *Relay) join(client net.Conn, target string) {
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

// flight is bytes that arrived together, and leave together.
type flight struct {
	due   time.Time
	bytes []byte
}

// maxFlights bounds what is under way in one direction, in case nothing leaves for long.
// It is far more than a delay takes.
const maxFlights = 1 << 12

// pump carries bytes until there are no more and then closes both ends, so that the
// other direction ends, too. What was under way arrives before the end does.
func (r *Relay) pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	alarm, err := newAlarm()
	if err != nil {
		return
	}
	defer alarm.Close()
	flights := make(chan flight, maxFlights)
	r.tasks.Go(func() { r.launch(flights, from) })
	for f := range flights {
		err := alarm.wait(f.due)
		<-r.flowing.C()
		if err == nil {
			_, err = to.Write(f.bytes)
		}
		if err != nil {
			_ = from.Close() // ends the flights
		}
	}
}

// launch takes bytes as they come, however many are under way.
func (r *Relay) launch(flights chan<- flight, from net.Conn) {
	defer close(flights)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 || err != nil { // the end takes as long as everything else
			flights <- flight{time.Now().Add(r.delay), bytes.Clone(buffer[:n])}
		}
		if err != nil {
			return
		}
	}
}

func (r *Relay) admit(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusing {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// Close ends all connections and, when what was under way is due, leaves no goroutine.
func (r *Relay) Close() error {
	var errs []error
	for _, l := range r.listeners {
		errs = append(errs, l.Close())
	}
	r.Cut()
	r.flowing.Set()
	r.tasks.Wait()
	return errors.Join(errs...)
}
