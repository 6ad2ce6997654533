package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/child"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/tier"
)

// A sentinel is a real one, which watches over the servers of an ensemble.
type sentinel struct {
	redis, dir, addr, primary string
}

func (s *sentinel) Command() (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return nil, err
	}
	primaryHost, primaryPort, err := net.SplitHostPort(s.primary)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf(`bind %s
port %s
dir %s
sentinel monitor locks %s %s 2
sentinel down-after-milliseconds locks 1000
sentinel failover-timeout locks 6000
`, host, port, s.dir, primaryHost, primaryPort)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return exec.Command(s.redis, config, "--sentinel"), nil
}

func (s *sentinel) Serves() bool {
	dir, err := redisserver.Ask(s.addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")
	return err == nil && len(dir) == 2
}

func (s *sentinel) Mode() (string, error) { return "follower", nil }

func (s *sentinel) Version() (string, error) { return "", errors.ErrUnsupported }

// startSentinels starts three, which know one another and all servers when it returns.
func startSentinels(t *testing.T, e *redisserver.Ensemble) *child.Ensemble {
	t.Helper()
	command, err := e.Members[0].Command()
	if err != nil {
		t.Fatal(err)
	}
	sentinels, err := child.Start(longer(t), func() (*child.Ensemble, error) {
		all := new(child.Ensemble)
		for range 3 {
			port, err := child.FreePort()
			if err != nil {
				return nil, errors.Join(err, all.Stop())
			}
			addr, dir := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), t.TempDir()
			program := &sentinel{redis: command.Path, dir: dir, addr: addr, primary: e.Members[0].Addr()}
			all.Members = append(all.Members, child.New(child.Kind{Package: "sentinel", Taken: "Address already in use"}, dir, addr, program))
		}
		return all, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sentinels.Stop() })
	for _, s := range sentinels.Members {
		patiently(t, "a sentinel knows all", func() bool {
			state, err := redisserver.Ask(s.Addr(), "SENTINEL", "MASTER", "locks")
			return err == nil && after(state, "num-slaves") == "2" && after(state, "num-other-sentinels") == "2"
		})
	}
	return sentinels
}

// after is the word that follows a name.
func after(words []string, name string) string {
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] == name {
			return words[i+1]
		}
	}
	return ""
}

// patiently waits for what only the load of the machine delays.
func patiently(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := longer(t)
	if child.Until(ctx, holds) != nil {
		t.Fatalf("never: %s", what)
	}
}

// Sentinels promote a replica by themselves. What the new primary knows to be held stays held or is lost, and
// nobody else has it meanwhile; of other paths none is granted in the quarantine, and all are after it.
func TestSentinelsPromoteAReplicaAndNothingIsGrantedInItsQuarantine(t *testing.T) {
	t.Parallel()
	e := redisservertest.StartEnsemble(t, 3, redisserver.Config{NoSync: true})
	known(t, e)
	sentinels := startSentinels(t, e)
	registry := func() *tier.Registry {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: sentinels.Addrs()})
		t.Cleanup(func() { client.Close() })
		locks, err := New(client, WithLeaseTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	holder, others := registry(), registry()
	met, err := others.Mutex("met").Acquire(longer(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := met.Release(); err != nil {
		t.Error(err)
	}
	hold, err := holder.Mutex("held").Acquire(longer(t))
	if err != nil {
		t.Fatal(err)
	}

	e.Members[0].Kill()
	var all sync.WaitGroup
	acquire := func(path string, granted func()) {
		all.Go(func() {
			h, err := others.Mutex(path).Acquire(longer(t))
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return
			}
			granted()
			if err := h.Release(); err != nil {
				t.Logf("%s: %v", path, err) // a slow machine may lose it
			}
		})
	}
	grants := make([]time.Time, 10)
	for i := range grants {
		acquire(fmt.Sprint("new:", i), func() { grants[i] = time.Now() })
	}
	released := make(chan struct{})
	acquire("held", func() {
		select {
		case <-released:
		default:
			if hold.Err() == nil {
				t.Error("granted to another process while the holder believes to have it")
			}
		}
	})
	time.AfterFunc(2*ttl, func() { // its lease is over by then unless it was renewed at the new primary
		close(released)
		hold.Release()
	})
	var unpromoted time.Time // when it was last seen, and never if the sentinels were hasty
	patiently(t, "a replica is promoted", func() bool {
		asked := time.Now()
		for _, s := range e.Members[1:] {
			if role, err := redisserver.Ask(s.Addr(), "ROLE"); err != nil || role[0] != "slave" {
				return err == nil
			}
		}
		unpromoted = asked
		return false
	})
	all.Wait()
	<-released
	for i, granted := range grants {
		if d := granted.Sub(unpromoted); d < ttl && !granted.IsZero() {
			t.Errorf("path %d was granted %v after the promotion at the earliest, in the quarantine of %v", i, d, ttl)
		}
	}
}

// longer bounds a wait whose length the load of the machine decides.
func longer(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
