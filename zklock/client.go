package zklock

import (
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A Client is the connection of this process to ZooKeeper: the session, its lease, and
// the reaper of what is left over. Use one per process and ensemble; it is safe for
// concurrent use.
type Client struct {
	options     options
	chroot      string      // which all paths are below, "" for none
	description description // what lock nodes say of this process
	link        *link.Link

	parents    parents
	reaper     *reaper.Reaper[remains]
	stragglers stragglers
	renewals   renewals

	closing sync.Once
}

func newClient(o options) *Client {
	c := &Client{
		options:     o,
		description: newDescription(o.label),
		link: link.New(link.Config{
			SessionTimeout: o.sessionTimeout, Margin: o.margin,
			Dial: o.dial, LookUp: o.lookUp, TLS: o.tls,
			Logger: o.logger,
		}),
		stragglers: stragglers{last: make(map[string]*attempt)},
		renewals:   renewals{underWay: make(map[string]*renewal), failed: make(map[string]int32)},
	}
	c.reaper = newReaper(c)
	return c
}

// Close ends the session: every lock of the client is lost, its nodes vanish from the
// server, and whoever waits gets [ErrClosed]. While the server cannot be reached the
// nodes stay until the session times out there. Close returns within a few seconds and
// leaves no goroutine; for a client made by [Attach], see there. It may be called more than
// once and returns nil.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.link.End()
		link.WaitFor(&c.parents.building, time.Second)
		c.link.Close()
	})
	return nil
}

// LeaseMargin returns for how long, from the end of its lease on, the servers keep a lock of this
// client from others; see [WithLeaseMargin]. It depends on the session that was negotiated.
func (c *Client) LeaseMargin() time.Duration {
	if s := c.link.Session(); s != nil {
		return c.link.Margin(s.Negotiated())
	}
	return c.link.Margin(c.options.sessionTimeout)
}

// Done returns a channel that is closed when the client is closed. A client made by [Attach]
// is closed when its connection is, as soon as somebody waits for a lock or holds one.
func (c *Client) Done() <-chan struct{} { return c.link.Context().Done() }

// Err returns nil while the client is connected, and otherwise why it is not:
// [ErrClosed], or an error that wraps [zk.ErrNoServer] and the last failure to connect.
// Locks that are held at that time are suspended, not lost, for as long as their lease
// runs.
func (c *Client) Err() error { return c.link.Err() }
