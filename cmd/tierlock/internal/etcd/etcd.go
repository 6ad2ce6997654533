// Package etcd connects the command to etcd.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/etcdlock"
)

// Store describes etcd to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "etcd", Schemes: []string{"etcd"}, Example: "etcd://etcd1:2379,etcd2:2379", About: about, Auth: "user:password", Notes: notes,
		Check: check, ValidatePath: etcdlock.ValidatePath, Dial: dial, Unreachable: unreachable,
	}
}

func check(a *command.Address) error {
	_, err := configOf(a)
	return err
}

// configOf returns the configuration of the client for an address.
func configOf(a *command.Address) (clientv3.Config, error) {
	config := clientv3.Config{DialKeepAliveTime: 3 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop()}
	servers := strings.TrimSuffix(a.Servers, "/")
	if servers == "" || strings.ContainsAny(servers, "/?#") {
		return config, errors.New("want a URL of servers alone, such as etcd://host:2379,other:2379")
	}
	config.Endpoints = strings.Split(servers, ",")
	login, err := a.Login()
	if err != nil {
		return config, err
	}
	if login != nil {
		config.Username = login.Username()
		config.Password, _ = login.Password()
		if config.Username == "" || config.Password == "" {
			return config, errors.New("etcd wants user:password as credentials; one of them is missing")
		}
	}
	config.TLS, err = a.TLS.Config()
	return config, err
}

// dial sets the margin itself, so that the margin is known before the lease is granted.
func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	config, err := configOf(a)
	if err != nil {
		return nil, err
	}
	client, err := connect(ctx, config)
	if err != nil {
		return nil, a.TLS.Advise(err)
	}
	margin := o.Session / 3
	locks, err := etcdlock.New(ctx, client, o.Registry(margin)...)
	if err != nil {
		client.Close()
		return nil, err
	}
	keys := keys{client}
	return &command.Locks{
		Registry:   locks,
		Margin:     func() time.Duration { return margin },
		Desk:       command.RegistryDesk{Registry: inspect.Registry{Locks: locks, Paths: keys.paths}, Find: keys.find},
		Disconnect: client.Close,
	}, nil
}

// connect returns a client after a server has answered.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	life, end := context.WithCancelCause(context.Background())
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })() // needed because New waits for an authentication token
	config.Context = life
	client, err := clientv3.New(config)
	if err == nil {
		if err = answers(ctx, client); err == nil {
			return client, nil
		}
		client.Close()
	}
	return nil, fmt.Errorf("connect to %s: %w", strings.Join(config.Endpoints, ","), command.WithCause(ctx, err))
}

// The function answers returns when a server has answered. It does not use the client's retries, because the client would retry without an
// error.
func answers(ctx context.Context, client *clientv3.Client) error {
	kv, question := etcdserverpb.NewKVClient(client.ActiveConnection()), &etcdserverpb.RangeRequest{Key: []byte("tierlock"), CountOnly: true}
	refused := func(err error) bool { return codeOf(err) != codes.Unavailable }
	return command.Answer(ctx, refused, func() error {
		_, err := kv.Range(ctx, question)
		if status.Code(err) == codes.PermissionDenied {
			return nil
		}
		return rpctypes.Error(err)
	})
}

func unreachable(err error) bool {
	return errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrUserEmpty) || codeOf(err) == codes.Unavailable
}
