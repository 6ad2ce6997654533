package agent_test

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// inUse returns the memory of the heap and of the stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// The memory of clients that do nothing. It includes the few bytes that the client's side of a connection needs in this process.
func TestMemoryOfAnIdleClient(t *testing.T) {
	const clients, most = 500, 64 << 10 // without the race detector, a client needs about half of it
	for what, request := range map[string]string{
		"idle connection": "GET /v1/status", "waiting": "POST /v1/hold?path=/a", "holding": "POST /v1/hold?path=/a&permits=1&of=1000",
		"holding a path of its own": "POST /v1/hold?path=/p/%d", "listening": "POST /v1/hold?listen=contended,revoke&path=/p/%d",
	} {
		t.Run(what, func(t *testing.T) {
			socket := strings.TrimPrefix(serve(t, leaseOfTests), "unix:")
			var conns []net.Conn
			connect := func(n int) {
				for range n {
					conn := need.Get(net.Dial("unix", socket))(t)
					t.Cleanup(func() { conn.Close() })
					conns = append(conns, conn)
					text := request
					if strings.Contains(text, "%d") {
						text = fmt.Sprintf(text, len(conns))
					}
					fmt.Fprint(conn, text+" HTTP/1.1\r\nHost: agent\r\n\r\n")
					if what != "waiting" || len(conns) == 1 {
						need.Get(bufio.NewReaderSize(conn, 16).ReadByte())(t)
					}
				}
			}
			connect(20)
			before := inUse()
			connect(clients)
			each := (inUse() - before) / clients
			t.Logf("%d bytes per client", each)
			need.That(t, fmt.Sprintf("%d bytes per client; want %d at most", each, most), each <= most)
		})
	}
}

// The agent, its clients and the store in memory keep nothing of a path that is not used any more. The rest is noise of the measurement.
func TestPathsThatWereUsedOnceNeedNoMemory(t *testing.T) {
	locks := dial(t, serve(t, leaseOfTests))
	use := func(from, to int) {
		for i := from; i < to; i++ {
			need.OK(t, need.Get(locks.Mutex(fmt.Sprint("/once/", i)).Acquire(t.Context()))(t).Release())
		}
	}
	use(0, 500)
	before := inUse()
	use(500, 4500)
	each := (inUse() - before) / 4000
	t.Logf("%d bytes per path", each)
	need.That(t, fmt.Sprintf("%d bytes per path are left", each), each < 200)
}
