package zktest_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkconn"
)

// patience bounds every wait for a server that is a process of its own.
const patience = 20 * time.Second

// A client is a zk.Conn whose connection can be cut, and whose watch events are kept in order.
type client struct {
	t      *testing.T
	on     target
	conn   *zk.Conn
	closed <-chan zk.Event

	mu          sync.Mutex // guards the fields below
	nc          net.Conn
	down        bool // dialing fails
	events      []zk.Event
	sessions    int // times a session was granted
	setsWatches int // setWatches requests written
}

func newClient(t *testing.T, on target, timeout time.Duration) *client {
	t.Helper()
	c := &client{t: t, on: on}
	conn, events, err := zk.Connect([]string{on.addr, on.addr}, timeout, zk.WithDialer(c.dial),
		zk.WithEventCallback(c.event), zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	c.conn, c.closed = conn, events
	c.await("a session", func() bool { return c.sessions == 1 })
	return c
}

func (c *client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, net.ErrClosed
	}
	nc, err := c.on.dial(network, address, timeout)
	c.nc = nc
	return &tap{nc, c}, err
}

// A tap counts the requests that restore watches.
type tap struct {
	net.Conn
	client *client
}

func (t *tap) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	if d := (wire.Decoder{Rest: wire.Body(b)}); d.RequestHeader().Op == wire.OpSetWatches {
		t.client.mu.Lock()
		defer t.client.mu.Unlock()
		t.client.setsWatches++
	}
	return n, err
}

func (c *client) event(ev zk.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		c.sessions++
	case ev.Type > 0:
		c.events = append(c.events, ev)
	}
}

func (c *client) takeEvents() []zk.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

// await polls condition, which is called with mu held.
func (c *client) await(what string, condition func() bool) {
	c.t.Helper()
	waitFor(c.t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return condition()
	})
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("no %s within %v", what, patience)
		case <-tick.C:
		}
	}
}

// cut ends the connection and keeps the client from reconnecting.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	c.nc.Close()
}

// reconnect ends a cut. It returns when the client, which must have watches, has asked for them again: before that
// a reply would race with the request being built (a data race of the client's, on its lastZxid).
func (c *client) reconnect() {
	c.mu.Lock()
	sets := c.setsWatches
	c.down = false
	c.mu.Unlock()
	c.await("watches", func() bool { return c.setsWatches > sets })
}

func (c *client) close() {
	c.conn.Close()
	for range c.closed {
	}
}

var modes = map[string]int32{
	"e": zk.FlagEphemeral, "s": zk.FlagSequence, "es": zk.FlagEphemeral | zk.FlagSequence, "c": zk.FlagContainer,
}

// parseOp understands "create path data [mode] [acl]", "delete path version", "set path data version" and
// "check path version".
func parseOp(verb string, args []string) any {
	switch verb {
	case "create":
		op := &zk.CreateRequest{Path: args[0], Data: []byte(args[1]), Acl: zk.WorldACL(zk.PermAll)}
		for _, arg := range args[2:] {
			if acl, ok := strings.CutPrefix(arg, "acl="); ok {
				op.Acl = parseACL(acl)
			} else {
				op.Flags = modes[arg]
			}
		}
		return op
	case "delete":
		return &zk.DeleteRequest{Path: args[0], Version: parseInt(args[1])}
	case "set":
		return &zk.SetDataRequest{Path: args[0], Data: []byte(args[1]), Version: parseInt(args[2])}
	case "check":
		return &zk.CheckVersionRequest{Path: args[0], Version: parseInt(args[1])}
	}
	panic("script: no operation " + verb)
}

// parseACL understands entries "scheme/id/perms" joined by "+"; perms are some of "rwcda", and the id of the scheme
// "user" is a user whose password is "secret". "none" is the empty ACL.
func parseACL(text string) []zk.ACL {
	list := []zk.ACL{}
	if text == "none" {
		return list
	}
	for entry := range strings.SplitSeq(text, "+") {
		part := strings.Split(entry, "/")
		var perms int32
		for i, letter := range "rwcda" {
			if slices.Contains([]rune(part[2]), letter) {
				perms |= 1 << i
			}
		}
		if part[0] == "user" {
			list = append(list, zk.DigestACL(perms, part[1], "secret")...)
		} else {
			list = append(list, zk.ACL{Perms: perms, Scheme: part[0], ID: part[1]})
		}
	}
	return list
}
