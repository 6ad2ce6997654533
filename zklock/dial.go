package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
)

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
