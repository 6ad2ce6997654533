package redisserver_test

import (
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/child"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerServesUntilStop(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	put(t, s, "k", "v")
	if mode, err := s.Mode(); err != nil || mode != "leader" {
		t.Errorf("Mode: got %q, %v, want leader", mode, err)
	}
	version, err := s.Version()
	if err != nil || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
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
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("after Stop: got %v, %v, want an empty directory", left, err)
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	addr, pid := s.Addr(), s.Pid()
	put(t, s, "kept", "data")
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
	if got := get(s, "kept"); got != "data" {
		t.Errorf("get after Restart: got %q", got)
	}
}

func TestVolatileServerRestartsEmpty(t *testing.T) {
	s := redisservertest.Start(t, redisserver.Config{Volatile: true})
	put(t, s, "k", "v")
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get(s, "k"); got != "" {
		t.Errorf("get after Restart: got %q", got)
	}
}

func TestPausedServerIsMuteUntilResumed(t *testing.T) {
	s := redisservertest.Start(t, redisserver.Config{NoSync: true})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the paused server is mute", func() bool { _, err := s.Mode(); return err != nil })
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server takes up again", func() bool { _, err := s.Mode(); return err == nil })
}

func TestFailoverPromotesAReplicaAndTheOldPrimaryFollows(t *testing.T) {
	e := redisservertest.StartEnsemble(t, 3, redisserver.Config{NoSync: true})
	first := e.Members[0]
	put(t, first, "k", "v")
	eventually(t, "the replicas have it", func() bool { return get(e.Members[1], "k") == "v" && get(e.Members[2], "k") == "v" })
	if err := e.Failover(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader, err := e.Leader(t.Context())
	if err != nil || leader == first {
		t.Fatalf("leader %v, %v, want another one", leader.Addr(), err)
	}
	eventually(t, "the others follow", func() bool { return len(e.Followers()) == 2 })
	put(t, leader, "k", "w")
	eventually(t, "the old primary has it", func() bool { return get(first, "k") == "w" })

	conn, err := redisserver.Dial(t.Context(), e.Addrs())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != leader.Addr() {
		t.Errorf("Dial reaches %s, want the primary %s", got, leader.Addr())
	}
}

func TestIsolatedPrimaryGoesOnUntilItMissesItsReplicas(t *testing.T) {
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{MinReplicas: 1, MaxLag: 1})
	old, next := e.Members[0], e.Members[1]
	eventually(t, "the primary counts its replica", func() bool {
		_, err := redisserver.Ask(old.Addr(), "SET", "k", "both")
		return err == nil
	})
	eventually(t, "the replica has it", func() bool { return get(next, "k") == "both" })
	e.Isolate(old)
	put(t, old, "k", "lost")
	if err := e.Promote(next); err != nil {
		t.Fatal(err)
	}
	if got := get(next, "k"); got != "both" {
		t.Errorf("the promoted server has %q, want what it had before the isolation", got)
	}
	eventually(t, "the isolated primary refuses writes", func() bool {
		_, err := redisserver.Ask(old.Addr(), "SET", "k", "lost")
		return err != nil && strings.Contains(err.Error(), "NOREPLICAS")
	})
	if got := get(old, "k"); got != "lost" {
		t.Errorf("the isolated primary has %q, want what it took alone", got)
	}
	e.Heal()
	eventually(t, "the old primary has forgotten what it took alone", func() bool {
		mode, _ := old.Mode()
		return mode == "follower" && get(old, "k") == "both"
	})
}

func TestHealedPrimaryRemainsItIfNobodyWasPromoted(t *testing.T) {
	e := redisservertest.StartEnsemble(t, 2, redisserver.Config{NoSync: true})
	e.Isolate(e.Members[0])
	e.Heal()
	put(t, e.Members[0], "k", "v")
	eventually(t, "the replica follows", func() bool { return get(e.Members[1], "k") == "v" })
}

func TestNotFoundSaysHowToGetAServer(t *testing.T) {
	t.Setenv("REDIS_SERVER", t.TempDir()+"/redis-server")
	_, err := redisserver.Start(t.Context(), redisserver.Config{NoSync: true})
	if !errors.Is(err, redisserver.ErrNotFound) {
		t.Fatalf("Start: got %v, want ErrNotFound", err)
	}
	for _, want := range []string{"scripts/get-redis.sh", "apt-get install -y redis-server", "brew install redis", os.Getenv("REDIS_SERVER")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func put(t *testing.T, s *redisserver.Server, key, value string) {
	t.Helper()
	if _, err := redisserver.Ask(s.Addr(), "SET", key, value); err != nil {
		t.Fatal(err)
	}
}

// get is "" where there is nothing.
func get(s *redisserver.Server, key string) string {
	answer, err := redisserver.Ask(s.Addr(), "GET", key)
	if err != nil {
		return err.Error()
	}
	return answer[0]
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := child.Until(ctx, holds); err != nil {
		t.Fatalf("never: %s", what)
	}
}

func TestReplicaOfAClusterTakesOver(t *testing.T) {
	c := redisservertest.StartCluster(t, 3, redisserver.Config{NoSync: true})
	if err := c.Promote(t.Context(), c.Replica(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others know", func() bool {
		_, err := redisserver.Ask(c.Members[1].Addr(), "GET", "3560") // in slot 0
		return err != nil && strings.HasSuffix(err.Error(), c.Replica(0).Addr())
	})
	eventually(t, "the former primary follows", func() bool { return len(c.Followers()) == 3 })
}
