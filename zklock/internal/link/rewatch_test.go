package link

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zktest"
)

// at meets the nth request of a kind from now on with an action.
func at(s *zktest.Server, op string, nth int, action zktest.Action) (met func() bool) {
	var seen atomic.Int64
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Op == op && f.Dir == zktest.Request && seen.Add(1) == int64(nth) {
			return action
		}
		return zktest.Pass
	})
	return func() bool { return seen.Load() >= int64(nth) }
}

// asked returns what was asked of a server from now on, pings and handshakes and the syncs of heartbeats apart.
func asked(s *zktest.Server) (take func() []string) {
	var mu sync.Mutex
	var ops []string
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		mu.Lock()
		defer mu.Unlock()
		if f.Dir == zktest.Request && f.Op != "ping" && f.Op != "connect" && (f.Op != "sync" || f.Path != "/") {
			ops = append(ops, f.Op)
		}
		return zktest.Pass
	})
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return ops
	}
}

// wantImmediate fails unless a read takes no time, once there is a connection.
func wantImmediate(t *testing.T, l *Link) {
	t.Helper()
	for l.Err() != nil {
		time.Sleep(time.Millisecond)
	}
	begun := time.Now()
	_, _, err := l.Conn.Get("/")
	need.OK(t, err)
	need.Equal(t, "the first read took", time.Since(begun), 0)
}

// The library forgets its SetWatches when the connection breaks before the credentials are answered, or at the next dial
// that fails.
func TestFirstReadAfterAReconnectIsImmediateThoughTheOneBeforeSetNoWatches(t *testing.T) {
	for _, refused := range []int64{0, 1, 2} {
		t.Run(fmt.Sprintf("%d dials refused", refused), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				var refuse atomic.Int64
				config := to(s)
				config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if refuse.Add(-1) >= 0 {
						return nil, net.ErrClosed
					}
					return s.DialContext(ctx, network, address)
				}
				l, other := dial(t, config, addr), dial(t, to(s), addr).Conn
				wantErr(t, "AddAuth", l.Conn.AddAuth("digest", []byte("u:p")), nil)
				put(t, other, "/x")
				fired := watch(t, l, "/x", false)
				dials := 0
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Op == "setAuth" && f.Dir == zktest.Request && dials == 0 {
						dials++
						refuse.Store(refused)
						return zktest.Cut
					}
					return zktest.Pass
				})
				s.CutAll()
				synctest.Wait()
				wantImmediate(t, l)
				need.OK(t, other.Delete("/x", -1))
				need.That(t, "the watch is lost", told(fired))
			})
		})
	}
}

// It may do so again and again, so the connection goes on, an operator can know, and whoever waits for an event looks again.
func TestServerThatRefusesToSetWatchesAgainIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var log strings.Builder
		config := to(s)
		config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		l := dial(t, config, addr)
		put(t, l.Conn, "/x")
		fired := watch(t, l, "/x", false)
		met := at(s, "setWatches", 1, zktest.Throttled)
		s.CutAll()
		synctest.Wait()
		wantImmediate(t, l)
		if !met() || !told(fired) || !strings.Contains(log.String(), strconv.Itoa(int(wire.CodeThrottled))) {
			t.Errorf("refused: %t; told: %t; logged: %q", met(), told(fired), &log)
		}
	})
}

// More watches than fit one request are set by several, and the connection breaks between them.
func TestNoEventIsLostThoughSettingWatchesTakesSeveralRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l, other := dial(t, to(s), addr), dial(t, to(s), addr).Conn
		var paths []string
		var watches []<-chan struct{}
		for i := range 200 { // of 200 KB
			path := fmt.Sprintf("/%04d%s", i, strings.Repeat("x", 1000))
			put(t, other, path)
			paths, watches = append(paths, path), append(watches, watch(t, l, path, false))
		}
		synctest.Wait()
		s.Mute(l.Session().ID, zktest.Request) // the client comes back, but is not heard
		s.Cut(l.Session().ID)
		for _, path := range paths {
			need.Get(other.Set(path, nil, -1))(t)
		}
		met := at(s, "setWatches", 2, zktest.Cut)
		s.Unmute(l.Session().ID, zktest.Request)
		synctest.Wait()
		need.That(t, "all in one request", met())
		wantImmediate(t, l)
		time.Sleep(timeout)
		lost := 0
		for _, fired := range watches {
			if !told(fired) {
				lost++
			}
		}
		need.Equal(t, fmt.Sprintf("events lost of %d", len(watches)), lost, 0)
	})
}

// One that claims to have seen less would fire them all.
func TestWatchOfANodeThatDidNotChangeOutlivesReconnects(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l, other := dial(t, to(s), addr), dial(t, to(s), addr).Conn
		put(t, other, "/x")
		put(t, other, "/y")
		data, children := watch(t, l, "/x", false), watch(t, l, "/y", true)
		for range 3 {
			s.CutAll()
			synctest.Wait()
			wantImmediate(t, l)
		}
		need.That(t, "told of what did not happen", !told(data) && !told(children))
		need.Get(other.Set("/x", nil, -1))(t)
		put(t, other, "/y/z")
		need.That(t, "events do not come any more", told(data) && told(children))
	})
}

// A request that was made while the connection was down goes out before anything else does. Its answer must not
// make the client believe that it has seen what happened before.
func TestWatchesAreSetBeforeARequestThatHasQueued(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l, other := dial(t, to(s), addr), dial(t, to(s), addr).Conn
		put(t, other, "/x")
		fired := watch(t, l, "/x", true)
		s.Mute(l.Session().ID, zktest.Request)
		s.Cut(l.Session().ID)
		synctest.Wait()
		put(t, other, "/x/y")
		ops := asked(s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Conn.Get("/")
		}()
		s.Unmute(l.Session().ID, zktest.Request)
		<-done
		asked := ops()
		need.That(t, fmt.Sprintf("asked: %v, want the watches first", asked), len(asked) > 0 && asked[0] == "setWatches")
		need.That(t, "the answer came before the event", told(fired))
	})
}

// A member that lags behind what a client has seen must not take it on. It can tell only from the handshake. One that never
// catches up, because its data were restored, takes on a new session when the old one is over.
func TestHandshakeClaimsWhatTheClientHasSeenInItsSession(t *testing.T) {
	each(t, map[string]bool{"it lags": true, "it was restored": false}, func(t *testing.T, s *zktest.Server, lags bool) {
		const behind = "127.0.0.2:2181"
		var laggard atomic.Bool
		config := to(s)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if laggard.Load() {
				address = behind
			}
			return s.DialContext(ctx, network, address)
		}
		l := dial(t, config, addr)
		s.Member(behind).Lag()
		put(t, l.Conn, "/x")
		laggard.Store(true)
		s.CutAll()
		time.Sleep(timeout - timeout/3)
		need.That(t, "connected to a member that is behind", l.Err() != nil)
		if lags {
			s.Member(behind).CatchUp()
			time.Sleep(time.Second)
		} else {
			time.Sleep(5 * timeout)
		}
		wantErr(t, "Err", l.Err(), nil)
	})
}

// Some servers show no event to a client that may not read the node.
func TestWatchesAreSetAfterTheCredentials(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		wantErr(t, "AddAuth", l.Conn.AddAuth("digest", []byte("u:p")), nil)
		put(t, l.Conn, "/x")
		watch(t, l, "/x", false)
		ops := asked(s)
		s.CutAll()
		if ops := ops(); len(ops) < 2 || ops[0] != "setAuth" || ops[1] != "setWatches" {
			t.Errorf("asked: %v", ops)
		}
	})
}
