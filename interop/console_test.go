package interop_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A console is cmd/tierlock as an operator has it.
type console struct{ binary, addr, path string }

func newConsole(t *testing.T, e *ensemble) console {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tierlock")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/tierlock").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return console{binary, e.addr, e.path}
}

// run returns what the command prints.
func (c console) run(t *testing.T, status int, args ...string) string {
	t.Helper()
	cmd := exec.Command(c.binary, args...)
	cmd.Env = append(os.Environ(), "TIERLOCK_ZK="+c.addr)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("tierlock %s: exits %d, want %d:\n%s", strings.Join(args, " "), got, status, out)
	}
	return string(out)
}

// A queued is one contender as tierlock who shows it.
type queued struct {
	Kind  zkqueue.Kind
	State string
	Token int64
	Pair  string
}

func (c console) who(t *testing.T) []queued {
	t.Helper()
	var q struct{ Contenders []queued }
	if err := json.Unmarshal([]byte(c.run(t, 0, "who", c.path, "-o", "json")), &q); err != nil {
		t.Fatal(err)
	}
	return q.Contenders
}

// What who says of a mixed queue is what the libraries do, before and after holders are broken.
func TestConsoleTellsWhoHoldsInAMixedQueue(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	c := newConsole(t, e)
	drivers := launch(t, e, sessionTimeout, "curator", "zk", "kazoo-default", "curator-write")
	curator, zkLock, kazoo, writer := drivers[0], drivers[1], drivers[2], drivers[3]

	curator.order(t, "acquire")
	e.awaitChildren(t, 1)
	ours := start(soon(t), e.tier(t, zklock.WithKazoo()))
	e.awaitChildren(t, 3)
	for i, d := range []*driver{zkLock, kazoo, writer} {
		d.order(t, "acquire")
		e.awaitChildren(t, 4+i)
	}
	time.Sleep(300 * time.Millisecond) // for all of them to look at the queue
	has := func(d *driver) bool { return len(d.answers) > 0 }
	check := func(when string, want ...string) []queued {
		t.Helper()
		queue := c.who(t)
		var got []string
		for _, q := range queue {
			got = append(got, string(q.Kind)+" "+q.State)
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Fatalf("%s: got %q, want %q", when, got, want)
		}
		return queue
	}

	queue := check("at first", "curator holds", "tierlock waits", "zk.Lock waits", "kazoo waits", "write holds")
	if !has(curator) || has(zkLock) || has(kazoo) || !has(writer) {
		t.Errorf("hold: Curator %t, zk.Lock %t, kazoo %t, writer %t", has(curator), has(zkLock), has(kazoo), has(writer))
	}
	report := c.run(t, 1, "doctor", e.path)
	for _, want := range []string{
		"problem  curator write does not wait for tierlock WithKazoo", "problem  curator does not wait for kazoo",
		`warning  kazoo waits for zk.Lock only with extra_lock_patterns=["lock-"]`, "curator, says ", "holds the lock, past 4 ahead of it",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("doctor does not say %q:\n%s", want, report)
		}
	}

	c.run(t, 1, "break", e.path, "-yes", "-token", strconv.FormatInt(queue[1].Token, 10)) // a waiter's
	c.run(t, 0, "break", e.path, "-yes", "-token", strconv.FormatInt(queue[0].Token, 10))
	hold := ours.granted(t)
	queue = check("after Curator", "tierlock holds", "zk.Lock waits", "kazoo waits", "write holds")
	if has(zkLock) || has(kazoo) || hold.Token() != queue[0].Token || queue[0].Pair == "" {
		t.Errorf("hold: zk.Lock %t, kazoo %t, and ours with %d: %+v", has(zkLock), has(kazoo), hold.Token(), queue[0])
	}

	c.run(t, 0, "break", e.path, "-yes", "-token", strconv.FormatInt(queue[0].Token, 10))
	zkLock.answer(t)
	kazoo.answer(t) // without the pattern it has waited for our pair only
	check("after ours", "zk.Lock holds", "kazoo perhaps", "write holds")
	select {
	case <-hold.Lost():
	case <-time.After(patience):
		t.Error("the holder does not hear that it was broken")
	}
	if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
		t.Errorf("release: %v", err)
	}
}

// A command under the lock waits for locks of other libraries, and they wait for it.
func TestRunExcludesOtherLibraries(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	c := newConsole(t, e)
	for _, d := range launch(t, e, sessionTimeout, "curator", "kazoo", "zk") {
		d.acquire(t)
		c.run(t, 75, "run", "-n", e.path, "--", "true")
		command := c.start(t, "run", e.path, "--", "sh", "-c", "echo begun; read end")
		e.awaitChildren(t, 2)
		if command.begun() {
			t.Fatalf("the command begins beside %s", d.kind)
		}
		d.release(t)
		command.begins(t)
		d.order(t, "acquire")
		e.awaitChildren(t, 2)
		time.Sleep(300 * time.Millisecond) // for it to look at the queue
		if len(d.answers) > 0 {
			t.Fatalf("%s has the lock beside the command", d.kind)
		}
		command.end(t)
		d.answer(t)
		d.release(t)
	}
}

// A held command runs under the lock until it is told to end.
type held struct {
	cmd   *exec.Cmd
	stdin io.Closer
	line  chan string // what the command prints; closed at its end
}

func (c console) start(t *testing.T, args ...string) *held {
	t.Helper()
	h := &held{cmd: exec.Command(c.binary, args...), line: make(chan string, 1)}
	h.cmd.Env = append(os.Environ(), "TIERLOCK_ZK="+c.addr)
	stdin, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.stdin = stdin
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.line)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			h.line <- lines.Text()
		}
	}()
	t.Cleanup(func() { h.stdin.Close() })
	return h
}

func (h *held) begun() bool { return len(h.line) > 0 }

func (h *held) begins(t *testing.T) {
	t.Helper()
	select {
	case <-h.line:
	case <-time.After(patience):
		t.Fatal("the command does not begin")
	}
}

// end lets the command end, which then exits with what read says of the end of its input.
func (h *held) end(t *testing.T) {
	t.Helper()
	h.stdin.Close()
	for range h.line {
	}
	_ = h.cmd.Wait() // read fails at the end of its input
	if got := h.cmd.ProcessState.ExitCode(); got != 1 {
		t.Errorf("the command exits %d, want the 1 of read", got)
	}
}
