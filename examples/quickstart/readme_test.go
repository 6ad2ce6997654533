//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The commands in README have to work exactly as they are written, with nothing but Go. The test only uses fewer acquisitions.
func TestAsReadmeSays(t *testing.T) {
	commands := regexp.MustCompile(`(?m)^go run [^#\n]*`).FindAllString(string(need.Get(os.ReadFile("../../README.md"))(t)), -1)
	need.Must(t, fmt.Sprintf("README says %q, want a server and a client", commands),
		len(commands) == 2 && strings.Contains(commands[0], "tierlock dev") && strings.Contains(commands[1], "quickstart"))
	l, err := net.Listen("tcp", "127.0.0.1:2181")
	if err != nil {
		t.Skip("there is a ZooKeeper already: ", err)
	}
	l.Close()
	dir := t.TempDir()
	shell := func(command string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Stderr, cmd.Env = "../..", os.Stderr, append(os.Environ(), "TMPDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the test interrupts all processes of a command, as a terminal does
		return cmd
	}
	server := shell(commands[0])
	says := need.Get(server.StdoutPipe())(t)
	need.OK(t, server.Start())
	defer server.Wait()
	defer syscall.Kill(-server.Process.Pid, syscall.SIGINT)
	line, _ := bufio.NewReader(says).ReadString('\n')
	need.Must(t, fmt.Sprintf("the server says %q", line), strings.Contains(line, "127.0.0.1:2181"))
	var terminals sync.WaitGroup
	for range 2 {
		terminals.Go(func() {
			need.WantErr(t, "a client", shell(commands[1]+" -turns 4").Run(), nil)
		})
	}
	terminals.Wait()
	wantTurns(t, dir)
}
