// Package host connects the command to the agent of this host.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tierlock/tierlock/agentlock"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// Store describes the agent to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "the agent", Schemes: []string{"agent"}, Example: "agent:///run/tierlock.sock", About: about, Auth: "nothing",
		NoTLS: "the agent connects to the store", Notes: notes,
		Check:        func(a *command.Address) error { _, err := socket(a); return err },
		ValidatePath: func(path string) error { return second.CheckPath("agent", path, nil) },
		Dial:         dial, Unreachable: func(error) bool { return false },
	}
}

const about = `    The socket of "tierlock agent" on this host. The permissions of the socket, and the allow file of the agent, decide
    who may use it. The agent has the credentials of the store.
`

// The map notes has the parts of the help about the agent.
var notes = map[string]string{
	"run":    `-session has no effect: the agent sets the lease.`,
	"ls":     `it lists the locks that processes of this host hold or wait for.`,
	"who":    `processes of this host appear in place of the agent. Another host is one entry, the agent of that host.`,
	"break":  `the user has to be root or the user of the agent.`,
	"doctor": `it does not check the store; use -store with the URL of the store for that.`,
}

func socket(a *command.Address) (string, error) {
	path := strings.TrimPrefix(a.URL, "agent://")
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("%s: want agent:// and the path of a socket, such as agent:///run/tierlock.sock", a.URL)
	}
	return path, nil
}

// A client asks the agent what the registry cannot tell.
type client struct{ http.Client }

func newClient(socket string) *client {
	return &client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// ask decodes the answer to a question into result.
func (c *client) ask(ctx context.Context, what string, result any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/"+what, nil)
	if err != nil {
		return err
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return &refusal{fmt.Errorf("the agent refuses: %s", strings.TrimSpace(string(text)))}
	}
	return json.NewDecoder(answer.Body).Decode(result)
}

type refusal struct{ error }

func refused(err error) bool {
	r := (*refusal)(nil)
	return errors.As(err, &r)
}

func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	path, err := socket(a)
	if err != nil {
		return nil, err
	}
	c := newClient(path)
	var status struct {
		Lease int64 `json:"lease_ms"`
	}
	if err := command.Answer(ctx, refused, func() error { return c.ask(ctx, "status", &status) }); err != nil {
		return nil, fmt.Errorf("connect to the agent at %s: %w", path, err)
	}
	opts := []tier.RegistryOption{tier.WithLabel(o.Label), tier.WithLogger(o.Logger)}
	for _, one := range o.Locks() {
		opts = append(opts, one)
	}
	locks, err := agentlock.Dial(ctx, "unix:"+path, opts...)
	if err != nil {
		c.CloseIdleConnections()
		return nil, err
	}
	margin := time.Duration(status.Lease) * time.Millisecond / 3
	return &command.Locks{
		Registry: locks,
		Margin:   func() time.Duration { return margin },
		Desk: command.RegistryDesk{
			Registry: inspect.Registry{Locks: locks, Paths: c.paths},
			Find:     func(context.Context, *inspect.Report) error { return nil },
		},
		Disconnect: func() error { c.CloseIdleConnections(); return nil },
	}, nil
}

// paths returns the paths at and below a path that clients of the host use.
func (c *client) paths(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error) {
	var found struct{ Paths []string }
	if err := c.ask(ctx, "locks", &found); err != nil {
		return nil, 0, false, err
	}
	under := strings.TrimSuffix(below, "/")
	for _, path := range found.Paths {
		if path == below || strings.HasPrefix(path, under+"/") {
			paths = append(paths, path)
		}
	}
	complete = len(paths) <= limit
	return paths[:min(limit, len(paths))], len(paths), complete, nil
}
