// Package relay simulates a distance between clients and servers, and faults of the network between them.
package relay

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// Relay carries all connections between its clients and the servers. It can cut these connections, while connections of other clients
// continue. It can also delay the data, as if the servers were far away.
type Relay struct {
	delay     time.Duration // in each direction
	listeners []net.Listener
	requests  mutexbool.Bool // false while nothing is forwarded to the servers
	answers   mutexbool.Bool // false while nothing is forwarded to the clients
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	refusing bool
	conns    map[net.Conn]struct{}
	last     chan struct{} // set by LastRequest, and closed when the last request is forwarded; otherwise nil
}

// New returns a relay to the targets. The relay delays all data by the given time in each direction.
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

// Addrs returns the addresses at which clients reach the targets through the relay, in the order of the targets.
func (r *Relay) Addrs() []string {
	var addrs []string
	for _, l := range r.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Cut closes all connections, and refuses new ones until Heal is called.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = true
	for c := range r.conns {
		_ = c.Close()
	}
}

// Mute keeps the connections open, but forwards nothing until Heal is called.
func (r *Relay) Mute() {
	r.requests.Clear()
	r.answers.Clear()
}

// MuteAnswers forwards requests, but keeps the answers back until Answer or Heal is called. If Cut is called before, the answers are
// lost.
func (r *Relay) MuteAnswers() { r.answers.Clear() }

// LastRequest lets one more request pass. After that no request passes until Heal is called. The channel is closed when the last request
// was forwarded.
func (r *Relay) LastRequest() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = make(chan struct{})
	return r.last
}

// Answer forwards answers again. It first forwards the answers that were kept back.
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

// The method join forwards the data of one connection, in both directions, until either side ends the connection.
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

// The relay calls this method before it forwards a request. After the last request that may pass, this method stops all later ones.
func (r *Relay) asked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.requests.Clear()
		close(r.last)
		r.last = nil
	}
}

// flight is a piece of data. It has arrived as a whole and is forwarded as a whole.
type flight struct {
	due   time.Time
	bytes []byte
}

// maxFlights limits the data that is under way in one direction, in case nothing is forwarded for long. A delay needs far less.
const maxFlights = 1 << 12

// The method pump forwards data until there is no more. It then closes both connections, so that the other direction ends, too. Data
// that is under way arrives before the end of the connection.
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
			_ = from.Close() // so that launch ends
		}
	}
}

// The method launch reads data as soon as it arrives, and says when each piece is due.
func (r *Relay) launch(flights chan<- flight, from net.Conn) {
	defer close(flights)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 || err != nil { // the end of the connection is delayed as long as data
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

// Close ends all connections. It returns when the data under way was due and all goroutines have ended.
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
