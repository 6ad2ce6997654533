package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/netutil"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/agent"
	"github.com/tierlock/tierlock/contrib/tierprom"
)

// The type agentOptions has the flags of agent.
type agentOptions struct {
	listen  string
	mode    string
	secret  string
	allow   string
	session time.Duration
	lease   time.Duration // 0: a third of the session
	grace   time.Duration
	clients int
	metrics string
	paths   []string
	verbose bool
}

const agentHelp = `Serves the locks of the store to all processes of this host, in any language, over a Unix socket. The
agent has one queue entry per lock, however many processes wait, and passes locks between processes of
the host without a request to the store. docs/agent.md has the protocol and the clients.

  tierlock agent -store zk://zk1:2181 -listen unix:/run/tierlock.sock
  curl -N --unix-socket /run/tierlock.sock -X POST 'http://agent/v1/hold?path=/jobs/x&wait=10s'

-listen is one of:
  unix:PATH        a socket that the agent creates, with the permissions of -socket-mode
  systemd          the socket that systemd has passed (a .socket unit)
  tcp:HOST:PORT    a loopback address; requests have to present the text in -secret-file as bearer token

Who may connect may use every lock, unless -allow gives a file with users, groups and paths:

  uid:1000 /jobs/* /reports/**
  gid:33   /web/**

A gid: is any group of the process. Only on Linux does the agent know users and groups.

-metrics 127.0.0.1:9464 serves metrics for Prometheus at /metrics. They name no path: -metrics-path
'/jobs/*', once per pattern, makes a label of all paths that match.

A client keeps its hold by a renewal, and loses it when it was not renewed for -lease. If the agent ends,
crashes or hangs, the holds of all its clients end before the store gives their locks to another host.
On TERM or INT it refuses new holds, waits up to -grace for the clients to release, and ends.

exit status:
  0   after TERM or INT
  64  the command line, or the allow file, is wrong
  69  no server can be reached at the start
  70  anything else
`

func agentSubcommand() *subcommand {
	o := &agentOptions{mode: "0660", session: defaultSession, grace: 10 * time.Second, clients: 4096}
	return &subcommand{
		name: "agent", usage: "-listen ADDRESS [flags]", about: "serve the locks to all processes of this host", help: agentHelp,
		flags: o.flags, run: o.run,
	}
}

func (o *agentOptions) flags(flags *flag.FlagSet) {
	flags.StringVar(&o.listen, "listen", o.listen, "`address` to listen at")
	flags.StringVar(&o.mode, "socket-mode", o.mode, "octal `permissions` of the socket (default 0660)")
	flags.StringVar(&o.secret, "secret-file", o.secret, "`file` with the bearer token of tcp:")
	flags.StringVar(&o.allow, "allow", o.allow, "`file` that says which users may use which paths (default: all)")
	duration(flags, &o.session, "session", "`timeout` of the session to ask the servers for (default 15s)", true)
	duration(flags, &o.lease, "lease", "`time` after which a hold ends that is not renewed (default: a third of -session)", true)
	duration(flags, &o.grace, "grace", "`time` for the clients to release when the agent ends (default 10s)", false)
	number(flags, &o.clients, "clients", "`number` of connections that one user can have at the same time (default 4096)")
	flags.StringVar(&o.metrics, "metrics", o.metrics, "`address` to serve metrics at, such as 127.0.0.1:9464 (default: none)")
	flags.Func("metrics-path", "`pattern` of paths that are one label of metrics; can be given several times", func(pattern string) error {
		o.paths = append(o.paths, pattern)
		return nil
	})
	flags.BoolVar(&o.verbose, "v", o.verbose, "print each request that is refused, and each hold that ends")
}

func (o *agentOptions) run(ctx context.Context, in *invocation) error {
	if len(in.args) > 0 {
		return usageError("%q is too much; agent takes no arguments", in.args[0])
	}
	config, err := o.config(in)
	if err != nil {
		return err
	}
	metrics, page, err := o.openMetrics()
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close()
	}
	l, err := o.open()
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	options := Options{Session: o.session, Label: agentLabel, Logger: config.Logger}
	if metrics != nil {
		observer := metrics.Observer()
		options.Observer = &observer
	}
	locks, err := in.dial(ctx, options)
	if err != nil {
		return err
	}
	a := agent.New(locks.Registry, config)
	if metrics != nil {
		server := a.MetricsServer(metrics)
		go server.Serve(page) // ends with Close
		defer server.Close()
		in.say("serving metrics at http://%s/metrics", page.Addr())
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	in.say("serving the locks of %s at %s", in.store.Name, o.listen)
	select {
	case <-ctx.Done():
	case err = <-served:
		in.say("cannot accept connections any more: %v", err)
	}
	last, cancel := context.WithTimeout(context.Background(), o.grace)
	defer cancel()
	ended := a.Shutdown(last)
	if errors.Is(ended, context.DeadlineExceeded) || errors.Is(ended, context.Canceled) {
		in.say("some clients have not released: %v", ended)
		ended = nil
	}
	return errors.Join(err, ended, locks.Close())
}

// agentLabel is the label that other hosts see in the queue.
const agentLabel = "agent"

