//go:build linux || darwin || freebsd

package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, func() (*redisserver.Server, error) {
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

// take acquires a lock in the first process at a server. Later processes then have no grace period.
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

func at(addr string) []string { return []string{"TIERLOCK_STORE=redis://" + addr} }

// operate returns a client such as operators use.
func operate(t *testing.T, server *redisserver.Server) *redis.Client {
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
				return redislock.New(t.Context(), operate(t, server), tier.WithLabel(label))
			},
			Forget: func() error { // makes the server look like another primary
				client := operate(t, server)
				return errors.Join(client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(), client.ReplicaOf(t.Context(), "NO", "ONE").Err())
			},
		}
	})
}

// The command shows locks of other libraries. It does not say that they can be revoked or broken.
func TestLocksOfOthersAreSeen(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client, env := operate(t, server), at(server.Addr())
	need.OK(t, client.SetNX(t.Context(), "others:report", "theirs", time.Minute).Err())
	commandtest.Want(t, env, "who others:report", 0, `0 +holds +other +\? +- +0 +- +-`)
	commandtest.Want(t, env, "doctor others:report", 0, "has no description", "(?m)^theirs\n.*\n +ok +the key of the lock expires in ",
		"DEL can")
	commandtest.Want(t, env, "run -n others:report -- true", 75)
	commandtest.Want(t, env, "revoke others:report", 1, "ignores requests")
	commandtest.Want(t, env, "break others:report -token 1 -yes", 1, "nothing was deleted")
	need.OK(t, client.Persist(t.Context(), "others:report").Err())
	commandtest.Want(t, env, "doctor others:report", 1, "problem +the key does not expire")
}

// The command finds locks by their queues, whatever separators their names have.
func TestLocksAreFound(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	locks := need.Get(redislock.New(t.Context(), operate(t, server)))(t)
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
		got, looked, complete, err := keys{operate(t, server)}.paths(t.Context(), below, 1_000_000)
		slices.Sort(got)
		need.That(t, fmt.Sprintf("below %s: %q, looked at %d, complete: %t, %v; want %q", below, got, looked, complete, err, want),
			err == nil && slices.Equal(got, want) && complete && looked != 0)
	}
	commandtest.Want(t, at(server.Addr()), "ls found:a", 0, `(?m)^found:a +1 `, `(?m)^found:a:b +1 `)
}

// Credentials come from the environment or a file, and the URL names the database.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
	root := operate(t, server)
	need.OK(t, root.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all").Err())
	wrong := append(at(server.Addr()), "TIERLOCK_AUTH=worker:wrong")
	commandtest.Want(t, wrong, "who /x", 69, "WRONGPASS")
	commandtest.Want(t, append(at(server.Addr()), "TIERLOCK_AUTH=hunter2"), "who /x", 64, "TIERLOCK_AUTH: want user:password")
	right := append(at(server.Addr()+"/3"), "TIERLOCK_AUTH=worker:secret")
	commandtest.Want(t, right, "run -session 1s /x -- true", 0)
	commandtest.Want(t, at("worker:secret@"+server.Addr()+"/3"), "run -session 1s /x -- true", 0)
	third := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3})
	defer third.Close()
	need.AtLeast(t, "keys in database 3", need.Get(third.DBSize(t.Context()).Result())(t), 1)
	need.Equal(t, "keys in database 0", need.Get(root.DBSize(t.Context()).Result())(t), 0)
}

// With addr=, the URL names a cluster. Each lock is read and broken at the server that has it.
func TestClusterIsFoundByItsURL(t *testing.T) {
	t.Parallel()
	c := childtest.StartEnsemble(t, redisserver.StartCluster, 3, redisserver.Config{NoSync: true})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	locks := need.Get(redislock.New(t.Context(), client, redislock.WithNewServer()))(t)
	defer locks.Close()
	env := at(c.Addrs()[0] + "?addr=" + c.Addrs()[1])
	patterns := make([]string, 20)
	for i := range patterns {
		path := fmt.Sprint("spread:", i)
		hold := need.Get(locks.Mutex(path).Acquire(need.Within(t, time.Minute)))(t)
		defer hold.Release()
		patterns[i] = fmt.Sprintf(`(?m)^%s +1 `, path)
	}
	commandtest.Want(t, env, "ls spread", 0, patterns...)
	for i := range 3 { // the error comes from the primary of the lock, which has a replica
		commandtest.Want(t, env, fmt.Sprint("doctor spread:", i), 1, "the key of the lock expires in",
			"min-replicas-to-write is 0: after a failover the former primary")
	}
	broken := need.Get(locks.Mutex("broken").Acquire(need.Within(t, time.Minute)))(t)
	commandtest.Want(t, env, fmt.Sprintf("break broken -yes -token %d", broken.Token()), 0, "the lock is free now")
	commandtest.Want(t, env, "run -n broken -- true", 0)
}

// With master_name=, the URL names sentinels and a user for them. The command asks them for the primary.
func TestSentinelsAreAskedForThePrimary(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	_, port, err := net.SplitHostPort(server.Addr())
	need.OK(t, err)
	own := need.Get(child.FreePort())(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %d\nuser watcher on >secret ~* &* +@all\nsentinel monitor locks 127.0.0.1 %s 1\n", own, port)
	need.OK(t, os.WriteFile(config, []byte(text), 0o600))
	sentinel := exec.CommandContext(t.Context(), need.Get(server.Command())(t).Path, config, "--sentinel")
	need.OK(t, sentinel.Start())
	defer sentinel.Wait()
	defer sentinel.Process.Kill()
	env := at(fmt.Sprintf("watcher:secret@127.0.0.1:%d?master_name=locks", own))
	commandtest.Want(t, env, "run /by-sentinel -- true", 0)
	commandtest.Want(t, env, "ls", 0)
	wrong := at(fmt.Sprintf("watcher:hunter2@127.0.0.1:%d?master_name=locks", own))
	commandtest.Want(t, wrong, "-connect-timeout 1s ls", 69)
}
