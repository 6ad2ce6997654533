package redislock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/tiertest"
)

func TestTier(t *testing.T) {
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, ensembleHarness(t, e))
	}).Record(t, "Redis", "../docs/promises/redis.md")
}

// ensembleHarness is a primary and its replicas.
func ensembleHarness(t *testing.T, e *redisserver.Ensemble) tiertest.Harness {
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	inQueue := func(path, command string, args ...string) ([]string, error) {
		leader, err := leaderOf(e)
		if err != nil {
			return nil, err
		}
		return redisserver.Ask(leader, append([]string{command, keysOf(path)[1]}, args...)...)
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
			return launch(tb, e.Addrs(), WithLeaseTTL(lease)).forSuite()
		},
		Left:        left,
		LeftPermits: func(path string) int { return left(at(queue.Ref{Path: path, Permits: 1})) },
		Writes: func() int64 {
			leader, err := leaderOf(e)
			check(err)
			n, err := writesIn(leader)
			check(err)
			return n
		},
		Remove: func(path string, i int) {
			place := strconv.Itoa(i)
			ids, err := inQueue(path, "ZRANGE", place, place)
			if err == nil && len(ids) == 0 {
				err = errors.New("nobody there")
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

func leaderOf(e *redisserver.Ensemble) (addr string, err error) {
	for _, s := range e.Members {
		if mode, err := s.Mode(); err == nil && mode == "leader" {
			return s.Addr(), nil
		}
	}
	return "", errors.New("no primary")
}

// forSuite is the process as the suite takes it, which closes no clients.
func (p *process) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     withClient{p.tier, p},
		Cut:      p.wire.sever,
		Kill:     p.kill,
		Messages: p.wire.messages,
		Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
	}
}

// withClient is a process whose client is its own.
type withClient struct {
	*queue.Tier
	process *process
}

func (p withClient) Close() error {
	p.Tier.Close()
	p.process.end()
	return nil
}

// writesIn counts the transactions in the append-only file of a server, which is written before it
// answers: without those that only keep leases.
func writesIn(addr string) (n int64, err error) {
	dir, err := redisserver.Ask(addr, "CONFIG", "GET", "dir")
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob(filepath.Join(dir[1], "appendonlydir", "*.incr.aof"))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		some, err := transactions(file)
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

func transactions(file string) (n int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	inside, counts := false, false
	for {
		words, err := command(r)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		switch strings.ToUpper(words[0]) {
		case "MULTI":
			inside, counts = true, false
			continue
		case "EXEC":
			inside = false
		case "SELECT", "PEXPIRE", "PEXPIREAT":
		case "ZADD":
			counts = counts || !strings.HasSuffix(words[1], ":leases")
		case "SET":
			counts = counts || !strings.HasPrefix(words[1], records)
		default:
			counts = true
		}
		if !inside && counts {
			n++
			counts = false
		}
	}
}

// command reads one command of an append-only file.
func command(r *bufio.Reader) (words []string, err error) {
	var n int
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, io.EOF
	}
	if _, err := fmt.Sscanf(line, "*%d\r\n", &n); err != nil {
		return nil, fmt.Errorf("%q: %w", line, err)
	}
	for range n {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, io.EOF
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(slices.Clip(word[:size])))
	}
	return words, nil
}
