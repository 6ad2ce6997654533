// Package zkconn makes plain connections of the client library: what an operator has, or a program without locks. It is
// for tests.
package zkconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Open returns a connection to one of servers that says nothing in the log, and its events, which are closed as the last
// act of the library. It waits for a session until ctx is done. A nil dialer stands for TCP.
func Open(ctx context.Context, servers []string, timeout time.Duration, dial zk.Dialer) (*zk.Conn, <-chan zk.Event, error) {
	if dial == nil {
		dial = net.DialTimeout
	}
	conn, events, err := zk.Connect(servers, timeout, zk.WithDialer(dial), zk.WithLogger(Silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, nil, err
	}
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-ctx.Done():
			conn.Close()
			return nil, nil, fmt.Errorf("no session with %v: %w", servers, context.Cause(ctx))
		}
	}
	return conn, events, nil
}

// Start returns a connection that has a session, and ends with the test.
func Start(tb testing.TB, servers []string, timeout time.Duration, dial zk.Dialer) *zk.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	conn, events, err := Open(ctx, servers, timeout, dial)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	return conn
}

// Put creates those nodes that are not there, without content, for everybody.
func Put(tb testing.TB, conn *zk.Conn, flags int32, paths ...string) {
	tb.Helper()
	for _, p := range paths {
		if _, err := conn.Create(p, nil, flags, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			tb.Fatal(err)
		}
	}
}

// Silent is a logger that says nothing.
type Silent struct{}

// Printf says nothing.
func (Silent) Printf(string, ...any) {}
