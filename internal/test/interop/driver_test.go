package interop_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/dropin"
)

// A driver is a process with one lock. It may be written in any language:
//
//	driver <host:port> <path> <session timeout in ms> <kind>
//
// It opens its session, and answers with the id of the session. Then it executes the orders on its standard input, one after the other.
// Each line is an order:
//
//	acquire [<ms> [<units>]]        wait for the lock, or for <units> of it; at most <ms>, unless that is 0 (not zk.Lock)
//	downgrade                       become a reader, as a writer
//	release
//	yield                           wait until a process asks for the lock, and release it (Curator's revocable mutex)
//	revoke <node>                   ask the owner of a node for the lock (Curator)
//	leader                          answer which process is the leader (a LeaderSelector)
//	contend <ms> <threads> <section in ms> <file> <all> <turn>…
//
// The order contend makes each thread acquire the lock again and again, and the oracle in <file> checks that. If <file> is "-", there is no
// check (Curator). The lock has <all> units, and each <turn> says how many of them to take. For a reader/writer lock, a turn of 1 reads,
// and a larger turn writes. The turn 9>1 writes, and then becomes a reader. The threads begin with different turns of the list. Each thread
// makes at least one acquisition, and exactly one if <ms> is 0.
//
// The driver answers each order with one line of JSON, an [answer]. The end of the input ends the session and the process, whatever the
// driver is doing.

// If the environment variable driverEnv is set, the test binary is a driver.
const driverEnv = "TIERLOCK_INTEROP_DRIVER"

type answer struct {
	Session  int64  `json:",omitempty"` // in the first answer: id of the session
	TimedOut bool   `json:",omitempty"` // answer to acquire: the time is over
	Turns    int64  `json:",omitempty"` // answer to contend: turns of all threads
	Alone    int64  `json:",omitempty"` // answer to contend: turns that took all units
	Fewest   int64  `json:",omitempty"` // answer to contend: turns of the thread that had the fewest
	Overlaps int64  `json:",omitempty"` // answer to contend: acquisitions during which another holder was inside
	GivenUp  int64  `json:",omitempty"` // answer to contend: acquisitions that took too long (kazoo's reader/writer lock)
	Leader   string `json:",omitempty"` // answer to leader
	Error    string `json:",omitempty"`
}

// A goLock is one contender of the Go driver. Its methods are not called concurrently. If units is 0, acquire takes the default number.
type goLock interface {
	acquire(ctx context.Context, units int64) error
	release() error
}

// A downgrader is a lock whose writer can become a reader.
type downgrader interface{ downgrade() error }

// A goClient is the Go driver's connection.
type goClient struct {
	session int64
	newLock func() goLock
	close   func()
}

