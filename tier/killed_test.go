package tier_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// holderEnv makes the test binary a process that takes a lock at the server named by it.
const (
	holderEnv     = "TIERLOCK_TEST_HOLDER"
	holderPath    = "/killed/lock"
	holderTimeout = time.Second
)

func holdUntilKilled(addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	locks, err := tierlock.Dial(ctx, addr, zklock.WithSessionTimeout(holderTimeout))
	if err == nil {
		_, err = locks.Mutex(holderPath).Acquire(ctx)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	<-ctx.Done()
	os.Exit(1)
}

// kill -9 leaves the lock taken until the session ends, and no longer.
func TestKilledHolderIsSucceededWithinTheSessionTimeout(t *testing.T) {
	addr := realServer(t)
	mu := zkDial(t, addr).Mutex(holderPath)
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), holderEnv+"="+addr)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "held\n" {
		t.Fatalf("holder says %q, %v; want that it holds the lock", line, err)
	}
	next := start(soon(t), mu)
	awaitContenders(t, mu, 2)
	if !next.pending() {
		t.Fatal("Acquire returned while another process holds the lock")
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = victim.Wait() // says that it was killed
	hold := next.granted(t)
	// The server may have heard of the victim just before, and rounds up to its tick.
	if took, bound := time.Since(killed), holderTimeout+tick+time.Second; took > bound {
		t.Errorf("the next owner came %v after the kill, want at most %v", took, bound)
	}
	release(t, hold)
}

func TestSecondProcessReallyWaits(t *testing.T) { // I1
	addr := realServer(t)
	mu, other := zkDial(t, addr).Mutex("/second/lock"), zkDial(t, addr).Mutex("/second/lock")
	hold := acquire(t, mu)
	next := start(soon(t), other)
	awaitContenders(t, mu, 2)
	if !next.pending() {
		t.Fatal("two processes have the lock")
	}
	last := hold.Token()
	release(t, hold)
	hold = next.granted(t)
	if hold.Token() <= last {
		t.Errorf("token after %d: got %d, want a higher one", last, hold.Token())
	}
	release(t, hold)
	awaitContenders(t, mu, 0)
}

// Empty parents are the server's to remove, which it does with containers only.
func TestNoEmptyParentsStayOnTheServer(t *testing.T) { // I5
	addr := realServer(t)
	locks := zkDial(t, addr)
	conn := outsider(t, addr, net.DialTimeout)
	for i := range 30 {
		release(t, acquire(t, locks.Mutex(fmt.Sprint("/parents/", i, "/lock"))))
	}
	eventually(t, "the parents are gone", func() bool {
		exists, _, err := conn.Exists("/parents")
		return err == nil && !exists
	})
}

func awaitContenders(t *testing.T, mu *tier.Mutex, want int) {
	t.Helper()
	ctx := soon(t)
	eventually(t, fmt.Sprintf("%d contenders", want), func() bool {
		queue, err := mu.Contenders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(queue) == want
	})
}

// eventually polls a condition that a real server brings about.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); <-poll.C { // then it never is, on any machine
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
