// Package zkconn opens plain connections of the client library, such as operators and programs without locks have. It is for tests.
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

// Open returns a connection to one of the servers, and the channel of its events. It waits for a session until ctx is done. The connection
// logs nothing. The library closes the channel when the connection has ended completely. A nil dialer means TCP.
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

// Start returns a connection that has a session. The connection is closed at the end of the test.
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

// Put creates the nodes that do not exist yet. They are empty, and all clients have all permissions.
func Put(tb testing.TB, conn *zk.Conn, flags int32, paths ...string) {
	tb.Helper()
	for _, p := range paths {
		if _, err := conn.Create(p, nil, flags, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			tb.Fatal(err)
		}
	}
}

// Silent is a logger that drops all lines.
type Silent struct{}

// Printf drops the line.
func (Silent) Printf(string, ...any) {}
