package twin

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// Operator returns a connection past all faults, until the end of the test.
func (g *Ground) Operator(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{g.addr, g.addr}, 10*time.Second,
		zk.WithDialer(g.dial), zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed as the last act of the library
		}
	})
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
