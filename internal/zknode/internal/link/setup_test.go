package link

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const (
	addr    = "127.0.0.1:2181"
	timeout = 6 * time.Second // the timeout of the sessions
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f with a new server, in virtual time. The end of the bubble checks that no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		f(t, s)
	})
}

// each runs f for each case, each time with a new server.
func each[C any](t *testing.T, cases map[string]C, f func(t *testing.T, s *zktest.Server, c C)) {
	t.Helper()
	need.Each(t, cases, func(t *testing.T, c C) {
		bubble(t, func(t *testing.T, s *zktest.Server) { f(t, s, c) })
	})
}

// to returns the configuration of a link to s.
func to(s *zktest.Server) Config {
	return Config{Settings: second.Settings{TTL: timeout, Logger: slog.New(slog.DiscardHandler)}, Dial: s.DialContext}
}

// dial returns a link that has a session.
func dial(t *testing.T, c Config, servers ...string) *Link {
	t.Helper()
	l := need.Get(tryDial(t.Context(), c, servers...))(t)
	t.Cleanup(func() { shut(l) })
	synctest.Wait()
	return l
}

// tryDial returns a link with a session. It waits for the session until ctx ends. After an error nothing has to be closed.
func tryDial(ctx context.Context, c Config, servers ...string) (*Link, error) {
	l := New(c)
	err := l.Dial(ctx, servers)
	if err != nil {
		return nil, err
	}
	if err = l.Present(ctx); err != nil {
		shut(l)
		return nil, err
	}
	return l, nil
}

func shut(l *Link) {
	if l.Context().Err() == nil {
		l.End()
		l.Close()
	}
}

// member returns the member to which the only session is connected. If it is not connected, member returns "".
func member(t *testing.T, s *zktest.Server) string {
	t.Helper()
	synctest.Wait()
	sessions := s.Sessions()
	need.Must(t, fmt.Sprintf("%d sessions, want 1", len(sessions)), len(sessions) == 1)
	return sessions[0].Member
}

// put creates nodes.
func put(t *testing.T, conn *zk.Conn, paths ...string) {
	t.Helper()
	zkconn.Put(t, conn, 0, paths...)
}

// watch makes l watch a node or its children. The returned channel is closed at the first event.
func watch(t *testing.T, l *Link, path string, children bool) (fired chan struct{}) {
	t.Helper()
	fired = make(chan struct{})
	w := new(Watcher)
	w.Notify = func() {
		select {
		case <-fired:
		default:
			close(fired)
		}
	}
	ask := func() Request { return l.Reading(path, w) }
	if children {
		ask = func() Request { return l.Listing(path, w) }
	}
	need.OK(t, l.Ask(ask())[0].Err)
	return fired
}

// told reports whether there was an event.
func told(fired <-chan struct{}) bool {
	synctest.Wait()
	return need.Closed(fired)
}

var wantErr, wantMention = need.WantErr, need.WantMention
