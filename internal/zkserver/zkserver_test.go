package zkserver_test

import (
	"errors"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

func TestStopEndsTheServer(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true})
	if mode, err := s.Mode(); err != nil || mode != "standalone" {
		t.Fatalf("Mode: got %q, %v, want standalone", mode, err)
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
}

func TestVersionIsARelease(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true})
	version, err := s.Version()
	if err != nil || !regexp.MustCompile(`^3\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("Version: got %q, %v, want the number of a release", version, err)
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{})
	addr, pid := s.Addr(), s.Pid()
	conn := connect(t, addr)
	if _, err := conn.Create("/kept", []byte("data"), 0, zk.WorldACL(zk.PermAll)); err != nil {
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
	if data, _, err := connect(t, addr).Get("/kept"); string(data) != "data" {
		t.Errorf("Get after Restart: got %q, %v", data, err)
	}
}

func TestPausedServerIsMuteUntilResumed(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true})
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
	if _, err := s.Mode(); err != nil {
		t.Errorf("Mode after Resume: %v", err)
	}
}

func TestStartOnATakenPortFails(t *testing.T) {
	first := zkservertest.Start(t, zkserver.Config{NoSync: true})
	_, port, _ := net.SplitHostPort(first.Addr())
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := zkserver.Start(t.Context(), zkserver.Config{Port: number}); !errors.Is(err, syscall.EADDRINUSE) {
		if s != nil {
			_ = s.Stop()
		}
		t.Errorf("second server on port %d: got %v, want %v", number, err, syscall.EADDRINUSE)
	}
}

func TestNotFoundSaysHowToGetAServer(t *testing.T) {
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	_, err := zkserver.Start(t.Context(), zkserver.Config{})
	if !errors.Is(err, zkserver.ErrNotFound) {
		t.Fatalf("Start: got %v, want ErrNotFound", err)
	}
	for _, want := range []string{
		"apt-get install -y zookeeper",
		"brew install zookeeper",
		"docker run --rm -p 127.0.0.1:2181:2181 zookeeper:3.9",
		"-zk",
		os.Getenv("ZOOKEEPER_HOME"),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestContainerCheckReapsContainers(t *testing.T) {
	s := zkservertest.Start(t, zkserver.Config{NoSync: true, ContainerCheck: 100 * time.Millisecond})
	conn := connect(t, s.Addr())
	if _, err := conn.CreateContainer("/c", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Create("/c/child", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Delete("/c/child", -1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the empty container is deleted", func() bool {
		exists, _, err := conn.Exists("/c")
		return err == nil && !exists
	})
}

func connect(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{addr}, 10*time.Second, nil)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}
