package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// The environment variable roleOfClient makes a test process a client of an agent: its value is the socket.
const roleOfClient = "TIERLOCK_TEST_AGENT_SOCKET"

// A holding is a hold of a client of the agent, with its connection.
type holding struct {
	ID, Token string
	*net.UnixConn
}

// hold begins a hold that nothing renews.
func hold(t *testing.T, socket, path string) (h holding) {
	t.Helper()
	conn := need.Get(net.Dial("unix", socket))(t)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /v1/hold?path=%s HTTP/1.1\r\nHost: agent\r\n\r\n", path)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if strings.Contains(lines.Text(), `"acquired"`) {
			need.OK(t, json.Unmarshal(lines.Bytes(), &h))
			h.UnixConn = conn.(*net.UnixConn)
			return h
		}
	}
	t.Fatal("the stream has ended")
	return h
}

// Clients of the real agent end in each way. Its page of metrics counts each hold once, and its log names those that failed.
func TestAgentCountsEndsOfHolds(t *testing.T) {
	if socket := os.Getenv(roleOfClient); socket != "" {
		beClient(t, socket)
	}
	t.Parallel()
	server := startServer(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	args := append(manifestArgs(t, filepath.Dir(socket)), "-metrics-path", "/ends/*", "-session", "40s", "-lease", "15s", "-grace", "0s")
	agent := start(t, server.Addr(), args...)
	page := agent.Prints(agent.Stderr, `serving metrics at (http://\S+/metrics)`)[1]
	agent.Says("serving the locks")
	post := func(what string) {
		t.Helper()
		client := http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) },
		}}
		answer := need.Get(client.Post("http://agent/v1/"+what, "", nil))(t)
		answer.Body.Close()
		need.Equal(t, what, answer.StatusCode, http.StatusOK)
	}
	scrape := func() string {
		answer := need.Get(http.Get(page))(t)
		defer answer.Body.Close()
		return string(need.Get(io.ReadAll(answer.Body))(t))
	}
	counts := func(reason string, n int) {
		t.Helper()
		line := fmt.Sprintf("\ntierlock_agent_ended_holds_total{reason=%q} %d\n", reason, n)
		childtest.Eventually(t, line, func() bool { return strings.Contains(scrape(), line) })
	}

	post("release?id=" + hold(t, socket, "/ends/released").ID)
	counts("released", 1)
	post("release?unsettled=1&id=" + hold(t, socket, "/ends/unsettled").ID)
	counts("unsettled", 1)
	need.OK(t, hold(t, socket, "/ends/closed").Close())
	counts("connection", 1)
	for i, heir := range []string{"", "sleep"} { // the heir keeps the connection open
		client := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		client.Env = append(os.Environ(), roleOfClient+"="+socket, "TIERLOCK_COMMAND="+commandtest.Program, "HEIR="+heir)
		client.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out := need.Get(client.StdoutPipe())(t)
		need.OK(t, client.Start())
		t.Cleanup(func() {
			syscall.Kill(-client.Process.Pid, syscall.SIGKILL) // the group includes the heir
			client.Wait()
		})
		need.Get(bufio.NewReader(out).ReadString('\n'))(t)
		need.OK(t, client.Process.Kill())
		counts("process", i+1)
	}
	broken := hold(t, socket, "/ends/lost")
	commandtest.Want(t, at(server.Addr()), "break -yes -token "+broken.Token+" /ends/lost", 0)
	counts("lost", 1)
	hold(t, socket, "/ends/unrenewed")
	counts("not_renewed", 1)

	need.Has(t, "the page", scrape(), "\ntierlock_agent_holds 0\n", "\ntierlock_agent_waiting_clients 0\n", "\ntierlock_connected 1\n",
		`tierlock_losses_total{cause="deletion",path="/ends/*"} 1`+"\n", "\nprocess_open_fds ")
	for reason, n := range map[string]int{"released": 1, "unsettled": 1, "connection": 1, "process": 2, "lost": 1} {
		counts(reason, n) // no hold is counted again later
	}
	need.Has(t, "the log", agent.Stderr.String(), "path=/ends/unrenewed", "path=/ends/killed", "was not renewed", "process has ended")
	need.That(t, "the log has orderly ends, without -v", !strings.Contains(agent.Stderr.String(), "path=/ends/released"))
	agent.Signal(syscall.SIGTERM)
	agent.Exits(0)
}

// manifestArgs returns the arguments of the agent in the manifest for Kubernetes, with another directory and another port.
func manifestArgs(t *testing.T, dir string) []string {
	t.Helper()
	text := need.Get(os.ReadFile("../../docs/agent-daemonset.yaml"))(t)
	_, after, _ := strings.Cut(string(text), "args:\n")
	list, _, found := strings.Cut(after, "env:")
	need.Must(t, "the manifest has no arguments", found)
	args := strings.Fields(strings.ReplaceAll(list, " - ", " "))
	for i := range args {
		args[i] = strings.NewReplacer("/run/tierlock", dir, "=:9464", "=127.0.0.1:0").Replace(args[i])
	}
	return args
}

// beClient holds a lock until it is killed. The heir is a process with a copy of the connection.
func beClient(t *testing.T, socket string) {
	h := hold(t, socket, "/ends/killed")
	if os.Getenv("HEIR") != "" {
		heir := exec.Command("sleep", "60")
		heir.ExtraFiles = []*os.File{need.Get(h.File())(t)}
		need.OK(t, heir.Start())
	}
	fmt.Println("holds")
	time.Sleep(time.Minute) // the test kills this process before
}

// An address that is taken or wrong is an error of the command line, and not one that shows when the first scrape fails.
func TestAgentRefusesWrongFlagsOfMetrics(t *testing.T) {
	t.Parallel()
	taken := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	env := at("127.0.0.1:1")
	socket := " -listen unix:" + filepath.Join(t.TempDir(), "agent.sock")
	commandtest.Want(t, env, "agent -metrics "+taken.Addr().String()+socket, 64, "-metrics: .*address already in use")
	commandtest.Want(t, env, "agent -metrics-path /jobs/*"+socket, 64, "-metrics-path needs -metrics")
	commandtest.Want(t, env, "agent -metrics 127.0.0.1:0 -metrics-path /[ "+socket, 64, "-metrics-path: .*syntax error")
}
