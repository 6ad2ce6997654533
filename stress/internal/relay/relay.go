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
	requests  mutexbool.Bool // false while nothing passes to the servers
	answers   mutexbool.Bool // false while nothing passes to the clients
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool
	conns    map[net.Conn]struct{}
	last     chan struct{} // closed by the request after which no other passes; nil if none is to be the last
}

// New returns a relay to the targets, whose bytes take the delay each way on top of what
// they take anyway.
func New(targets []string, delay time.Duration) (*Relay, error) {
	r := &Relay{delay: delay, conns: make(map[net.Conn]struct{})}
	r.requests.Set()
	r.answers.Set()
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
func (r *Relay) Mute() {
	r.requests.Clear()
	r.answers.Clear()
}

// MuteAnswers passes requests on and keeps their answers until Answer or Heal. Cut loses them.
func (r *Relay) MuteAnswers() { r.answers.Clear() }

// LastRequest passes one more request on, and no other one until Heal. The channel is closed when that request has passed.
func (r *Relay) LastRequest() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = make(chan struct{})
	return r.last
}

// Answer passes answers on again.
func (r *Relay) Answer() { r.answers.Set() }

// Heal undoes all of them.
func (r *Relay) Heal() {
	r.mu.Lock()
	r.refusing, r.last = false, nil
	r.mu.Unlock()
	r.requests.Set()
	r.answers.Set()
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
	r.tasks.Go(func() { r.pump(server, client, &r.requests, r.asked) })
	r.pump(client, server, &r.answers, func() {})
}

// asked notes that a request is about to pass.
func (r *Relay) asked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.requests.Clear()
		close(r.last)
		r.last = nil
	}
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
func (r *Relay) pump(to, from net.Conn, flowing *mutexbool.Bool, passes func()) {
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
		<-flowing.C()
		if err == nil && len(f.bytes) > 0 {
			passes()
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
	r.requests.Set()
	r.answers.Set()
	r.tasks.Wait()
	return errors.Join(errs...)
}
