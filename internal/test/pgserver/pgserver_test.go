package pgserver_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	childtest.Run(t, childtest.Make{
		Start: func(t *testing.T) *pgserver.Server { return childtest.Start(t, pgserver.Start, pgserver.Config{}) },
		Mode:  "leader", Release: `^1\d\.\d+$`,
		Put: func(t *testing.T, s *pgserver.Server, value string) {
			write(t, s, "CREATE TABLE kept AS SELECT '"+value+"'")
		},
		Get: func(t *testing.T, s *pgserver.Server) (string, error) { return read(t, s, "SELECT * FROM kept"), nil },
	})
}

func TestStopRemovesTheSharedMemory(t *testing.T) {
	s := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true})
	file := strings.Fields(read(t, s, "SELECT pg_read_file('postmaster.pid')"))
	segment := file[len(file)-2] // the word before the one that says that the server is ready
	need.That(t, "there is no segment of shared memory "+segment, slices.Contains(segments(t), segment))
	need.OK(t, s.Stop())
	need.That(t, "after Stop there is still the segment of shared memory "+segment, !slices.Contains(segments(t), segment))
}

func TestPlainUserOwnsADatabase(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true})
	const query = "CREATE TABLE mine(); SELECT usesuper FROM pg_user WHERE usename = current_user"
	need.That(t, "no table, or a superuser", strings.HasSuffix(need.Get(ask(t, pgserver.PlainURL(s.Addr()), query))(t), "f"))
}

// Each session has a server process of its own. While the server is paused, these processes must not answer, either.
func TestPausedServerIsMuteUntilResumed(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true})
	var answer chan error
	for paused := false; !paused; {
		answer = make(chan error, 1)
		begun := time.Now()
		go func() {
			_, err := ask(t, pgserver.URL(s.Addr()), "SELECT pg_sleep(2)")
			answer <- err
		}()
		childtest.Eventually(t, "the session is there, or was", func() bool {
			return len(answer) > 0 || read(t, s, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
		})
		need.OK(t, s.Pause())
		if paused = time.Since(begun) < 2*time.Second; !paused { // on a busy machine, the statement may have ended before the pause
			need.OK(t, s.Resume())
			need.OK(t, <-answer)
		}
	}
	time.Sleep(2 * time.Second)
	need.Must(t, "the session of a paused server answers", len(answer) == 0)
	need.That(t, "the paused server tells its mode", need.ErrOf(s.Mode()) != nil)
	need.OK(t, s.Resume())
	need.OK(t, <-answer)
}

func TestNothingIsLeftOfAPausedServerThatIsKilled(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true})
	need.OK(t, s.Pause())
	s.Kill()
	// Without that, the restart would fail, because the shared memory is still in use.
	need.OK(t, s.Restart(t.Context()))
}

// The function segments returns the words that ipcs prints. The ids of System V shared memory are among them.
func segments(t *testing.T) []string {
	t.Helper()
	list := need.Get(exec.Command("ipcs", "-m").Output())(t)
	return strings.Fields(string(list))
}

// The function ask returns the output of psql for a query.
func ask(t *testing.T, url, query string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(need.Within(t, 20*time.Second), psqlPath(t), "-qAtX", "-c", query, url).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func psqlPath(t *testing.T) string {
	t.Helper()
	path, err := pgserver.Psql()
	childtest.Check(t, err)
	return path
}
