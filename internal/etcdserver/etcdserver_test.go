package etcdserver_test

import (
	"errors"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
)

func TestServerServesUntilStop(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	if err := put(s.Addr(), "k", "v"); err != nil {
		t.Errorf("put: %v", err)
	}
	if mode, err := s.Mode(); err != nil || mode != "leader" {
		t.Errorf("Mode: got %q, %v, want leader", mode, err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(s.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("process %d after Stop: got %v, want %v", s.Pid(), err, os.ErrProcessDone)
	}
	if conn, err := net.Dial("tcp", s.Addr()); err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections after Stop", s.Addr())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("after Stop: got %v, %v, want an empty directory", left, err)
	}
}

func TestVersionIsARelease(t *testing.T) {
	s := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	version, err := s.Version()
	if err != nil || !regexp.MustCompile(`^3\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("Version: got %q, %v, want the number of a release", version, err)
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	s := etcdservertest.Start(t, etcdserver.Config{})
	addr, pid := s.Addr(), s.Pid()
	if err := put(addr, "kept", "data"); err != nil {
		t.Fatal(err)
	}
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
	if data, err := get(addr, "kept"); data != "data" {
		t.Errorf("get after Restart: got %q, %v", data, err)
	}
}

func TestPausedServerIsMuteUntilResumed(t *testing.T) {
	s := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	// The signal takes the threads of the server one by one.
	eventually(t, "the paused server is mute", func() bool {
		_, err := s.Mode()
		return err != nil
	})
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server takes up again", func() bool { return put(s.Addr(), "k", "v") == nil })
}

func TestNotFoundSaysHowToGetAServer(t *testing.T) {
	t.Setenv("ETCD", t.TempDir()+"/etcd")
	_, err := etcdserver.Start(t.Context(), etcdserver.Config{})
	if !errors.Is(err, etcdserver.ErrNotFound) {
		t.Fatalf("Start: got %v, want ErrNotFound", err)
	}
	for _, want := range []string{
		"scripts/get-etcd.sh",
		"apt-get install -y etcd-server",
		"brew install etcd",
		os.Getenv("ETCD"),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}
