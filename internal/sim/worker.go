package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A worker is a process that jobs run in. A restart makes another one.
type worker struct {
	process
	name      string
	handOff   time.Duration // 0: strict order
	linger    time.Duration
	bridged   bool
	sides     map[string][3]*tier.Mutex // by path and mode
	semaphore *tier.Semaphore           // nil if the plan has none
	end       context.CancelFunc        // of life
	life      context.Context           // ends when the worker begins to close
}

// dial starts a worker. It keeps trying until ctx ends.
func (w *World) dial(ctx context.Context, name string, handOff, linger time.Duration) (*worker, error) {
	p := &worker{name: name, handOff: handOff, linger: linger, sides: make(map[string][3]*tier.Mutex)}
	var connect []zklock.Option
	if p.bridged = w.plan.bridges(name); p.bridged {
		connect = append(connect, zklock.WithKazoo())
	}
	share := []tier.Option{tier.WithStrictOrder(), tier.WithLinger(linger)}
	if handOff > 0 {
		share[0] = tier.WithHandOff(handOff)
	}
	if err := p.start(ctx, way{w.servers(), w.dialerOf(p)}, connect, share); err != nil {
		return nil, err
	}
	for _, path := range w.plan.paths() {
		rw := p.locks.RWMutex(path)
		p.sides[path] = [...]*tier.Mutex{
			second.Exclusive: p.locks.Mutex(path), second.Writing: rw.Writer(), second.Reading: rw.Reader(),
		}
	}
	if w.plan.Permits > 0 {
		p.semaphore = p.locks.Semaphore(semaphorePath, w.plan.Permits)
	}
	p.life, p.end = context.WithCancel(context.Background()) // ends with close, after whatever dialed it
	w.diary.note("%s started: hand-off %v, linger %v, bridged %t", name, handOff, linger, p.bridged)
	return p, nil
}

// side returns what to ask for a lock in a mode.
func (p *worker) side(path string, mode second.Mode) *tier.Mutex { return p.sides[path][mode] }

func (p *worker) close() {
	p.end()
	p.locks.Close()
}

func (p *worker) closing() bool { return p.life.Err() != nil }

func (p *worker) String() string { return p.name }

// dialerOf returns the way of a process to the servers. The client library shuffles its list, beyond control of a seed:
// so it is told nothing but which server comes next.
func (w *World) dialerOf(p *worker) func(ctx context.Context, network, address string) (net.Conn, error) {
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

// sessionTimeout is what every process asks for, and gets.
const sessionTimeout = 6 * time.Second

// A process is one life of a program that uses locks: a connection of its own and a registry on top.
type process struct {
	client *zklock.Client
	locks  *tier.Registry
}

// A way is how a process gets to the servers.
type way struct {
	servers []string
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// start keeps trying to connect until ctx ends.
func (p *process) start(ctx context.Context, by way, connect []zklock.Option, share []tier.Option) error {
	opts := append([]zklock.Option{
		zklock.WithDialContext(by.dial), zklock.WithSessionTimeout(sessionTimeout), zklock.WithLogger(slog.New(slog.DiscardHandler)),
	}, connect...)
	client, err := zklock.Dial(ctx, strings.Join(by.servers, ","), opts...)
	if err != nil {
		return err
	}
	locks := tier.New(second.TierOf(client), share...)
	p.client, p.locks = client, locks
	return nil
}

// reaping returns the number of nodes that are still to be deleted in the background.
func (p *process) reaping() int {
	return second.TierOf(p.client).(interface{ Reaping() int }).Reaping()
}
