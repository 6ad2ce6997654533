package redislock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/tier"
)

func TestTier(t *testing.T) {
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 2, redisserver.Config{NoSync: true})
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, ensembleHarness(t, e))
	}).Record(t, "Redis", "../docs/promises/redis.md")
}

// ensembleHarness returns the harness with which the tier suite runs on a primary and its replicas.
func ensembleHarness(t *testing.T, e *redisserver.Ensemble) tiertest.Harness {
	check := func(err error) { need.WantErr(t, "the harness", err, nil) }
	inQueue := func(path, command string, args ...string) ([]string, error) {
		return redisserver.Ask(leaderOf(e), append([]string{command, keysOf(path)[1]}, args...)...)
	}
	left := func(path string) int {
		count, err := inQueue(path, "ZCARD")
		if err != nil {
			return -1
		}
		n, _ := strconv.Atoi(count[0])
		return n
	}
	return tiertest.Harness{
		Lease: ttl,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			return launch(tb, e.Addrs(), tier.WithLeaseTTL(lease)).forSuite()
		},
		Left:        left,
		LeftPermits: func(path string) int { return left(at(queue.Ref{Path: path, Permits: 1})) },
		Writes: func() int64 {
			n, err := writesIn(leaderOf(e))
			check(err)
			return n
		},
		Remove: func(path string, i int) {
			place := strconv.Itoa(i)
			ids, err := inQueue(path, "ZRANGE", place, place)
			if err == nil && len(ids) == 0 {
				err = errors.New("no server answers")
			}
			if err == nil {
				_, err = inQueue(path, "ZREM", ids[0])
			}
			check(err)
		},
		Freeze: func() (thaw func()) {
			check(e.Pause())
			return func() { check(e.Resume()) }
		},
		Failover: func() { check(e.Failover(context.Background())) },
		Forgets:  true,
		Restart:  func() { check(e.Restart(context.Background())) },
	}
}

// leaderOf returns the address of the primary, and "" if there is none.
func leaderOf(e *redisserver.Ensemble) string {
	for _, s := range e.Members {
		if mode, err := s.Mode(); err == nil && mode == "leader" {
			return s.Addr()
		}
	}
	return ""
}

// forSuite returns the process in the form that the suite needs. Its Close also closes the client, because the suite closes only
// registries.
func (p *process) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     withClient{p.tier, p},
		Cut:      p.wire.sever,
		Kill:     p.kill,
		Messages: func(hook func() bool) { p.wire.on("all", hook) },
		Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
		Sleep:    func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
	}
}

// withClient closes the process's client together with its registry.
type withClient struct {
	*queue.Tier
	process *process
}

func (p withClient) Close() error {
	p.Tier.Close()
	p.process.end()
	return nil
}

// writesIn counts the transactions in the append-only file of a server, which the server writes before it answers. Transactions that only
// renew leases do not count. In the file, a command begins with "*" and the number of its words, and each word follows its length. No value
// in the tests begins with a star.
func writesIn(addr string) (n int64, err error) {
	dir, err := redisserver.Ask(addr, "CONFIG", "GET", "dir")
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir[1], "appendonlydir", "*.incr.aof"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		inside, counts := false, false
		for _, command := range strings.Split("\r\n"+string(text), "\r\n*")[1:] {
			words := append(strings.Split(command, "\r\n"), "", "", "") // the last command in the file may be incomplete
			switch strings.ToUpper(words[2]) {
			case "MULTI":
				inside, counts = true, false
				continue
			case "EXEC":
				inside = false
			case "SELECT", "PEXPIRE", "PEXPIREAT":
			case "ZADD":
				counts = counts || !strings.HasSuffix(words[4], ":leases")
			case "SET":
				counts = counts || !strings.HasPrefix(words[4], records)
			default:
				counts = true
			}
			if !inside && counts {
				n++
				counts = false
			}
		}
	}
	return n, err
}
