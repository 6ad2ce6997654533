package main

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// relay is all that connects one worker with the servers, so that its connections can
// be cut while those of others live on, and so that the servers can be far away.
type relay struct {
	delay     time.Duration // one way
	listeners []net.Listener
	flowing   mutexbool.Bool // false while nothing passes either way
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool
	conns    map[net.Conn]struct{}
}

func newRelay(targets []string, delay time.Duration) (*relay, error) {
	r := &relay{delay: delay, conns: make(map[net.Conn]struct{})}
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
func (r *relay) pump(to, from net.Conn) {
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
func (r *relay) launch(flights chan<- flight, from net.Conn) {
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

// Close ends all connections and, when what was under way is due, leaves no goroutine.
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
