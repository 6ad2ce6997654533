package pglock

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/logtest"
)

func TestLossAndOutageAreLoggedOnce(t *testing.T) {
	t.Parallel()
	log, logger := logtest.New(slog.LevelInfo)
	p := start(t, WithLogger(logger))
	c := mustAcquire(t, p.at(t, lockPath(t)))
	waiting := queueAt(t, p.at(t, lockPath(t))) // loses a place, and no lock
	x := p.session(t)
	heal := p.line.sever()
	ended(t, "the lock is lost", c.Context().Done(), ttl)
	eventually(t, "the session is over", func() bool {
		return mustExec(t, outside(t), "SELECT expires < clock_timestamp() FROM tierlock.session WHERE id = $1", x) == true
	})
	heal()
	c.Release()
	mustRelease(t, waiting.must(t))
	eventually(t, "all is logged", func() bool { return len(log.Lines(slog.LevelInfo, "new session")) == 1 })
	for _, text := range []string{"lock lost", "connection to PostgreSQL is away", "session expired"} {
		lines := log.Lines(slog.LevelWarn, text)
		if len(lines) != 1 {
			t.Errorf("%d lines with %q, want 1, in:\n%.3000s", len(lines), text, log)
		}
		if line := strings.Join(lines, ""); text == "lock lost" && !(strings.Contains(line, "path="+lockPath(t)) && strings.Contains(line, "cause=")) {
			t.Errorf("no path or cause in %s", line)
		}
	}
}
