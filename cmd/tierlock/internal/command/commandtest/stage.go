//go:build linux || darwin || freebsd || windows

package commandtest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Stage is a server to which commands under the lock report that they run. Each command also takes a kernel resource that only one
// process can have at a time, and that it keeps until it dies. This detects two commands that run at the same time.
type Stage struct {
	t        *testing.T
	listener net.Listener
	room     string // names the resource
	entries  chan *Section
}

// A Section is a command that runs. The section ends when the kernel closes the command's connection.
type Section struct {
	t     *testing.T
	conn  net.Conn
	pid   int
	alone bool
	Begun time.Time   // when the stage has seen the command
	Said  chan string // the signals that the command has caught
	ended chan struct{}
	end   time.Time
}

// NewStage returns a stage that exists until the end of the test.
func NewStage(t *testing.T) *Stage {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Stage{t: t, listener: listener, room: newRoom(t, listener.Addr()), entries: make(chan *Section, 16)}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.enter(conn)
		}
	}()
	return s
}

func (s *Stage) enter(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	e := &Section{t: s.t, conn: conn, Begun: time.Now(), Said: make(chan string, 16), ended: make(chan struct{})}
	fmt.Sscan(lines.Text(), &e.pid, &e.alone)
	s.entries <- e
	fmt.Fprintln(conn, "seen")
	for lines.Scan() {
		e.Said <- lines.Text()
	}
	e.end = time.Now()
	close(e.ended)
}

// Command returns the command line of a program that reports to the stage. There are three modes. With stubborn it ignores TERM, or Ctrl-C
// and Ctrl-Break on Windows. With family it also starts a grandchild that reports. With daemon it also starts a process in a separate
// session, which outlives the command.
func (s *Stage) Command(modes ...string) []string {
	return append([]string{os.Args[0], "section", s.listener.Addr().String(), s.room}, modes...)
}

// Next waits until the next command reports.
func (s *Stage) Next() *Section {
	s.t.Helper()
	select {
	case e := <-s.entries:
		return e
	case <-time.After(Patience):
		s.t.Fatal("nobody gets to the section")
		return nil
	}
}

// First is like Next, and also checks that no other command runs at the same time.
func (s *Stage) First() *Section {
	s.t.Helper()
	e := s.Next()
	if !e.alone {
		s.t.Error("another process is in the section")
	}
	return e
}

// Followed is like First, and also checks that all victims have ended before.
func (s *Stage) Followed(victims ...*Section) (next *Section) {
	s.t.Helper()
	next = s.First()
	for _, victim := range victims {
		margin := next.Begun.Sub(victim.Dies())
		if s.t.Logf("died %v before the next one began", margin); margin < 0 {
			s.t.Errorf("the command ends %v after the next one began", -margin)
		}
	}
	return next
}

// NoMore checks that no further command has begun.
func (s *Stage) NoMore() {
	s.t.Helper()
	select {
	case <-s.entries:
		s.t.Error("a command was started")
	default:
	}
}

// Leave makes the command exit.
func (e *Section) Leave(status int) { fmt.Fprintln(e.conn, "exit", status) }

// Dies waits until the command has ended, and returns the time of its end.
func (e *Section) Dies() time.Time {
	e.t.Helper()
	select {
	case <-e.ended:
	case <-time.After(Patience):
		e.t.Fatal("the command lives on")
	}
	return e.end
}

// Lives checks that the command has not ended.
func (e *Section) Lives() {
	e.t.Helper()
	select {
	case <-e.ended:
		e.t.Error("the command is gone")
	default:
	}
}

// Hears waits until the command has caught the signal want.
func (e *Section) Hears(want syscall.Signal) {
	e.t.Helper()
	select {
	case got := <-e.Said:
		if got != want.String() {
			e.t.Errorf("the command got %v, want %v", got, want)
		}
	case <-time.After(Patience):
		e.t.Fatalf("the command does not get %v", want)
	}
}

// beSection is the main function of the command.
func beSection(args []string) {
	addr, room, modes := args[0], args[1], args[2:]
	caught := catch(slices.Contains(modes, "stubborn"))
	alone := occupy(room)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(conn, os.Getpid(), alone)
	go func() {
		for sig := range caught {
			fmt.Fprintln(conn, sig)
		}
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() == "seen" { // the stage has seen this command, so the processes that it starts report after it
			startRelatives(addr, room, modes)
		}
		if status, ok := strings.CutPrefix(lines.Text(), "exit "); ok {
			n, _ := strconv.Atoi(status)
			os.Exit(n)
		}
	}
	os.Exit(0)
}

func startRelatives(addr, room string, modes []string) {
	for _, mode := range modes {
		if mode == "family" || mode == "daemon" {
			relative := exec.Command(os.Args[0], "section", addr, room+"-"+mode)
			if mode == "daemon" {
				relative.SysProcAttr = apart()
			}
			if err := relative.Start(); err != nil {
				panic(err)
			}
		}
	}
}

// Under returns the arguments of tierlock to run command under the lock at path.
func Under(flags string, path string, command ...string) []string {
	return append(append(append([]string{"run"}, strings.Fields(flags)...), path, "--"), command...)
}
