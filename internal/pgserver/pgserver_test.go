package pgserver_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/child"
	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerServesUntilStop(t *testing.T) {
	tmp := t.TempDir()
	for dir := tmp; dir != os.TempDir() && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the server may be another user's
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", tmp)
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	if got, err := ask(t, pgserver.URL(s.Addr()), "SELECT 1"); err != nil || got != "1" {
		t.Errorf("SELECT 1: got %q, %v", got, err)
	}
	if mode, err := s.Mode(); err != nil || mode != "leader" {
		t.Errorf("Mode: got %q, %v, want leader", mode, err)
	}
	if version, err := s.Version(); err != nil || !regexp.MustCompile(`^1\d\.\d+$`).MatchString(version) {
		t.Errorf("Version: got %q, %v, want the number of a release", version, err)
	}
	segment := segmentIn(t, tmp)
	if !slices.Contains(segments(t), segment) {
		t.Errorf("no segment of shared memory has the id %q", segment)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, pgserver.URL(s.Addr()), "SELECT 1"); err == nil {
		t.Errorf("%s still answers after Stop", s.Addr())
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("after Stop: got %v, %v, want an empty directory", left, err)
	}
	if slices.Contains(segments(t), segment) {
		t.Errorf("after Stop there is still the segment %s of shared memory", segment)
	}
}

func TestPlainUserOwnsADatabase(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	if got, err := ask(t, pgserver.PlainURL(s.Addr()), "CREATE TABLE mine(); SELECT usesuper FROM pg_user WHERE usename = current_user"); err != nil || !strings.HasSuffix(got, "f") {
		t.Errorf("got %q, %v, want a table, and no superuser", got, err)
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{})
	addr, pid := s.Addr(), s.Pid()
	if _, err := ask(t, pgserver.URL(addr), "CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
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
	if n, err := ask(t, pgserver.URL(addr), "SELECT n FROM kept"); n != "7" {
		t.Errorf("after Restart: got %q, %v", n, err)
	}
}

// A backend is a process of its own: a session that is open when the server is paused has
// to be mute, too.
func TestPausedServerIsMuteUntilResumed(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	answer := make(chan error, 1)
	go func() {
		_, err := ask(t, pgserver.URL(s.Addr()), "SELECT pg_sleep(1)")
		answer <- err
	}()
	eventually(t, "the session is there", func() bool {
		return read(t, s, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answer:
		t.Errorf("the session of a paused server answers: %v", err)
	case <-time.After(1500 * time.Millisecond): // longer than the statement takes
	}
	if mode, err := s.Mode(); err == nil {
		t.Errorf("Mode of the paused server: %q, want an error", mode)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestNothingIsLeftOfAPausedServerThatIsKilled(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	// It would say that its shared memory is still in use.
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPoolerServesUntilStop(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	for _, mode := range []string{"session", "transaction", "statement"} {
		p := pgservertest.StartPooler(t, s, mode)
		if got, err := ask(t, pgserver.PlainURL(p.Addr()), "SELECT current_user"); err != nil || got != "plain" {
			t.Errorf("%s: %q, %v", mode, got, err)
		}
		p.Kill()
		if _, err := ask(t, pgserver.PlainURL(p.Addr()), "SELECT 1"); err == nil {
			t.Errorf("%s: answers after Kill", mode)
		}
	}
}

func TestNotFoundSaysHowToGetAServer(t *testing.T) {
	t.Setenv("POSTGRESQL_HOME", t.TempDir())
	_, err := pgserver.Start(t.Context(), pgserver.Config{})
	if !errors.Is(err, pgserver.ErrNotFound) {
		t.Fatalf("Start: got %v, want ErrNotFound", err)
	}
	for _, want := range []string{
		"scripts/get-postgresql.sh",
		"apt-get install -y postgresql",
		"brew install postgresql",
		os.Getenv("POSTGRESQL_HOME"),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// segments lists the ids of System V shared memory, among other words.
func segments(t *testing.T) []string {
	t.Helper()
	list, err := exec.Command("ipcs", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(list))
}

// segmentIn is the id of the segment of the one server whose directory is in tmp.
func segmentIn(t *testing.T, tmp string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(tmp, "*/data/postmaster.pid"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	keyAndID := strings.Fields(strings.Split(string(text), "\n")[6])
	return keyAndID[1]
}

// ask returns what psql prints.
func ask(t *testing.T, url, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, psqlPath(t), "-qAtX", "-c", query, url).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := child.Until(ctx, holds); err != nil {
		t.Fatalf("never: %s", what)
	}
}

func psqlPath(t *testing.T) string {
	t.Helper()
	path, err := pgserver.Psql()
	pgservertest.Check(t, err)
	return path
}
