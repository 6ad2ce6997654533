package etcdserver

import (
	"context"
	"net"
	"sync"
)

// network carries what members say to one another, unless the way is cut.
type network struct {
	ctx     context.Context
	end     context.CancelFunc
	wires   []*wire
	workers sync.WaitGroup
}

// way is from the member that dials to the one it reaches, which count from 1.
type way struct{ from, to int }

func newNetwork() *network {
	n := &network{}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// join carries connections to the socket from on to the socket to.
func (n *network) join(way way, from, to string) error {
	listener, err := net.Listen("unix", from)
	if err != nil {
		return err
	}
	w := &wire{network: n, way: way, to: to, whole: make(chan struct{})}
	w.set(true)
	n.wires = append(n.wires, w)
	context.AfterFunc(n.ctx, func() { listener.Close() })
	n.workers.Go(func() { w.serve(listener) })
	return nil
}

func (n *network) isolate(id int) {
	for _, w := range n.wires {
		if w.way.from == id || w.way.to == id {
			w.set(false)
		}
	}
}

func (n *network) heal() {
	for _, w := range n.wires {
		w.set(true)
	}
}

// Close ends all connections and returns when nothing of the network is left.
func (n *network) Close() error {
	n.end()
	n.workers.Wait()
	return nil
}

// wire carries one way's connections, each in both directions.
type wire struct {
	network *network
	way     way
	to      string
	mu      sync.Mutex
	whole   chan struct{} // closed while the wire is whole
}

func (w *wire) set(whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.whole:
		if !whole {
			w.whole = make(chan struct{})
		}
	default:
		if whole {
			close(w.whole)
		}
	}
}

// passes waits while the wire is cut. It is false at the network's end.
func (w *wire) passes() bool {
	w.mu.Lock()
	whole := w.whole
	w.mu.Unlock()
	select {
	case <-whole:
		return true
	case <-w.network.ctx.Done():
		return false
	}
}

func (w *wire) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		w.network.workers.Go(func() { w.carry(conn) })
	}
}

func (w *wire) carry(near net.Conn) {
	defer near.Close()
	if !w.passes() {
		return
	}
	far, err := net.Dial("unix", w.to)
	if err != nil {
		return
	}
	hangUp := func() { near.Close(); far.Close() }
	defer hangUp()
	stop := context.AfterFunc(w.network.ctx, hangUp)
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { defer hangUp(); w.pass(near, far) })
	both.Go(func() { defer hangUp(); w.pass(far, near) })
	both.Wait()
}

// pass hands on what comes, the end included. What comes while the wire is cut waits, as
// it would for a kernel to send it again.
func (w *wire) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !w.passes() {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
