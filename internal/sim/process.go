package sim

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A process is one life of a program that uses locks: a connection of its own and a registry on top. A restart makes
// another one.
type process struct {
	name    string
	handOff time.Duration
	linger  time.Duration
	bridged bool

	client *zklock.Client
	locks  *tier.Registry
	mutex  map[string]*tier.Mutex // by path
	end    context.CancelFunc     // of life
	life   context.Context        // ends when the process begins to close
}

// Reaping returns the number of nodes that a client has still to delete in the background.
func Reaping(c *zklock.Client) int { return c.Tier().(interface{ Reaping() int }).Reaping() }

// dial starts a process. It keeps trying until ctx ends.
func (w *World) dial(ctx context.Context, name string, handOff, linger time.Duration) (*process, error) {
	p := &process{name: name, handOff: handOff, linger: linger, mutex: make(map[string]*tier.Mutex)}
	connect := []zklock.Option{zklock.WithDialContext(w.dialerOf(p)), zklock.WithSessionTimeout(sessionTimeout)}
	if p.bridged = w.plan.bridges(name); p.bridged {
		connect = append(connect, zklock.WithKazoo())
	}
	var err error
	p.client, err = zklock.Dial(ctx, strings.Join(w.servers(), ","), connect...)
	if err != nil {
		return nil, err
	}
	if p.locks, err = tier.New(p.client.Tier(), tier.WithHandOff(handOff), tier.WithLinger(linger)); err != nil {
		panic(err) // the options are ours
	}
	for _, path := range w.plan.paths() {
		p.mutex[path] = p.locks.Mutex(path)
	}
	p.life, p.end = context.WithCancel(context.Background()) // ends with close, after whatever dialed it
	w.diary.note("%s started: hand-off %v, linger %v, bridged %t", name, handOff, linger, p.bridged)
	return p, nil
}

func (p *process) close() {
	p.end()
	p.locks.Close()
}

func (p *process) closing() bool { return p.life.Err() != nil }

func (p *process) String() string { return p.name }

// dialerOf returns the way of a process to the servers. The client library shuffles its list, beyond control of a seed:
// so it is told nothing but which server comes next.
func (w *World) dialerOf(p *process) func(ctx context.Context, network, address string) (net.Conn, error) {
	var dials atomic.Uint64
	first := mix(w.plan.Seed, uint64(len(p.name)), uint64(p.name[len(p.name)-1]))
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		next := (first + dials.Add(1)) % uint64(w.plan.Members)
		conn, err := w.server.DialContext(ctx, network, memberAddr(int(next)))
		if err != nil {
			return nil, err
		}
		return &tap{Conn: conn, learn: func(session int64) { w.book.joined(session, p) }}, nil
	}
}

// A tap learns the session of a connection from the reply to the handshake, before the client does: that is how
// frames, which name a session, are put down to a process.
type tap struct {
	net.Conn
	learn func(session int64)

	// Used by one goroutine at a time: the library shakes hands before it starts its reader.
	head []byte // of what the server has sent
	told bool
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if !t.told {
		t.head = append(t.head, p[:n]...)
		d := wire.Decoder{Rest: wire.Body(t.head)}
		if id := d.ConnectReply().Session; !d.Bad { // all of it is there
			t.head, t.told = nil, true
			if id != 0 {
				t.learn(id)
			}
		}
	}
	return n, err
}

func (w *World) servers() []string {
	var list []string
	for i := range w.plan.Members {
		list = append(list, memberAddr(i))
	}
	return list
}

func memberAddr(i int) string { return fmt.Sprintf("127.0.0.%d:2181", i+1) }
