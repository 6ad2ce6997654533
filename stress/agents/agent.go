package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/relay"
)

// command returns the name of the command tierlock, which $TIERLOCK_COMMAND may give. Otherwise it builds the command in dir.
func (p plan) command(ctx context.Context, dir string) (string, error) {
	if built := cmp.Or(p.Program, os.Getenv("TIERLOCK_COMMAND")); built != "" {
		return built, nil
	}
	name := filepath.Join(dir, "tierlock")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", name, "github.com/tierlock/tierlock/cmd/tierlock").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build tierlock: %w\n%s", err, out)
	}
	return name, nil
}

// agent is an agent of a run. If its process is killed, another one takes its place at the same socket.
type agent struct {
	start   func(socket string, log *os.File) *exec.Cmd
	network *relay.Relay // between the agent and the store
	socket  string
	log     string // the file with what all its processes have printed

	cmd  *exec.Cmd
	gone chan struct{} // closed when the process has ended and exit is set
	exit error
}

func (a *agent) launch() error {
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd, a.gone = a.start(a.socket, log), make(chan struct{})
	if err := child.Apart(a.cmd); err != nil {
		close(a.gone)
		return err
	}
	err = a.cmd.Start()
	go func() {
		a.exit = cmp.Or(err, a.cmd.Wait())
		close(a.gone)
	}()
	return err
}

// kill ends the process like kill -9. It returns false if the process had ended by itself.
func (a *agent) kill() (alive bool) {
	select {
	case <-a.gone:
	default:
		alive = true
		_ = a.cmd.Process.Kill()
	}
	<-a.gone
	return alive
}

// end asks the process to end, and waits until it has. It returns an error unless the process leaves nothing and exits with status 0.
func (a *agent) end() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	<-a.gone // the end of the run's life kills it at the latest
	if a.exit != nil {
		printed, _ := os.ReadFile(a.log)
		lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
		return fmt.Errorf("an agent did not end as it was asked to: %w: %s", a.exit, lines[len(lines)-1])
	}
	if _, err := os.Lstat(a.socket); err == nil {
		return fmt.Errorf("an agent has left its socket %s", a.socket)
	}
	return nil
}

// seats returns how many clients hold or wait, as the agent reports it.
func (a *agent) seats(ctx context.Context) (n int, err error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", a.socket)
		},
		DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var status struct{ Holds, Waiting int }
	err = json.NewDecoder(response.Body).Decode(&status)
	return status.Holds + status.Waiting, err
}
