package zklock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/logtest"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// startLogged returns a process and what it logs from INFO on.
func startLogged(t *testing.T, s *zktest.Server) (process, *logtest.Log) {
	t.Helper()
	log, logger := logtest.New(slog.LevelInfo)
	p := start(t, s, zklock.WithLogger(logger))
	if got := strings.ReplaceAll(log.String(), "tick", ""); strings.Count(got, "\n") > 1 { // about the session timeout
		t.Errorf("logged at the start: %s", got)
	}
	return p, log
}

func wantLines(t *testing.T, log *logtest.Log, level slog.Level, text string, want int) []string {
	t.Helper()
	synctest.Wait()
	lines := log.Lines(level, text)
	if len(lines) != want {
		t.Errorf("%d lines of level %v with %q, want %d, in:\n%.3000s", len(lines), level, text, want, log)
	}
	return lines
}

func TestLossIsLoggedOnce(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *zktest.Server, p process, n *zklock.Node){
		"expired": func(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
			s.Expire(p.session)
			awaitLoss(t, n)
		},
		"deleted": func(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
			if err := raw(t, s).Delete(n.Path(), -1); err != nil {
				t.Fatal(err)
			}
			awaitLoss(t, n)
		},
		"lapsed": func(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
			s.Freeze()
			awaitLoss(t, n)
			s.Unfreeze()
		},
		"found at the release": func(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
			n.StopWatchdog()
			s.Freeze()
			time.Sleep(timeout)
			n.Release()
			s.Unfreeze()
		},
		"found by the delete": func(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
			other := p.acquireAt(t, s, "/locks/y") // not watched yet
			if err := raw(t, s).Delete(other.Path(), -1); err != nil {
				t.Fatal(err)
			}
			other.Release()
			n.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, log := startLogged(t, s)
				n := p.acquire(t)
				awaitWatch()
				lose(t, s, p, n)
				n.Release()
				time.Sleep(time.Minute)
				line := strings.Join(wantLines(t, log, slog.LevelWarn, "lock lost", 1), "")
				if !strings.Contains(line, "path=/locks/") || !strings.Contains(line, "cause=\"lock lost: ") || !strings.Contains(line, "token=") {
					t.Errorf("no path, token or cause in %s", line)
				}
			})
		})
	}
}

func (p process) acquireAt(t *testing.T, s *zktest.Server, path string) *zklock.Node {
	t.Helper()
	p.lock = lockAt(t, p.Client, path)
	return p.acquire(t)
}

func TestNoLossIsLoggedWhereNoneWas(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		n := p.acquire(t)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := p.queue(ctx)
		s.Expire(p.session + 1000) // nobody
		cancel()
		waiting.failed(t)
		if err := n.Release(); err != nil {
			t.Error(err)
		}
		p.acquire(t)
		p.Close() // by the user
		wantLines(t, log, slog.LevelWarn, "lost", 0)
	})
}

func TestWaiterThatLosesItsPlaceLosesNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder := start(t, s)
		n := holder.acquire(t)
		p, log := startLogged(t, s)
		r := p.queue(t.Context())
		s.Expire(p.session)
		if !r.waiting() {
			t.Fatal("the wait ended")
		}
		n.Release()
		r.await(t)
		wantLines(t, log, slog.LevelWarn, "lost", 0)
		r.node.Release()
	})
}

func TestOutageIsLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		server := s.Member(addr)
		server.Refuse()
		s.CutAll()
		time.Sleep(timeout/3 - time.Millisecond)
		wantLines(t, log, slog.LevelWarn, "is away", 0)
		time.Sleep(time.Millisecond)
		line := strings.Join(wantLines(t, log, slog.LevelWarn, "is away", 1), "")
		if !strings.Contains(line, "since=") || !strings.Contains(line, "refused") {
			t.Errorf("no time or no reason in %s", line)
		}
		server.Accept()
		time.Sleep(timeout / 3)
		again := wantLines(t, log, slog.LevelInfo, "connected again", 1)
		if len(again) == 1 && !strings.Contains(again[0], "away=2") && !strings.Contains(again[0], "away=3") {
			t.Errorf("not how long: %s", again[0])
		}

		server.Refuse() // for longer than the session lasts
		s.CutAll()
		time.Sleep(time.Hour)
		wantLines(t, log, slog.LevelWarn, "is away", 2)
		server.Accept()
		time.Sleep(timeout)
		wantLines(t, log, slog.LevelWarn, "session expired", 1)
		wantLines(t, log, slog.LevelInfo, "new session", 1)
		if p.Err() != nil {
			t.Error(p.Err())
		}
	})
}

func TestDialThatKeepsFailingSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		s.Member(addr).Refuse()
		log, logger := logtest.New(slog.LevelInfo)
		dialed := make(chan error, 1)
		go func() {
			c, err := zklock.Dial(context.Background(), addr, zklock.WithDialContext(s.DialContext), zklock.WithLogger(logger))
			if err == nil {
				time.Sleep(time.Second)
				c.Close()
			}
			dialed <- err
		}()
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{2 * time.Second, 0}, {2 * time.Second, 1}, {6 * time.Second, 2}, {time.Minute, 4}, {2 * time.Hour, 4 + 2*12 + 3}} {
			time.Sleep(step.after)
			synctest.Wait()
			lines := log.Lines(slog.LevelWarn, "no connection")
			if got := len(lines); got > step.want || got < step.want*8/10 {
				t.Errorf("%d warnings, want %d: %.2000s", got, step.want, log)
			}
			for _, line := range lines {
				if !strings.Contains(line, "refused") {
					t.Errorf("no reason in %s", line)
				}
			}
		}
		s.Member(addr).Accept()
		if err := <-dialed; err != nil {
			t.Error(err)
		}
		wantLines(t, log, slog.LevelInfo, "connected", 1)
	})
}

// A logger that does not return must not keep anybody from a lock.
func TestSlowLoggerHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		stuck := make(chan struct{})
		p := start(t, s, zklock.WithLogger(slog.New(blocking{slog.DiscardHandler, stuck})))
		defer close(stuck)
		n := p.acquire(t)
		s.Expire(p.session)
		awaitLoss(t, n)
		if err := n.Release(); err == nil {
			t.Error("released a lost lock without an error")
		}
		if err := p.acquire(t).Release(); err != nil {
			t.Error(err)
		}
	})
}

type blocking struct {
	slog.Handler
	until <-chan struct{}
}

func (b blocking) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (b blocking) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "lost") || strings.Contains(r.Message, "session") && !strings.Contains(r.Message, "timeout") {
		<-b.until
	}
	return nil
}

func TestShareThatFailsForGoodIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		n := p.writing().acquire(t)
		reader := start(t, s).reading().queue(t.Context())
		acl := func(perms int32) {
			t.Helper()
			if _, err := raw(t, s).SetACL(path, zk.WorldACL(perms), -1); err != nil {
				t.Fatal(err)
			}
		}
		acl(zk.PermAll &^ zk.PermCreate)
		if err := sharing(t.Context(), n).failed(t); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("Share: %v, want %v", err, zk.ErrNoAuth)
		}
		if line := wantLines(t, log, slog.LevelWarn, "cannot let readers of other processes in", 1); len(line) == 1 && !strings.Contains(line[0], "path="+path) {
			t.Errorf("no path in %s", line[0])
		}
		acl(zk.PermAll)
		n.Release()
		reader.granted(t).Release()
	})
}

func TestShareThatIsCalledOffIsNotLogged(t *testing.T) {
	for name, callOff := range map[string]func(p process, n *zklock.Node, cancel func()){
		"by its caller": func(_ process, _ *zklock.Node, cancel func()) { cancel() },
		"by a release":  func(_ process, n *zklock.Node, _ func()) { n.Release() },
		"by Close":      func(p process, _ *zklock.Node, _ func()) { p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, log := startLogged(t, s)
				n := p.writing().acquire(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				share := sharing(ctx, n)
				synctest.Wait()
				callOff(p, n, cancel)
				if share.failed(t) == nil {
					t.Error("shared")
				}
				wantLines(t, log, slog.LevelWarn, "cannot let readers", 0)
				n.Release()
			})
		})
	}
}
