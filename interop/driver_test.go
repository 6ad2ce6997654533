package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/dropin"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A driver is a process with one lock, in any language:
//
//	driver <host:port> <path> <session timeout in ms> <kind>
//
// It opens its session, answers with its id, and obeys the orders on its standard
// input, one a line, one after the other:
//
//	acquire [<ms>]                  wait for the lock, for so long at most (not in Go)
//	release
//	contend <ms> <threads> <file>   let each thread take turns with the oracle in file
//	leader                          say who leads (a LeaderSelector only)
//
// Each order is answered with one line of JSON, an [answer]. The end of the input ends
// the session and the process, whatever the driver is doing.

// driverEnv makes the test binary a driver.
const driverEnv = "TIERLOCK_INTEROP_DRIVER"

type answer struct {
	Session  int64  `json:",omitempty"` // at the start
	TimedOut bool   `json:",omitempty"` // to acquire
	Turns    int64  `json:",omitempty"` // to contend: of all threads
	Fewest   int64  `json:",omitempty"` // to contend: of the thread that had the fewest
	Overlaps int64  `json:",omitempty"` // to contend: turns with somebody else inside
	Leader   string `json:",omitempty"` // to leader
	Error    string `json:",omitempty"`
}

// A goLock is one contender of the Go driver. Its methods are called in turn.
type goLock interface {
	acquire() error
	release() error
}

// A goClient is the connection of the Go driver.
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
	dial := []zklock.Option{zklock.WithSessionTimeout(timeout)}
	if kind == "tier-kazoo" {
		dial = append(dial, zklock.WithKazoo())
	}
	client, err := zklock.Dial(ctx, addr, dial...)
	if err != nil {
		return nil, err
	}
	var opts []tier.Option
	if kind == "tier-strict" {
		opts = append(opts, tier.WithHandOff(0))
	}
	locks, err := tier.New(client.Tier(), opts...)
	if err != nil {
		return nil, err
	}
	newLock := func() goLock { return &tierLock{mu: locks.Mutex(path)} }
	if kind == "election" {
		newLock = func() goLock {
			return &candidacy{election: election.New(locks, path, zklock.NodeData([]byte("ours")))}
		}
	}
	return &goClient{0, newLock, func() { locks.Close() }}, nil
}

// dialConn is for zk.Lock, and for ours in its place.
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
		if len(order) > 1 {
			return answer{}, errors.New("no acquire with a timeout in Go")
		}
		return answer{}, lock.acquire()
	case "release":
		return answer{}, lock.release()
	case "contend":
		millis, err1 := time.ParseDuration(order[1] + "ms")
		threads, err2 := strconv.Atoi(order[2])
		o, err3 := openOracle(order[3])
		if err := errors.Join(err1, err2, err3); err != nil {
			return answer{}, err
		}
		defer o.file.Close()
		return contend(client, o, millis, threads)
	default:
		return answer{}, fmt.Errorf("no such order: %s", order[0])
	}
}

// contend lets each of some goroutines take turns for a while.
func contend(client *goClient, o *oracle, d time.Duration, threads int) (answer, error) {
	end := time.Now().Add(d)
	answers, errs := make([]answer, threads), make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() { answers[i], errs[i] = takeTurns(client.newLock(), o, end) })
	}
	wg.Wait()
	sum := answer{Fewest: answers[0].Turns}
	for _, a := range answers {
		sum.Turns += a.Turns
		sum.Overlaps += a.Overlaps
		sum.Fewest = min(sum.Fewest, a.Turns)
	}
	return sum, errors.Join(errs...)
}

func takeTurns(lock goLock, o *oracle, end time.Time) (a answer, err error) {
	for ; time.Now().Before(end); a.Turns++ {
		if err := lock.acquire(); err != nil {
			return a, err
		}
		overlap, err := o.visit()
		if err := errors.Join(err, lock.release()); err != nil {
			return a, err
		}
		if overlap {
			a.Overlaps++
		}
	}
	return a, nil
}

func reply(a answer) {
	_ = json.NewEncoder(os.Stdout).Encode(a) // whoever does not read it any more will end this process
}

// A connLock is a zk.Lock or its replacement.
type connLock struct {
	lock interface {
		LockWithData(data []byte) error
		Unlock() error
	}
}

func (l connLock) acquire() error { return l.lock.LockWithData([]byte("interop")) }
func (l connLock) release() error { return l.lock.Unlock() }

type tierLock struct {
	mu   *tier.Mutex
	hold *tier.Hold
}

func (l *tierLock) acquire() (err error) {
	l.hold, err = l.mu.Acquire(context.Background())
	return err
}

func (l *tierLock) release() error { return l.hold.Release() }

// A candidacy leads while somebody has it as a lock.
type candidacy struct {
	election *election.Election
	end      chan struct{}
	ended    chan error
}

func (c *candidacy) acquire() error {
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
		return c.election.IsLeader(context.Background())
	case err := <-c.ended:
		return err
	}
}

func (c *candidacy) release() error {
	close(c.end)
	return <-c.ended
}
