// Package zookeeper connects the command to ZooKeeper. It also serves a ZooKeeper in memory.
package zookeeper

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// Store describes ZooKeeper to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "ZooKeeper", Schemes: []string{"zk"}, Example: "zk://zk1:2181,zk2:2181/app", About: about,
		Auth: "lines of scheme:credentials, such as digest:user:password,", Notes: notes,
		Check: check, ValidatePath: zklock.ValidatePath, Dial: dial, Unreachable: unreachable, Tasks: []command.Task{dev()},
	}
}

func check(a *command.Address) error {
	if a.Servers == "" {
		return errors.New("the URL has no servers; want a URL such as zk://host:2181")
	}
	_, err := options(a)
	return err
}

func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	opts, err := options(a)
	if err != nil {
		return nil, err
	}
	opts = append(opts, zknode.WithLabel(o.Label), zknode.WithLogger(o.Logger), zknode.WithSessionTimeout(o.Session))
	client, err := zknode.Dial(ctx, a.Servers, opts...)
	if err != nil {
		return nil, inFlags{err}
	}
	locks := tier.New(zknode.Tier(client), o.Locks()...)
	return &command.Locks{Registry: locks, Margin: client.LeaseMargin, Desk: zkinspect.Reader{Client: client}}, nil
}

// An inFlags is an error whose text names flags instead of options of zklock.
type inFlags struct{ error }

func (e inFlags) Error() string {
	return strings.NewReplacer(
		"RootCAs of the configuration (see WithTLS) has to contain", "-tls-ca has to name",
		"set ServerName (see WithTLS)", "pass the name in the certificate with -tls-server-name",
		"(Certificates of the configuration, see WithTLS)", "(-tls-cert and -tls-key)",
		"that it trusts (see WithTLS)", "that it trusts (-tls-cert and -tls-key)",
		"leave out WithTLS", "leave out the -tls flags",
		"WithTLS", "-tls",
	).Replace(e.error.Error())
}

func (e inFlags) Unwrap() error { return e.error }

func unreachable(err error) bool {
	unknown := (*net.DNSError)(nil)
	return errors.As(err, &unknown) || errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zk.ErrNoServer)
}

// The function options returns the options for an address.
func options(a *command.Address) ([]zknode.Option, error) {
	opts, err := auth(a)
	if err != nil {
		return nil, err
	}
	config, err := a.TLS.Config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, zknode.WithTLS(config))
	}
	return opts, nil
}
