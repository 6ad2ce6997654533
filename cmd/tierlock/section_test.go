//go:build linux || darwin || freebsd

package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A stage is where commands under the lock tell the test that they are there. A lock of the
// kernel, which goes at the death of its process, tells whether two are there at once.
type stage struct {
	t        *testing.T
	listener net.Listener
	file     string
	entries  chan *section
}

// A section is a command that runs. Its end is when the kernel closed its connection.
type section struct {
	t     *testing.T
	conn  net.Conn
	pid   int
	alone bool
	begun time.Time
	said  chan string // signals it has caught
	ended chan struct{}
	end   time.Time
}

func newStage(t *testing.T) *stage {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, listener: listener, file: filepath.Join(t.TempDir(), "occupied"), entries: make(chan *section, 16)}
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

func (s *stage) enter(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	e := &section{t: s.t, conn: conn, begun: time.Now(), said: make(chan string, 16), ended: make(chan struct{})}
	fmt.Sscan(lines.Text(), &e.pid, &e.alone)
	s.entries <- e
	for lines.Scan() {
		e.said <- lines.Text()
	}
	e.end = time.Now()
	close(e.ended)
}

// command is what to run to get on the stage. Modes: stubborn ignores TERM; family has a
// grandchild on the stage, too, and daemon one in a session of its own, which outlives it.
func (s *stage) command(modes ...string) []string {
	return append([]string{os.Args[0], "section", s.listener.Addr().String(), s.file}, modes...)
}

// next returns the next one to get there.
func (s *stage) next() *section {
	s.t.Helper()
	select {
	case e := <-s.entries:
		return e
	case <-time.After(patience):
		s.t.Fatal("nobody gets to the section")
		return nil
	}
}

// first is next, and must have been alone.
func (s *stage) first() *section {
	s.t.Helper()
	e := s.next()
	if !e.alone {
		s.t.Error("another process is in the section")
	}
	return e
}

func (s *stage) nobody() {
	s.t.Helper()
	select {
	case <-s.entries:
		s.t.Error("a command was started")
	default:
	}
}

// leave makes the command exit.
func (e *section) leave(status int) { fmt.Fprintln(e.conn, "exit", status) }

func (e *section) signal(sig syscall.Signal) {
	e.t.Helper()
	if err := syscall.Kill(e.pid, sig); err != nil {
		e.t.Fatal(err)
	}
}

// dies waits for its end and returns when that was.
func (e *section) dies() time.Time {
	e.t.Helper()
	select {
	case <-e.ended:
	case <-time.After(patience):
		e.t.Fatal("the command lives on")
	}
	return e.end
}

func (e *section) lives() {
	e.t.Helper()
	select {
	case <-e.ended:
		e.t.Error("the command is gone")
	default:
	}
}

// hears waits for a signal to be caught.
func (e *section) hears(want syscall.Signal) {
	e.t.Helper()
	select {
	case got := <-e.said:
		if got != want.String() {
			e.t.Errorf("the command got %v, want %v", got, want)
		}
	case <-time.After(patience):
		e.t.Fatalf("the command does not get %v", want)
	}
}

// beSection is the command.
func beSection(args []string) {
	addr, file, modes := args[0], args[1], args[2:]
	caught := make(chan os.Signal, 16)
	if slices.Contains(modes, "stubborn") {
		signal.Notify(caught, syscall.SIGTERM)
	}
	signal.Notify(caught, syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGQUIT)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	alone := !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(conn, os.Getpid(), alone)
	for _, mode := range modes {
		if mode == "family" || mode == "daemon" {
			relative := exec.Command(os.Args[0], "section", addr, file+"-"+mode)
			relative.SysProcAttr = &syscall.SysProcAttr{Setsid: mode == "daemon"}
			if err := relative.Start(); err != nil {
				panic(err)
			}
		}
	}
	go func() {
		for sig := range caught {
			fmt.Fprintln(conn, sig)
		}
	}()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if status, ok := strings.CutPrefix(lines.Text(), "exit "); ok {
			n, _ := strconv.Atoi(status)
			os.Exit(n)
		}
	}
	os.Exit(0)
}

// under returns the arguments for a run of command.
func under(flags string, path string, command ...string) []string {
	return append(append(append([]string{"run"}, strings.Fields(flags)...), path, "--"), command...)
}
