package redislock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
)

// A sentinel is a real Redis Sentinel that watches the servers of an ensemble.
type sentinel struct {
	redis, dir, addr, primary string
}

func (s *sentinel) Command() (*exec.Cmd, error) {
	config := filepath.Join(s.dir, "sentinel.conf")
	text := fmt.Sprintf(`bind 127.0.0.1
port %s
dir %s
sentinel monitor locks 127.0.0.1 %s 2
sentinel down-after-milliseconds locks 1000
sentinel failover-timeout locks 6000
`, portOf(s.addr), s.dir, portOf(s.primary))
	return exec.Command(s.redis, config, "--sentinel"), os.WriteFile(config, []byte(text), 0o600)
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

func (s *sentinel) Serves() bool {
	dir, err := redisserver.Ask(s.addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")
	return err == nil && len(dir) == 2
}

func (s *sentinel) Mode() (string, error) { return "follower", nil }

func (s *sentinel) Version() (string, error) { return "", errors.ErrUnsupported }

// startSentinels starts three sentinels. When it returns, they know one another and all servers.
func startSentinels(t *testing.T, e *redisserver.Ensemble) *child.Ensemble {
	t.Helper()
	command := need.Get(e.Members[0].Command())(t)
	sentinels := need.Get(child.Start(soon(t), func() (*child.Ensemble, error) {
		all := new(child.Ensemble)
		for range 3 {
			port, err := child.FreePort()
			if err != nil {
				return nil, errors.Join(err, all.Stop())
			}
			addr, dir := fmt.Sprint("127.0.0.1:", port), t.TempDir()
			program := &sentinel{redis: command.Path, dir: dir, addr: addr, primary: e.Members[0].Addr()}
			all.Members = append(all.Members, child.New(child.Kind{Package: "sentinel", Taken: "Address already in use"}, dir, addr, program))
		}
		return all, nil
	}))(t)
	t.Cleanup(func() { sentinels.Stop() })
	for _, s := range sentinels.Members {
		eventually(t, "a sentinel knows all", func() bool {
			state, err := redisserver.Ask(s.Addr(), "SENTINEL", "MASTER", "locks")
			return err == nil && figure(state, "num-slaves") >= 2 && figure(state, "num-other-sentinels") >= 2
		})
	}
	return sentinels
}

// figure returns the number that follows a name in the state of a sentinel. It may be too high, because a sentinel also counts former
// sentinels that were restarted on another port.
func figure(state []string, name string) int {
	if i := slices.Index(state, name); 0 <= i && i+1 < len(state) {
		n, _ := strconv.Atoi(state[i+1])
		return n
	}
	return 0
}

// Sentinels promote a replica by themselves. The new primary grants no lock in its grace period, and grants locks after it.
func TestSentinelsPromoteAReplicaAndNothingIsGrantedInItsGracePeriod(t *testing.T) {
	t.Parallel()
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 3, redisserver.Config{NoSync: true})
	sentinels := startSentinels(t, e)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: sentinels.Addrs()})
	locks := registry(t, client, WithNewServer())
	take(t, locks, "met")

	e.Members[0].Kill()
	var all sync.WaitGroup
	var grants [10]time.Time
	for i := range grants {
		all.Go(func() {
			hold, err := locks.Mutex(fmt.Sprint("new:", i)).Acquire(soon(t))
			if err != nil {
				t.Error(err)
				return
			}
			grants[i] = time.Now()
			hold.Release() // on a slow machine the lock may be lost
		})
	}
	var unpromoted time.Time // when the replica was last seen before its promotion; zero if the promotion was very quick
	eventually(t, "a replica is promoted", func() bool {
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
	for i, granted := range grants {
		after := granted.Sub(unpromoted)
		need.That(t, fmt.Sprintf("path %d was granted %v after the promotion at the earliest", i, after), granted.IsZero() || after >= ttl)
	}
}
