package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/command"
	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/tier"
)

// An etcd is how to connect to a cluster.
type etcd struct {
	endpoints   string // host:port,host:port
	credentials command.Credentials
	tls         command.TLS
}

// store is what the command has to know of etcd.
func (e *etcd) store() *command.Store {
	return &command.Store{
		Program: "tierlock-etcd", Name: "etcd", Environment: environment, Notes: notes,
		Flags: e.flags, Check: e.check, ValidatePath: etcdlock.ValidatePath, Dial: e.dial, Unreachable: unreachable,
	}
}

func (e *etcd) flags(flags *flag.FlagSet) {
	flags.StringVar(&e.endpoints, "etcd", e.endpoints, "`servers`: host:port[,host:port…] (default $TIERLOCK_ETCD)")
	e.credentials.Flags(flags, "user:password")
	e.tls.Flags(flags, "-etcd")
}

func (e *etcd) check() error {
	_, err := e.config()
	return err
}

// config is what the flags and the environment say.
func (e *etcd) config() (clientv3.Config, error) {
	config := clientv3.Config{DialKeepAliveTime: 3 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop()}
	servers := cmp.Or(e.endpoints, os.Getenv("TIERLOCK_ETCD"))
	if servers == "" {
		return config, errors.New("no servers; give -etcd host:port or set TIERLOCK_ETCD")
	}
	config.Endpoints = strings.Split(servers, ",")
	var err error
	if config.Username, config.Password, err = e.auth(); err != nil {
		return config, err
	}
	config.TLS, err = e.tls.Config()
	return config, err
}

func (e *etcd) auth() (user, password string, err error) {
	text, source, err := e.credentials.Read()
	if text = strings.TrimSpace(text); text == "" || err != nil {
		return "", "", err
	}
	user, password, _ = strings.Cut(text, ":")
	if user == "" || password == "" { // not quoted: it may be a secret
		return "", "", fmt.Errorf("%s: want user:password", source)
	}
	return user, password, nil
}

// dial sets the margin of the lease itself, so that it is known before the lease is.
func (e *etcd) dial(ctx context.Context, o command.Options) (*command.Locks, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	client, err := connect(ctx, config)
	if err != nil {
		return nil, e.tls.Advise(err)
	}
	margin := o.Session / 3
	opts := []tier.RegistryOption{
		tier.WithLabel(o.Label), tier.WithLogger(o.Logger), tier.WithLeaseTTL(o.Session), tier.WithLeaseMargin(margin),
		tier.WithLazyStart(), // the server has answered, and doctor tells what is missing
	}
	locks, err := etcdlock.New(ctx, client, opts...)
	if err != nil {
		client.Close()
		return nil, err
	}
	keys := keys{client}
	return &command.Locks{
		Registry:   locks,
		Margin:     func() time.Duration { return margin },
		Desk:       command.RegistryDesk{Registry: inspect.Registry{Locks: locks, Paths: keys.paths}, Remove: keys.remove, Find: keys.find},
		Disconnect: client.Close,
	}, nil
}

// connect returns a client once a server has answered.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	life, end := context.WithCancelCause(context.Background())
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })() // New waits for a token
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

// answers returns once a server has answered. It asks below the client, which tries again without a word of why.
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
