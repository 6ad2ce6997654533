//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, "tierlock-redis", func() (*redisserver.Server, error) {
		server, err := redisserver.Start(context.Background(), redisserver.Config{NoSync: true})
		if err != nil {
			return nil, err
		}
		return server, take(server)
	})
}

func startServer(t *testing.T) *redisserver.Server {
	return commandtest.Server(t)
}

// take has the first process at a server take a lock, as it needs no grace period.
func take(server *redisserver.Server) error {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locks, err := redislock.New(context.Background(), client, redislock.WithNewServer())
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Mutex("first").Do(context.Background(), func(context.Context) error { return nil })
}

func at(addr string) []string { return []string{"TIERLOCK_REDIS=" + addr} }

// dial returns a plain client, such as operators have.
func dial(t *testing.T, server *redisserver.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCommand(t *testing.T) {
	t.Parallel()
	commandtest.Run(t, func(t *testing.T, own bool) commandtest.Site {
		server := startServer(t)
		if own {
			server = childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
			need.OK(t, take(server))
		}
		return commandtest.Site{
			Env:     at(server.Addr()),
			Nowhere: at("127.0.0.1:1"),
			BadPath: "a{b",
			Server:  server,
			Locks: func(t *testing.T, label string) (*tier.Registry, error) {
				return redislock.New(t.Context(), dial(t, server), tier.WithLabel(label))
			},
			Forget: func() error { // it is another primary after this
				client := dial(t, server)
				return errors.Join(client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(), client.ReplicaOf(t.Context(), "NO", "ONE").Err())
			},
		}
	})
}

// Locks of other libraries are seen, and nobody is told that they could be asked or broken.
func TestLocksOfOthersAreSeen(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client, env := dial(t, server), at(server.Addr())
	need.OK(t, client.SetNX(t.Context(), "others:report", "theirs", time.Minute).Err())
	commandtest.Want(t, env, "who others:report", 0, `0 +holds +other +\? +- +0 +- +-`)
	commandtest.Want(t, env, "doctor others:report", 0, "says nothing of itself", "(?m)^theirs\n.*\n +ok +the key of the lock expires in ",
		"DEL can")
	commandtest.Want(t, env, "run -n others:report -- true", 75)
	commandtest.Want(t, env, "revoke others:report", 1, "its owner would not hear of it")
	commandtest.Want(t, env, "break others:report -token 1 -yes", 1, "nothing was deleted")
	need.OK(t, client.Persist(t.Context(), "others:report").Err())
	commandtest.Want(t, env, "doctor others:report", 1, "problem +the key does not expire")
}

// Locks are found by their queues, whatever divides their names.
func TestLocksAreFound(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	locks := need.Get(redislock.New(t.Context(), dial(t, server)))(t)
	defer locks.Close()
	paths := []string{"found:a", "found:a:b", "found/a", "found:{tag}:c", "foundling"}
	for _, path := range paths {
		hold := need.Get(locks.Mutex(path).Acquire(t.Context()))(t)
		defer hold.Release()
	}
	for below, want := range map[string][]string{
		"found":   {"found/a", "found:a", "found:a:b", "found:{tag}:c"},
		"found:a": {"found:a", "found:a:b"}, "foun": nil, "foundling": {"foundling"},
	} {
		got, looked, complete, err := keys{dial(t, server)}.paths(t.Context(), below, 1_000_000)
		slices.Sort(got)
		need.That(t, fmt.Sprintf("below %s: %q, looked at %d, complete: %t, %v; want %q", below, got, looked, complete, err, want),
			err == nil && slices.Equal(got, want) && complete && looked != 0)
	}
	commandtest.Want(t, at(server.Addr()), "ls found:a", 0, `(?m)^found:a +1 `, `(?m)^found:a:b +1 `)
}

// Credentials come from the environment or a file, and a URL says which database.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
	root := dial(t, server)
	need.OK(t, root.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all").Err())
	wrong := append(at(server.Addr()), "TIERLOCK_AUTH=worker:wrong")
	commandtest.Want(t, wrong, "who /x", 69, "WRONGPASS")
	commandtest.Want(t, append(at(server.Addr()), "TIERLOCK_AUTH=hunter2"), "who /x", 64, "TIERLOCK_AUTH: want user:password")
	right := append(at(fmt.Sprintf("redis://%s/3", server.Addr())), "TIERLOCK_AUTH=worker:secret")
	commandtest.Want(t, right, "run -session 1s /x -- true", 0)
	third := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3})
	defer third.Close()
	need.AtLeast(t, "keys in database 3", need.Get(third.DBSize(t.Context()).Result())(t), 1)
	need.Equal(t, "keys in database 0", need.Get(root.DBSize(t.Context()).Result())(t), 0)
}
