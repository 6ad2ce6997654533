package child

import (
	"context"
	"net"
	"sync"

	"github.com/tierlock/tierlock/mutexbool"
)

// Network carries the traffic between the members of an ensemble, and can block it. Members are numbered from 1.
type Network struct {
	ctx     context.Context
	end     context.CancelFunc
	wires   []*wire
	workers sync.WaitGroup
}

// Way is the direction from the member that dials to the member that accepts.
type Way struct{ From, To int }

// NewNetwork returns a network without any ways. It lasts until Close.
func NewNetwork() *Network {
	n := &Network{}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// Join forwards connections from the listener to the address. From now on, the network owns the listener.
func (n *Network) Join(way Way, from net.Listener, to net.Addr) {
	w := &wire{network: n, way: way, to: to}
	w.whole.Set()
	n.wires = append(n.wires, w)
	context.AfterFunc(n.ctx, func() { from.Close() })
	n.workers.Go(func() { w.serve(from) })
}

// Isolate blocks all ways from and to a member, until Heal. Connections stay open but carry nothing, and new connections get no answer.
func (n *Network) Isolate(id int) {
	for _, w := range n.wires {
		if w.way.From == id || w.way.To == id {
			w.whole.Clear()
		}
	}
}

// Heal unblocks all ways. Data that was sent in the meantime arrives, unless its connection was given up.
func (n *Network) Heal() {
	for _, w := range n.wires {
		w.whole.Set()
	}
}

// Close ends all connections and leaves no goroutine.
func (n *Network) Close() {
	n.end()
	n.workers.Wait()
}

// A wire carries the connections of one way. Each connection carries data in both directions.
type wire struct {
	network *Network
	way     Way
	to      net.Addr
	whole   mutexbool.Bool
}

// The method passes waits while the wire is blocked. It returns false at the end of the network.
func (w *wire) passes() bool { return w.whole.Wait(w.network.ctx) == nil }

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
	far, err := net.Dial(w.to.Network(), w.to.String())
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

// The method pass forwards data, including the end of the stream. While the wire is blocked, it keeps the data, like a kernel that sends
// data again until it arrives.
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