func driverMain(args []string) int {
	millis, err := strconv.Atoi(args[2])
	if err != nil {
		panic(err)
	}
	client, err := dialKind(args[3], args[0], args[1], time.Duration(millis)*time.Millisecond)
	if err != nil {
		reply(answer{Error: err.Error()})
		return 1
	}
	reply(answer{Session: client.session})
	orders := make(chan []string)
	go func() {
		lock := client.newLock()
		for order := range orders {
			a, err := obey(client, lock, order)
			if err != nil {
				a.Error = err.Error()
			}
			reply(a)
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		orders <- strings.Fields(in.Text())
	}
	client.close()
	return 0
}

func dialKind(kind, addr, path string, timeout time.Duration) (*goClient, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if kind == "zk" || kind == "tier-zk" {
		return dialConn(ctx, kind, addr, path, timeout)
	}
	opts := []tier.RegistryOption{tier.WithLeaseTTL(timeout)}
	own, kazoo := strings.CutSuffix(kind, "-kazoo")
	if kazoo {
		opts = append(opts, zklock.WithKazoo())
	}
	if own == "election" {
		opts = append(opts, zklock.WithNodeData([]byte("ours")))
	}
	if kind == "tier-strict" {
		opts = append(opts, tier.WithStrictOrder())
	}
	locks, err := zklock.Dial(ctx, addr, opts...)
	if err != nil {
		return nil, err
	}
	newLock := func() goLock { return &tierLock{mu: locks.Mutex(path)} }
	switch own {
	case "tier-rw", "tier-write":
		newLock = func() goLock { return &sides{RWMutex: locks.RWMutex(path), usual: everything} }
	case "tier-read":
		newLock = func() goLock { return &sides{RWMutex: locks.RWMutex(path), usual: 1} }
	case "election":
		newLock = func() goLock { return &candidacy{election: election.New(locks, path)} }
	}
	if n, ok := strings.CutPrefix(own, "tier-semaphore-"); ok {
		permits, err := strconv.Atoi(n)
		if err != nil {
			return nil, err
		}
		newLock = func() goLock { return &someOf{semaphore: locks.Semaphore(path, permits)} }
	}
	return &goClient{0, newLock, func() { locks.Close() }}, nil
}

// dialConn connects a client that uses zk.Lock, or dropin.Lock, which replaces it.
func dialConn(ctx context.Context, kind, addr, path string, timeout time.Duration) (*goClient, error) {
	conn, _, err := zkconn.Open(ctx, []string{addr}, timeout, nil)
	if err != nil {
		return nil, err
	}
	acl := zk.WorldACL(zk.PermAll)
	newLock := func() goLock { return connLock{zk.NewLock(conn, path, acl)} }
	if kind == "tier-zk" {
		newLock = func() goLock { return connLock{dropin.NewLock(conn, path, acl)} }
	}
	return &goClient{conn.SessionID(), newLock, conn.Close}, nil
}

func obey(client *goClient, lock goLock, order []string) (answer, error) {
	switch order[0] {
	case "acquire":
		return acquireWithin(lock, order[1:])
	case "downgrade":
		return answer{}, lock.(downgrader).downgrade()
	case "release":
		return answer{}, lock.release()
	case "contend":
		c, err := newContention(client, order[1:])
		if err != nil {
			return answer{}, err
		}
		defer c.oracle.file.Close()
		return c.run()
	default:
		return answer{}, fmt.Errorf("no such order: %s", order[0])
	}
}

// acquireWithin executes an order to acquire. The order may contain a number of milliseconds and a number of units.
func acquireWithin(lock goLock, order []string) (answer, error) {
	var numbers [2]int64
	for i, s := range order {
		var err error
		if numbers[i], err = strconv.ParseInt(s, 10, 64); err != nil {
			return answer{}, err
		}
	}
	ctx := context.Background()
	if millis := numbers[0]; millis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(millis)*time.Millisecond)
		defer cancel()
	}
	err := lock.acquire(ctx, numbers[1])
	if errors.Is(err, context.DeadlineExceeded) {
		return answer{TimedOut: true}, nil
	}
	return answer{}, err
}

func reply(a answer) {
	_ = json.NewEncoder(os.Stdout).Encode(a) // if the parent has stopped reading, it will end this process
}

// A connLock is a zk.Lock or a dropin.Lock.
type connLock struct {
	lock interface {
		LockWithData(data []byte) error
		Unlock() error
	}
}

func (l connLock) acquire(context.Context, int64) error {
	return l.lock.LockWithData([]byte("interop"))
}
func (l connLock) release() error { return l.lock.Unlock() }

type tierLock struct {
	mu   *tier.Mutex
	hold *tier.Hold
}

func (l *tierLock) acquire(ctx context.Context, _ int64) (err error) {
	l.hold, err = l.mu.Acquire(ctx)
	return err
}

func (l *tierLock) release() error { return l.hold.Release() }

// The type sides contains the two sides of a reader/writer lock.
type sides struct {
	*tier.RWMutex
	usual int64
	hold  *tier.Hold
}

func (s *sides) acquire(ctx context.Context, units int64) (err error) {
	if cmp.Or(units, s.usual) == 1 {
		s.hold, err = s.Reader().Acquire(ctx)
	} else {
		s.hold, err = s.Writer().Acquire(ctx)
	}
	return err
}

func (s *sides) downgrade() error {
	reader, err := s.Reader().Acquire(s.hold.Context(context.Background()))
	err = errors.Join(err, s.hold.Release())
	s.hold = reader
	return err
}

func (s *sides) release() error { return s.hold.Release() }

// A someOf holds permits of a semaphore.
type someOf struct {
	semaphore *tier.Semaphore
	permits   *tier.Permits
}

func (s *someOf) acquire(ctx context.Context, units int64) (err error) {
	s.permits, err = s.semaphore.Acquire(ctx, int(max(units, 1)))
	return err
}

func (s *someOf) release() error { return s.permits.Release() }

// A candidacy is leadership in an election, used as a lock.
type candidacy struct {
	election *election.Election
	end      chan struct{}
	ended    chan error
}

func (c *candidacy) acquire(context.Context, int64) error {
	begun := make(chan struct{})
	c.end, c.ended = make(chan struct{}), make(chan error, 1)
	go func() {
		c.ended <- c.election.Run(context.Background(), func(context.Context, int64) error {
			close(begun)
			<-c.end
			return election.ErrStop
		})
	}()
	select {
	case <-begun:
		return c.election.IsLeader()
	case err := <-c.ended:
		return err
	}
}

func (c *candidacy) release() error {
	close(c.end)
	return <-c.ended
}
