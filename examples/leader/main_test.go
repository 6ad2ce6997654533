//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
)

func TestWrongServerIsAnErrorInTime(t *testing.T) { zkservertest.WrongServer(t, run) }

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

func TestTheOtherGoesOnWhenOneIsEnded(t *testing.T) {
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	start := func() (cmd *exec.Cmd, lines <-chan string) {
		cmd = zkservertest.Program(t, "ZK_SERVERS="+server.Addr())
		out := need.Get(cmd.StdoutPipe())(t)
		need.OK(t, cmd.Start())
		said := make(chan string, 100)
		go func() {
			defer close(said)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said <- lines.Text()
			}
		}()
		t.Cleanup(func() { _ = cmd.Wait() })
		return cmd, said
	}
	await := func(lines <-chan string, want string) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case line, open := <-lines:
				if strings.HasPrefix(line, want) {
					return
				}
				need.Must(t, fmt.Sprintf("ended before it said %q", want), open)
			case <-deadline:
				t.Fatalf("never said: %s", want)
			}
		}
	}
	first, of := start()
	await(of, "working")
	second, other := start()
	await(other, fmt.Sprintf("leader: process %d ", first.Process.Pid))
	need.OK(t, first.Process.Signal(syscall.SIGTERM))
	await(other, "working")
	await(other, fmt.Sprintf("leader: process %d ", second.Process.Pid))
}
