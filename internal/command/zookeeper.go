package command

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A zooKeeper is how to connect to an ensemble: all that the command knows of it.
type zooKeeper struct {
	connect    string // host:port,host:port/path
	timeout    time.Duration
	authFile   string
	tls        bool
	ca         string
	cert, key  string
	serverName string
}

const connectTimeout = 10 * time.Second

func (z *zooKeeper) flags(flags *flag.FlagSet) {
	flags.StringVar(&z.connect, "zk", z.connect, "`servers`: host:port[,host:port…][/chroot] (default $TIERLOCK_ZK)")
	duration(flags, &z.timeout, "connect-timeout", "`time` after which to give up connecting (default 10s)", true)
	flags.StringVar(&z.authFile, "auth-file", z.authFile, "`file` with credentials, lines of scheme:credentials (default $TIERLOCK_AUTH)")
	flags.BoolVar(&z.tls, "tls", z.tls, "connect with TLS; implied by the other -tls flags")
	flags.StringVar(&z.ca, "tls-ca", z.ca, "`file` with the certificates to trust, PEM (default: the system's)")
	flags.StringVar(&z.cert, "tls-cert", z.cert, "`file` with the certificate to present, PEM")
	flags.StringVar(&z.key, "tls-key", z.key, "`file` with the key of -tls-cert, PEM")
	flags.StringVar(&z.serverName, "tls-server-name", z.serverName, "`name` that the servers' certificates must have (default: the host's in -zk)")
}

// A store is where the locks are.
type store struct {
	*tier.Registry
	margin func() time.Duration // for how long a lock whose lease is over is not given to others
}

// store connects under a label that others see in the queue. A session of 0 is the library's.
func (z *zooKeeper) store(ctx context.Context, session time.Duration, label string, logger *slog.Logger) (*store, error) {
	opts := []zklock.Option{zklock.WithLabel(readable(label)), zklock.WithLogger(logger)}
	if session > 0 {
		opts = append(opts, zklock.WithSessionTimeout(session))
	}
	client, err := z.client(ctx, opts...)
	if err != nil {
		return nil, err
	}
	locks, err := tier.New(client.Tier())
	if err != nil {
		client.Close()
		return nil, err
	}
	return &store{locks, client.LeaseMargin}, nil
}

// readable makes any text a label.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(text, "."))
	const most = 64
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1]) + "…"
	}
	return text
}

// check reports what can be known to be wrong without a server.
func (z *zooKeeper) check() error {
	if _, err := z.servers(); err != nil {
		return err
	}
	_, err := z.options()
	return err
}

// client connects, for -connect-timeout at most. Its error says with what status to exit.
func (z *zooKeeper) client(ctx context.Context, opts ...zklock.Option) (*zklock.Client, error) {
	connect, err := z.servers()
	if err != nil {
		return nil, err
	}
	own, err := z.options()
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, z.wait())
	defer cancel()
	client, err := zklock.Dial(wait, connect, append(own, opts...)...)
	if err != nil {
		return nil, dialFailure(wait, err)
	}
	return client, nil
}

// dialFailure tells servers that cannot be reached from a command line that never can be right.
func dialFailure(wait context.Context, err error) error {
	unknown := (*net.DNSError)(nil)
	if signal := (*failure)(nil); errors.As(err, &signal) {
		return signal
	}
	if wait.Err() != nil || errors.As(err, &unknown) || errors.Is(err, zk.ErrAuthFailed) {
		return fail(exitUnavailable, "%w", err)
	}
	return usageError("%w", err)
}

func (z *zooKeeper) wait() time.Duration {
	if z.timeout == 0 {
		return connectTimeout
	}
	return z.timeout
}

func (z *zooKeeper) servers() (string, error) {
	if z.connect != "" {
		return z.connect, nil
	}
	if connect := os.Getenv("TIERLOCK_ZK"); connect != "" {
		return connect, nil
	}
	return "", usageError("no servers; give -zk host:port or set TIERLOCK_ZK")
}

// options are those that the flags ask for.
func (z *zooKeeper) options() ([]zklock.Option, error) {
	opts, err := z.auth()
	if err != nil {
		return nil, err
	}
	config, err := z.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, zklock.WithTLS(config))
	}
	return opts, nil
}

// validate reports a path that cannot be a lock.
func validate(path string) error {
	if err := zklock.ValidatePath(path); err != nil {
		return usageError("%w", err)
	}
	return nil
}
