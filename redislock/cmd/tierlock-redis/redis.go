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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tierlock/tierlock/internal/command"
	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

// A server is how to connect to Redis.
type server struct {
	addr        string // host:port or redis://…
	credentials command.Credentials
	tls         command.TLS
}

// store is what the command has to know of Redis.
func (s *server) store() *command.Store {
	return &command.Store{
		Program: "tierlock-redis", Name: "Redis", Environment: environment, Notes: notes,
		Flags: s.flags, Check: s.check, ValidatePath: redislock.ValidatePath, Dial: s.dial, Unreachable: unreachable,
	}
}

func (s *server) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.addr, "redis", s.addr, "`server`: host:port, or a URL redis[s]://host:port/database (default $TIERLOCK_REDIS)")
	s.credentials.Flags(flags, "user:password")
	s.tls.Flags(flags, "-redis")
}

func (s *server) check() error {
	_, err := s.options()
	return err
}

// options are what the flags and the environment say.
func (s *server) options() (*redis.Options, error) {
	addr := cmp.Or(s.addr, os.Getenv("TIERLOCK_REDIS"))
	if addr == "" {
		return nil, errors.New("no server; give -redis host:port or set TIERLOCK_REDIS")
	}
	options := &redis.Options{Addr: addr}
	var err error
	if strings.Contains(addr, "://") {
		if options, err = redis.ParseURL(addr); err != nil {
			return nil, fmt.Errorf("-redis: %w", err)
		}
	}
	if err := s.auth(options); err != nil {
		return nil, err
	}
	config, err := s.tls.Config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options.TLSConfig = config
	}
	return options, nil
}

func (s *server) auth(options *redis.Options) error {
	text, source, err := s.credentials.Read()
	if text = strings.TrimSpace(text); text == "" || err != nil {
		return err
	}
	user, password, found := strings.Cut(text, ":")
	if !found { // not quoted: it may be a secret
		return fmt.Errorf("%s: want user:password, or :password", source)
	}
	options.Username, options.Password = user, password
	return nil
}

// dial sets the margin of the lease itself, so that it is known here.
func (s *server) dial(ctx context.Context, o command.Options) (*command.Locks, error) {
	options, err := s.options()
	if err != nil {
		return nil, err
	}
	logging.Disable() // go-redis writes a line for each attempt; what it says is in errors
	if err := answers(ctx, *options); err != nil {
		return nil, s.tls.Advise(err)
	}
	client := redis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil { // so that there is a connection for the first to come
		client.Close()
		return nil, err
	}
	margin := o.Session / 3
	opts := []tier.RegistryOption{
		tier.WithLabel(o.Label), tier.WithLogger(o.Logger), tier.WithLeaseTTL(o.Session), tier.WithLeaseMargin(margin),
		tier.WithLazyStart(), // the server has answered, and doctor tells what is missing
	}
	locks, err := redislock.New(ctx, client, opts...)
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

// answers returns once the server has answered.
func answers(ctx context.Context, options redis.Options) error {
	options.MaxRetries, options.DialerRetries = -1, 1 // go-redis tries again without a word of why
	client := redis.NewClient(&options)
	defer client.Close()
	if err := command.Answer(ctx, refused, func() error { return client.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("connect to %s: %w", options.Addr, err)
	}
	return nil
}

// refused reports whether the server has answered that it will not.
func refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "READONLY")
}

// unreachable reports whether there is no server that serves this user.
func unreachable(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}
