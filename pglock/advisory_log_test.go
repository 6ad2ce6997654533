package pglock

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/logtest"
	"github.com/tierlock/tierlock/internal/pgserver"
)

func TestLossOfAnAdvisoryLockIsLoggedOnce(t *testing.T) {
	t.Parallel()
	log, logger := logtest.New(slog.LevelInfo)
	url := pgserver.PlainURL(server(t).Addr())
	a := startAdvisory(t, url, WithLogger(logger), WithLeaseTTL(20*time.Second)) // which beats each 5 s
	g := a.mustAcquire(t, lockPath(t))
	granted, _ := a.waitAt(t, lockPath(t)) // loses a place, and no lock
	begun := time.Now()
	exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tierlock "+strconv.FormatInt(g.Token(), 10)+" %'")
	<-g.Context().Done()
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the holder heard after %v of the end of its session", took)
	}
	g.Release()
	mustRelease(t, <-granted)
	eventually(t, "the loss is logged", func() bool { return len(log.Lines(slog.LevelWarn, "lock lost")) > 0 })
	a.Close()
	lines := log.Lines(slog.LevelWarn, "lock lost")
	if len(lines) != 1 || !strings.Contains(lines[0], "path="+lockPath(t)) || !strings.Contains(lines[0], "token="+strconv.FormatInt(g.Token(), 10)) ||
		!strings.Contains(lines[0], `cause="lock lost: `) {
		t.Errorf("want one line with path, token and cause, in:\n%s", log)
	}
}
