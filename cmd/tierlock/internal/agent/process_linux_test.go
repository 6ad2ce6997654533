package agent_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The environment variable roleOfChild makes a test process a client that holds a lock: its value is the socket.
const roleOfChild = "TIERLOCK_AGENT_TEST_SOCKET"

// holdRaw begins a hold on a connection to a real socket, and returns the connection once the client holds.
func holdRaw(tb testing.TB, socket string) *net.UnixConn {
	tb.Helper()
	conn := need.Get(net.Dial("unix", socket))(tb)
	fmt.Fprint(conn, "POST /v1/hold?path=/a HTTP/1.1\r\nHost: agent\r\n\r\n")
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.Contains(lines.Text(), `"acquired"`) {
			return conn.(*net.UnixConn)
		}
	}
	tb.Fatal("the stream has ended")
	return nil
}

// These ends of a client show only on a real socket and with a real process. The next client must not have to wait until the lease is over.
func TestEndOfAClientEndsItsHoldOnARealSocket(t *testing.T) {
	if socket := os.Getenv(roleOfChild); socket != "" {
		beClient(t, socket)
	}
	process := func(heir string) func(t *testing.T, socket string) func() {
		return func(t *testing.T, socket string) func() {
			client := exec.Command(os.Args[0], "-test.run=^"+t.Name()[:strings.Index(t.Name(), "/")]+"$")
			client.Env = append(os.Environ(), roleOfChild+"="+socket, "HEIR="+heir)
			client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out := need.Get(client.StdoutPipe())(t)
			need.OK(t, client.Start())
			t.Cleanup(func() {
				syscall.Kill(-client.Process.Pid, syscall.SIGKILL) // the group includes the heir
				client.Wait()
			})
			need.Get(bufio.NewReader(out).ReadString('\n'))(t)
			return func() { need.OK(t, client.Process.Kill()) }
		}
	}
	for name, begin := range map[string]func(t *testing.T, socket string) (end func()){
		"killed process": process(""),
		"killed process whose child has the connection": process("sleep"),
		"closed connection": func(t *testing.T, socket string) func() {
			conn := holdRaw(t, socket)
			return func() { need.OK(t, conn.Close()) }
		},
		"half-closed connection": func(t *testing.T, socket string) func() {
			conn := holdRaw(t, socket)
			t.Cleanup(func() { conn.Close() })
			return func() { need.OK(t, conn.CloseWrite()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, leaseOfTests)
			end := begin(t, strings.TrimPrefix(address, "unix:"))
			mu, next := dial(t, address).Mutex("/a"), make(chan time.Time, 1)
			go func() {
				if hold, err := mu.Acquire(t.Context()); err == nil {
					next <- time.Now()
					hold.Release()
				}
			}()
			time.Sleep(20 * time.Millisecond) // the next client waits by then; if not, it has the lock a little later
			need.Equal(t, "clients inside before the end", len(next), 0)
			ended := time.Now()
			end()
			took := (<-next).Sub(ended)
			t.Log("the next client was inside after", took)
			need.Between(t, "the wait of the next client", took, 0, leaseOfTests/2)
		})
	}
}

// beClient holds the lock until it is killed. The heir is a process with a copy of the connection.
func beClient(t *testing.T, socket string) {
	conn := holdRaw(t, socket)
	if os.Getenv("HEIR") != "" {
		heir := exec.Command("sleep", "60")
		heir.ExtraFiles = []*os.File{need.Get(conn.File())(t)}
		need.OK(t, heir.Start())
	}
	fmt.Println("holds")
	time.Sleep(time.Minute)
}
