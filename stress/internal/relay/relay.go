// Package relay simulates distance, and faults, between clients and servers.
package relay

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// Relay carries all connections between its clients and the servers. It can cut them without affecting those of other clients, and delay
// them as if the servers were far away.
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

// New returns a relay to the targets, which delays all bytes by the given time in each direction.
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

// Addrs returns the addresses at which clients reach the targets, in the same order.
func (r *Relay) Addrs() []string {
	var addrs []string
	for _, l := range r.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Cut closes all connections, and refuses new ones until Heal.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = true
	for c := range r.conns {
		_ = c.Close()
	}
}

// Mute keeps the connections open and forwards nothing until Heal.
func (r *Relay) Mute() {
	r.requests.Clear()
	r.answers.Clear()
}

// MuteAnswers forwards requests and withholds their answers until Answer or Heal. Cut discards the answers.
func (r *Relay) MuteAnswers() { r.answers.Clear() }

// LastRequest forwards one more request, and no other one until Heal. The channel is closed when that request was forwarded.
func (r *Relay) LastRequest() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = make(chan struct{})
	return r.last
}

// Answer forwards answers again.
func (r *Relay) Answer() { r.answers.Set() }

// Heal ends all faults.
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

// join forwards the bytes of one connection until either side ends it.
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

// asked records that a request is about to be forwarded.
func (r *Relay) asked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.requests.Clear()
		close(r.last)
		r.last = nil
	}
}

// flight is a piece of data that arrived at one time, and is forwarded at one time.
type flight struct {
	due   time.Time
	bytes []byte
}

// maxFlights bounds the data under way in one direction, in case nothing is forwarded for long. The bound is far more than a delay needs.
const maxFlights = 1 << 12

// pump forwards bytes until there are no more, and then closes both ends, so that the other direction ends, too. Data under way arrives
// before the end of the connection.
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

// launch reads bytes as they come.
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

// Close ends all connections. Close returns after data under way was due, and leaves no goroutine.
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
