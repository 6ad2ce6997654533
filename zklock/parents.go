package zklock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/wire"
)

// parents creates the nodes above lock nodes.
type parents struct {
	plain    atomic.Bool    // the server knows no containers (before 3.5)
	creating sync.WaitGroup // container creations under way
}

// createParents creates path and what is missing above it: as containers, which the
// server removes when they are empty, or as persistent nodes where it knows none. It
// starts at the bottom, since most often only the last one is missing.
func (c *Client) createParents(path string, acl []zk.ACL) error {
	err := c.createParent(path, acl)
	if up := parentOf(path); up != "" && errors.Is(err, zk.ErrNoNode) {
		if err := c.createParents(up, acl); err != nil {
			return err
		}
		err = c.createParent(path, acl)
	}
	return err
}

func (c *Client) createParent(path string, acl []zk.ACL) error {
	var err error
	if !c.parents.plain.Load() {
		err = c.createContainer(path, acl)
		if err != nil && unknownCode(err) == wire.CodeUnimplemented {
			c.parents.plain.Store(true)
		}
	}
	if c.parents.plain.Load() {
		_, err = c.conn.Create(path, nil, 0, acl)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create parent %s: %w", path, err)
	}
	return nil
}

// createContainer is counted, because Close must not overtake it: the library reads the
// reply while it may still be written (conn.go:1098).
func (c *Client) createContainer(path string, acl []zk.ACL) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.parents.creating.Add(1)
	c.mu.Unlock()
	defer c.parents.creating.Done()
	_, err := c.conn.CreateContainer(path, nil, zk.FlagContainer, acl)
	return err
}

// await waits, for a bounded time, until no container is being created.
func (p *parents) await(bound time.Duration) {
	idle := make(chan struct{})
	go func() { // ends with the calls, at the latest when the connection is closed
		p.creating.Wait()
		close(idle)
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