func (o *agentOptions) config(in *invocation) (agent.Config, error) {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	c := agent.Config{
		Label: agentLabel, Lease: o.lease, Clients: o.clients, Check: in.store.ValidatePath,
		Logger: slog.New(slog.NewTextHandler(in.stderr, &slog.HandlerOptions{Level: level})),
	}
	if c.Lease == 0 {
		c.Lease = o.session / 3
	}
	switch {
	case c.Lease < agent.LeastLease:
		return c, usageError("-lease %v: want %v at least", c.Lease, agent.LeastLease)
	case c.Lease > o.session*2/5:
		return c, usageError("-lease %v: want %v at most, which is two fifths of -session", c.Lease, o.session*2/5)
	}
	if o.allow != "" {
		file, err := os.Open(o.allow)
		if err != nil {
			return c, usageError("-allow: %w", err)
		}
		defer file.Close()
		if c.Allow, err = agent.ReadRules(file); err != nil {
			return c, usageError("-allow: %s: %w", o.allow, err)
		}
	}
	if o.secret != "" {
		text, err := os.ReadFile(o.secret)
		if c.Secret = strings.TrimSpace(string(text)); err == nil && len(c.Secret) < 16 {
			err = fmt.Errorf("%s has fewer than 16 characters", o.secret)
		}
		if err != nil {
			return c, usageError("-secret-file: %w", err)
		}
	}
	return c, nil
}

// The method openMetrics begins to listen for scrapers. Without -metrics it returns nil.
func (o *agentOptions) openMetrics() (*tierprom.Metrics, net.Listener, error) {
	if o.metrics == "" {
		if len(o.paths) > 0 {
			return nil, nil, usageError("-metrics-path needs -metrics")
		}
		return nil, nil, nil
	}
	metrics, err := tierprom.New(tierprom.WithPaths(o.paths...))
	if err != nil {
		return nil, nil, usageError("-metrics-path: %w", err)
	}
	l, err := net.Listen("tcp", o.metrics)
	if err != nil {
		return nil, nil, usageError("-metrics: %w", err)
	}
	const scrapers = 16 // connections at the same time
	return metrics, netutil.LimitListener(l, scrapers), nil
}

// open begins to listen.
func (o *agentOptions) open() (net.Listener, error) {
	kind, rest, _ := strings.Cut(o.listen, ":")
	switch kind {
	case "":
		return nil, usageError("-listen is missing; want unix:/run/tierlock.sock, for example")
	case "unix":
		mode, err := strconv.ParseUint(o.mode, 8, 9)
		if err != nil {
			return nil, usageError("-socket-mode %q: want permissions in octal, such as 0660", o.mode)
		}
		return openSocket(strings.TrimPrefix(rest, "//"), fs.FileMode(mode))
	case "systemd":
		return passedSocket()
	case "tcp":
		at, err := netip.ParseAddrPort(strings.TrimPrefix(rest, "//"))
		switch {
		case err != nil:
			return nil, usageError("-listen: %w; want tcp:127.0.0.1:PORT", err)
		case !at.Addr().IsLoopback():
			return nil, usageError("-listen %s: the protocol is for one host; want a loopback address", o.listen)
		case o.secret == "":
			return nil, usageError("-listen %s needs a -secret-file, because every user of the host can connect", o.listen)
		}
		l, err := net.Listen("tcp", at.String())
		return l, usage(err)
	}
	return nil, usageError("-listen %q: want unix:PATH, systemd or tcp:HOST:PORT", o.listen)
}

// A socket is a listener whose file no other agent replaces until it is closed.
type socket struct {
	net.Listener
	lock *os.File
}

// Close removes the socket, and then unlocks it.
func (s *socket) Close() error {
	defer s.lock.Close()
	return s.Listener.Close()
}

// openSocket creates a socket. It replaces a socket that another agent has left, but not one at which a process listens. The lock keeps two
// agents that start at the same moment from removing each other's socket.
func openSocket(path string, mode fs.FileMode) (net.Listener, error) {
	lock, err := lockSocket(path)
	if err != nil {
		return nil, usage(err)
	}
	l, err := replaceSocket(path, mode)
	if err != nil {
		lock.Close()
		return nil, usage(err)
	}
	return &socket{l, lock}, nil
}

func replaceSocket(path string, mode fs.FileMode) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		conn, err := net.Dial("unix", path)
		switch {
		case err == nil:
			conn.Close()
			return nil, usageError("-listen: another process serves %s", path)
		case !refused(err): // for example, the queue of connections of another agent is full
			return nil, err
		}
		os.Remove(path) // if that fails, listenAt says why
	}
	return listenAt(path, func() error { return os.Chmod(path, mode) })
}

// passedSocket returns the socket that systemd has opened; see sd_listen_fds(3).
func passedSocket() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") != "1" {
		return nil, usageError("-listen systemd: systemd has not passed one socket; start the agent by a .socket unit")
	}
	const first = 3
	file := os.NewFile(first, "socket")
	defer file.Close()
	l, err := net.FileListener(file)
	if err == nil && l.Addr().Network() != "unix" {
		l.Close()
		return nil, usageError("-listen systemd: the socket is at %v; want ListenStream= with the path of a Unix socket", l.Addr())
	}
	return l, usage(err)
}
