package etcdlock

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/logtest"
)

// startLogged returns a process and what it logs from INFO on.
func startLogged(t *testing.T) (*process, *logtest.Log) {
	t.Helper()
	log, logger := logtest.New(slog.LevelInfo)
	return start(t, WithLogger(logger)), log
}

func wantLines(t *testing.T, log *logtest.Log, level slog.Level, text string, want int) string {
	t.Helper()
	lines := log.Lines(level, text)
	if len(lines) != want {
		t.Errorf("%d lines of level %v with %q, want %d, in:\n%.3000s", len(lines), level, text, want, log)
	}
	return strings.Join(lines, "")
}

func TestLossIsLoggedOnce(t *testing.T) {
	t.Parallel()
	p, log := startLogged(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	waiting := queueAt(t, p.at(t, lockPath(t))) // loses a place, and no lock
	if _, err := outside(t).Revoke(soon(t), p.lease()); err != nil {
		t.Fatal(err)
	}
	ended(t, "the lock is lost", c.Context().Done(), ttl)
	c.Release()
	mustRelease(t, waiting.must(t))
	line := wantLines(t, log, slog.LevelWarn, "lock lost", 1)
	if !strings.Contains(line, "path="+lockPath(t)) || !strings.Contains(line, `cause="lock lost: `) || !strings.Contains(line, "token=") {
		t.Errorf("no path, token or cause in %s", line)
	}
	wantLines(t, log, slog.LevelWarn, "session expired", 1)
	wantLines(t, log, slog.LevelInfo, "new session", 1)
}

func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	p, log := startLogged(t)
	heal := p.wire.sever()
	time.Sleep(ttl + ttl/3)
	line := wantLines(t, log, slog.LevelWarn, "is away", 1)
	if !strings.Contains(line, "since=") || !strings.Contains(line, "cannot be reached") {
		t.Errorf("no time or no reason in %s", line)
	}
	heal()
	eventually(t, "connected again", func() bool { return len(log.Lines(slog.LevelInfo, "away=")) == 1 })
	p.Close()
	wantLines(t, log, slog.LevelWarn, "is away", 1)
}
