// Package childtest starts real servers for tests. It also tests what all packages that run servers promise.
//
// If a server is not available, its tests are skipped. With TIERLOCK_REQUIRE_SERVER=1 in the environment, they fail instead.
package childtest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Start starts a server that stops at the end of the test: childtest.Start(t, etcdserver.Start, etcdserver.Config{}).
func Start[C any, S stopper](tb testing.TB, start func(context.Context, C) (S, error), cfg C) S {
	tb.Helper()
	s, err := start(tb.Context(), cfg)
	Use(tb, s, err)
	return s
}

// StartEnsemble starts an ensemble of size n. Its servers stop at the end of the test.
func StartEnsemble[C any, S stopper](tb testing.TB, start func(context.Context, int, C) (S, error), n int, cfg C) S {
	tb.Helper()
	e, err := start(tb.Context(), n, cfg)
	Use(tb, e, err)
	return e
}

type stopper interface{ Stop() error }

// Check ends the test unless err is nil. If the error says that a server is missing, and no server is required, the test is skipped.
// Otherwise it fails.
func Check(tb testing.TB, err error) {
	tb.Helper()
	missing := child.Missing("")
	switch {
	case err == nil:
	case errors.As(err, &missing) && os.Getenv("TIERLOCK_REQUIRE_SERVER") != "1":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}

// Use is like Check, for the results of a start. It also stops the server at the end of the test.
func Use(tb testing.TB, server stopper, err error) {
	tb.Helper()
	Check(tb, err)
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
}

// Eventually waits until holds returns true. If that takes too long, it fails the test.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := child.Until(ctx, holds); err != nil {
		tb.Fatalf("never: %s", what)
	}
}

// A Make describes the servers of one package.
type Make struct {
	Start   func(t *testing.T) *child.Server // starts a single server that keeps its data
	Mode    string                           // the mode of that server
	Release string                           // a regular expression that matches its version
	Put     func(t *testing.T, s *child.Server, value string)
	Get     func(t *testing.T, s *child.Server) (value string, err error)
}

// Run tests what every server package promises.
func Run(t *testing.T, m Make) {
	t.Run("ends with Stop", m.serves)
	t.Run("Restart keeps data and address", m.restarts)
	t.Run("a paused server is mute until it is resumed", m.pauses)
}

func (m Make) serves(t *testing.T) {
	tmp := t.TempDir()
	for dir := tmp; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", tmp)
	s := m.Start(t)
	if mode, err := s.Mode(); err != nil || mode != m.Mode {
		t.Errorf("Mode: got %q, %v, want %s", mode, err, m.Mode)
	}
	if version, err := s.Version(); err != nil || !regexp.MustCompile(m.Release).MatchString(version) {
		t.Errorf("Version: got %q, %v, want the number of a release", version, err)
	}
	process, err := os.FindProcess(s.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("process %d after Stop: got %v, want %v", s.Pid(), err, os.ErrProcessDone)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections after Stop", s.Addr())
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("after Stop: got %v, %v, want an empty directory", left, err)
	}
}

func (m Make) restarts(t *testing.T) {
	s := m.Start(t)
	addr, pid := s.Addr(), s.Pid()
	m.Put(t, s, "data")
	s.Kill()
	if _, err := s.Mode(); err == nil {
		t.Error("the server answers after Kill")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("after Restart: address %s, pid %d; want %s and not %d", s.Addr(), s.Pid(), addr, pid)
	}
	if got, err := m.Get(t, s); got != "data" {
		t.Errorf("after Restart: got %q, %v, want the data from before", got, err)
	}
}

func (m Make) pauses(t *testing.T) {
	s := m.Start(t)
	m.Put(t, s, "data")
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the paused server is mute", func() bool { // the signal stops the threads of the server one by one
		_, err := s.Mode()
		return err != nil
	})
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the server takes up again", func() bool {
		got, err := m.Get(t, s)
		return err == nil && got == "data"
	})
}
