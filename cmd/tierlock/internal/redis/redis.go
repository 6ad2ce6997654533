// Package redis connects the command to Redis: to a single server, to a cluster, or to a primary that sentinels know.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/redislock"
)

// Store describes Redis to the command.
func Store() *command.Store {
	return &command.Store{
		Name: "Redis", Schemes: []string{"redis", "rediss"}, Example: "redis://redis1:6379/0", About: about, Auth: "user:password", Notes: notes,
		Check: check, ValidatePath: redislock.ValidatePath, Dial: dial, Unreachable: unreachable,
	}
}

func check(a *command.Address) error {
	_, err := read(a)
	return err
}

// The type settings has the settings of a client of any kind.
type settings struct {
	open           func() redis.UniversalClient
	user, password *string
	tls            **tls.Config
	retries, dials *int
}

// The function read determines from the query of the URL the kind of the connection: sentinels, a cluster, or a single server.
func read(a *command.Address) (*settings, error) {
	s, err := parse(a.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	login, err := a.Login()
	if err != nil {
		return nil, err
	}
	if login != a.User { // otherwise the client has read the login in the URL, and sentinels may have another one
		*s.user = login.Username()
		*s.password, _ = login.Password()
	}
	config, err := a.TLS.Config()
	if config != nil {
		*s.tls = config
	}
	return s, err
}

func parse(text string) (*settings, error) {
	at, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	switch query := at.Query(); {
	case query.Has("master_name"):
		o, err := redis.ParseFailoverURL(text)
		if err != nil {
			return nil, err
		}
		open := func() redis.UniversalClient { return redis.NewFailoverClient(o) }
		return &settings{open, &o.Username, &o.Password, &o.TLSConfig, &o.MaxRetries, &o.DialerRetries}, nil
	case query.Has("addr"):
		o, err := redis.ParseClusterURL(text)
		if err != nil {
			return nil, err
		}
		open := func() redis.UniversalClient { return redis.NewClusterClient(o) }
		return &settings{open, &o.Username, &o.Password, &o.TLSConfig, &o.MaxRetries, &o.DialerRetries}, nil
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	open := func() redis.UniversalClient { return redis.NewClient(o) }
	return &settings{open, &o.Username, &o.Password, &o.TLSConfig, &o.MaxRetries, &o.DialerRetries}, nil
}

// dial sets the margin itself, so that the command knows it.
func dial(ctx context.Context, a *command.Address, o command.Options) (*command.Locks, error) {
	logging.Disable() // go-redis logs a line for each attempt; the errors contain the same
	if err := answers(ctx, a); err != nil {
		return nil, a.TLS.Advise(err)
	}
	settings, err := read(a)
	if err != nil {
		return nil, err
	}
	client := settings.open()
	if err := client.Ping(ctx).Err(); err != nil { // makes a connection for the first request
		client.Close()
		return nil, err
	}
	margin := o.Session / 3
	locks, err := redislock.New(ctx, client, o.Registry(margin)...)
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

// The function answers returns when the server has answered.
func answers(ctx context.Context, a *command.Address) error {
	once, err := read(a)
	if err != nil {
		return err
	}
	*once.retries, *once.dials = -1, 1 // go-redis would retry without an error
	client := once.open()
	defer client.Close()
	if err := command.Answer(ctx, refused, func() error { return client.Ping(ctx).Err() }); err != nil {
		return fmt.Errorf("connect to %s: %w", a.Servers, err)
	}
	return nil
}

// The function refused reports whether the server has refused permanently.
func refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !redis.HasErrorPrefix(err, "LOADING") && !redis.HasErrorPrefix(err, "READONLY")
}

// unreachable reports whether no server is available for this user.
func unreachable(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}
