package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/command"
	"github.com/tierlock/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A zooKeeper is how to connect to an ensemble.
type zooKeeper struct {
	connect     string // host:port,host:port/path
	credentials command.Credentials
	tls         command.TLS
}

// store is what the command has to know of ZooKeeper.
func (z *zooKeeper) store() *command.Store {
	return &command.Store{
		Program: "tierlock", Name: "ZooKeeper", Environment: environment, Notes: notes,
		Flags: z.flags, Check: z.check, ValidatePath: zklock.ValidatePath, Dial: z.dial, Unreachable: unreachable, Tasks: []command.Task{dev()},
	}
}

func (z *zooKeeper) flags(flags *flag.FlagSet) {
	flags.StringVar(&z.connect, "zk", z.connect, "`servers`: host:port[,host:port…][/chroot] (default $TIERLOCK_ZK)")
	z.credentials.Flags(flags, "credentials, lines of scheme:credentials")
	z.tls.Flags(flags, "-zk")
}

func (z *zooKeeper) check() error {
	if _, err := z.servers(); err != nil {
		return err
	}
	_, err := z.options()
	return err
}

func (z *zooKeeper) dial(ctx context.Context, o command.Options) (*command.Locks, error) {
	connect, err := z.servers()
	if err != nil {
		return nil, err
	}
	opts, err := z.options()
	if err != nil {
		return nil, err
	}
	opts = append(opts, zknode.WithLabel(o.Label), zknode.WithLogger(o.Logger), zknode.WithSessionTimeout(o.Session))
	client, err := zknode.Dial(ctx, connect, opts...)
	if err != nil {
		return nil, inFlags{err}
	}
	locks := tier.New(zknode.Tier(client))
	return &command.Locks{Registry: locks, Margin: client.LeaseMargin, Desk: zkinspect.Reader{Client: client}}, nil
}

// inFlags is an error that names options of zklock, with the flags for them instead.
type inFlags struct{ error }

func (e inFlags) Error() string {
	return strings.NewReplacer(
		"RootCAs of the configuration (see WithTLS) has to hold", "-tls-ca has to name",
		"set ServerName (see WithTLS)", "say with -tls-server-name which one it is",
		"(Certificates of the configuration, see WithTLS)", "(-tls-cert and -tls-key)",
		"that it trusts (see WithTLS)", "that it trusts (-tls-cert and -tls-key)",
		"no WithTLS", "no -tls flag",
		"WithTLS", "-tls",
	).Replace(e.error.Error())
}

func (e inFlags) Unwrap() error { return e.error }

func unreachable(err error) bool {
	unknown := (*net.DNSError)(nil)
	return errors.As(err, &unknown) || errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zk.ErrNoServer)
}

func (z *zooKeeper) servers() (string, error) {
	if connect := cmp.Or(z.connect, os.Getenv("TIERLOCK_ZK")); connect != "" {
		return connect, nil
	}
	return "", errors.New("no servers; give -zk host:port or set TIERLOCK_ZK")
}

// options are those that the flags ask for.
func (z *zooKeeper) options() ([]zknode.Option, error) {
	opts, err := z.auth()
	if err != nil {
		return nil, err
	}
	config, err := z.tls.Config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, zknode.WithTLS(config))
	}
	return opts, nil
}
