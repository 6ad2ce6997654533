package zknode_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// startLogged returns a process and its log. The log has the level INFO and above.
func startLogged(t *testing.T, s *zktest.Server, opts ...zknode.Option) (process, *logtest.Log) {
	t.Helper()
	log, logger := logtest.New(slog.LevelInfo)
	return start(t, s, append(opts, zknode.WithLogger(logger))...), log
}

func wantLines(t *testing.T, log *logtest.Log, level slog.Level, text string, want int) []string {
	t.Helper()
	synctest.Wait()
	lines := log.Lines(level, text)
	need.Equal(t, fmt.Sprintf("lines of level %v with %q in\n%.3000s", level, text, log), len(lines), want)
	return lines
}

func TestLossIsLoggedOnce(t *testing.T) {
	each(t, map[string]func(t *testing.T, s *zktest.Server, p process, n *zknode.Node){
		"expired": func(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
			s.Expire(p.session)
			awaitLoss(t, n)
		},
		"deleted": func(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
			remove(t, raw(t, s), n.Path())
			awaitLoss(t, n)
		},
		"lapsed": func(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
			s.Freeze()
			awaitLoss(t, n)
			s.Unfreeze()
		},
		"found at the release": func(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
			n.StopWatchdog()
			s.Freeze()
			time.Sleep(timeout)
			n.Release()
			s.Unfreeze()
		},
		"found by the delete": func(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
			other := p.acquireAt(t, "/locks/y") // this node is not watched yet
			remove(t, raw(t, s), other.Path())
			other.Release()
			n.Release()
		},
	}, func(t *testing.T, s *zktest.Server, lose func(t *testing.T, s *zktest.Server, p process, n *zknode.Node)) {
		p, log := startLogged(t, s)
		n := p.acquire(t)
		awaitWatch()
		lose(t, s, p, n)
		n.Release()
		time.Sleep(time.Minute)
		line := strings.Join(wantLines(t, log, slog.LevelWarn, "lock lost", 1), "")
		need.Has(t, "the line", line, "path=/locks/", "cause=\"lock lost: ", "token=")
	})
}

func TestNoLossIsLoggedWhereNoneWas(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		n := p.acquire(t)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := p.queue(ctx)
		s.Expire(p.session + 1000) // no process has this session
		cancel()
		waiting.failed(t)
		wantErr(t, "Release", n.Release(), nil)
		p.acquire(t)
		p.Close() // the user closes the client
		wantLines(t, log, slog.LevelWarn, "lost", 0)
	})
}

// The line gives the reason of the outage. The tests of internal/notice check when it is logged.
func TestOutageIsLoggedOnceWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		down(s)
		time.Sleep(time.Hour) // the session ends in that time
		line := strings.Join(wantLines(t, log, slog.LevelWarn, "lost the connection to", 1), "")
		need.Has(t, "the line, with time and reason", line, "since=", "refused")
		s.Member(addr).Accept()
		time.Sleep(timeout)
		wantLines(t, log, slog.LevelWarn, "session expired", 1)
		wantLines(t, log, slog.LevelInfo, "new session", 1)
		wantErr(t, "Err", p.Err(), nil)
	})
}

// The goroutines that connect, renew and release do not wait for a logger that hangs. Close waits for it only for a short time.
func TestLoggerThatHangsKeepsNobodyFromALock(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		stuck := make(chan struct{})
		p := start(t, s, zknode.WithLogger(slog.New(blocking{slog.DiscardHandler, stuck})))
		defer close(stuck)
		n := p.acquire(t)
		s.Expire(p.session)
		awaitLoss(t, n)
		need.That(t, "released a lost lock without an error", n.Release() != nil)
		n = p.acquire(t)
		down(s) // the client library logs each attempt to connect
		time.Sleep(timeout / 4)
		s.Member(addr).Accept()
		time.Sleep(2 * timeout)
		wantErr(t, "Err of a lock while the server is there", n.Err(), nil)
		begun := time.Now()
		p.Close()
		need.That(t, fmt.Sprintf("Close has taken %v", time.Since(begun)), time.Since(begun) <= 3*time.Second)
	})
}

type blocking struct {
	slog.Handler
	until <-chan struct{}
}

func (b blocking) Enabled(context.Context, slog.Level) bool {
	<-b.until
	return false
}

func TestShareThatFailsForGoodIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		n := p.writing().acquire(t)
		reader := start(t, s).reading().queue(t.Context())
		acl := func(perms int32) {
			t.Helper()
			protect(t, raw(t, s), path, perms)
		}
		acl(zk.PermAll &^ zk.PermCreate)
		wantErr(t, "Share", sharing(t.Context(), n).failed(t), zk.ErrNoAuth)
		line := strings.Join(wantLines(t, log, slog.LevelWarn, "cannot downgrade a write lock", 1), "")
		need.Has(t, "the line", line, "path="+path)
		acl(zk.PermAll)
		n.Release()
		reader.granted(t).Release()
	})
}

func TestShareThatIsCalledOffIsNotLogged(t *testing.T) {
	each(t, map[string]func(p process, n *zknode.Node, cancel func()){
		"by its caller": func(_ process, _ *zknode.Node, cancel func()) { cancel() },
		"by a release":  func(_ process, n *zknode.Node, _ func()) { n.Release() },
		"by Close":      func(p process, _ *zknode.Node, _ func()) { p.Close() },
	}, func(t *testing.T, s *zktest.Server, callOff func(p process, n *zknode.Node, cancel func())) {
		p, log := startLogged(t, s)
		n := p.writing().acquire(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		share := sharing(ctx, n)
		synctest.Wait()
		callOff(p, n, cancel)
		need.That(t, "shared", share.failed(t) != nil)
		wantLines(t, log, slog.LevelWarn, "cannot let readers", 0)
		n.Release()
	})
}
