package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
)

// Dial connects to the ensemble of connect, "host:port,host:port/path", and waits for a
// session. Ports may be left out; the default is 2181, also with TLS. Dial keeps trying until ctx
// is done; the error then holds the cause of ctx and the last failure to connect. A bad connect
// string or option fails at once, and so does a list of names of which none can be looked up,
// after 3 s at most. If some can, the others are logged.
//
// If there is a path, all others are below it, those of locks and those of guarded writes. It need
// not exist: it comes with the first lock, like the parents of a lock, and goes when it is empty;
// one that somebody else has created stays. Where it may not be created, the first lock gets an
// error that wraps [zk.ErrNoAuth] and names the permission. So nobody notices a path that is misspelt,
// but its locks exclude nobody who writes it otherwise.
//
// The client reconnects by itself and opens a new session when one has expired. Names are looked up
// again whenever it connects, and all the addresses of a name are tried; if that fails or takes longer
// than a second, those are tried that were found before.
//
// On any error nothing is left behind, with two exceptions when ctx ends while nobody
// answers: the look-up of a name may go on for its 3 s, and a server that has fallen
// silent after the handshake is waited for in the background, for a second.
func Dial(ctx context.Context, connect string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	servers, chroot, err := parseConnect(connect)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	c := newClient(o)
	c.chroot = chroot
	if err := c.dial(ctx, servers); err != nil {
		return nil, fmt.Errorf("zklock: dial %s: %w", connect, err)
	}
	return c, nil
}

// dial connects the client to one of the servers. On an error nothing is left.
func (c *Client) dial(ctx context.Context, servers []string) error {
	if err := c.link.Dial(ctx, servers); err != nil {
		return err
	}
	var err error
	ready := make(chan error, 1)
	c.link.Spawn(func() { ready <- c.authenticate(ctx) })
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = c.link.Explain(context.Cause(ctx))
	}
	if err != nil {
		c.closeUntil(ctx)
	}
	return err
}

// closeUntil closes the client, but does not wait much longer than ctx for the server to
// answer that.
func (c *Client) closeUntil(ctx context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
		return
	case <-ctx.Done():
	}
	moment := time.NewTimer(100 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-closed:
	case <-moment.C:
	}
}

// authenticate waits for a session and presents the credentials. The library repeats
// them at each reconnect once they have been accepted.
func (c *Client) authenticate(ctx context.Context) error {
	for _, a := range c.options.auth {
		for pace := retry.New(); ; {
			if _, err := c.link.AwaitSession(ctx); err != nil {
				return err
			}
			err := c.link.Conn.AddAuth(a.scheme, a.secret)
			if err == nil {
				break
			}
			if classify(err) == permanent {
				return fmt.Errorf("auth %s: %w", a.scheme, err)
			}
			if err := retry.Pause(ctx, pace.NextBackOff()); err != nil { // the connection may be closed already
				return c.link.Explain(err)
			}
		}
	}
	_, err := c.link.AwaitSession(ctx)
	return err
}
