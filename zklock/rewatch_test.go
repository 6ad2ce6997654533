package zklock_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// at meets the nth request of a kind from now on with an action.
func at(s *zktest.Server, op zktest.Op, nth int, action zktest.Action) (met func() bool) {
	var seen atomic.Int64
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Op == op && f.Stage == zktest.Request && seen.Add(1) == int64(nth) {
			return action
		}
		return zktest.Pass
	})
	return func() bool { return seen.Load() >= int64(nth) }
}

// wantImmediate fails unless a read takes no time, once there is a connection.
func wantImmediate(t *testing.T, p process) {
	t.Helper()
	for p.Err() != nil {
		time.Sleep(time.Millisecond)
	}
	begun := time.Now()
	if _, _, err := p.Library().Get("/"); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > 0 {
		t.Errorf("the first read took %v", d)
	}
}

// watch has p watch the node at path.
func (p process) watch(t *testing.T, path string) (fired chan struct{}) {
	t.Helper()
	return p.watchAny(t, path, false)
}

func (p process) watchChildren(t *testing.T, path string) (fired chan struct{}) {
	t.Helper()
	return p.watchAny(t, path, true)
}

func (p process) watchAny(t *testing.T, path string, children bool) chan struct{} {
	t.Helper()
	fired, err := p.Watch(path, children)
	if err != nil {
		t.Fatal(err)
	}
	return fired
}

// told reports whether there was an event.
func told(fired <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-fired:
		return true
	default:
		return false
	}
}

// The library forgets its SetWatches when the connection breaks before the credentials are answered, or at the next dial
// that fails.
func TestFirstReadAfterAReconnectIsImmediateThoughTheOneBeforeSetNoWatches(t *testing.T) {
	for _, refused := range []int64{0, 1, 2} {
		t.Run(fmt.Sprintf("%d dials refused", refused), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				var refuse atomic.Int64
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					if refuse.Add(-1) >= 0 {
						return nil, net.ErrClosed
					}
					return s.DialContext(ctx, network, address)
				}
				p := start(t, s, zklock.WithAuth("digest", []byte("u:p")), zklock.WithDialContext(dial))
				other := raw(t, s)
				put(t, other, 0, "/x")
				fired := p.watch(t, "/x")
				dials := 0
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Op == zktest.OpSetAuth && f.Stage == zktest.Request && dials == 0 {
						dials++
						refuse.Store(refused)
						return zktest.Cut
					}
					return zktest.Pass
				})
				s.CutAll()
				synctest.Wait()
				wantImmediate(t, p)
				if err := other.Delete("/x", -1); err != nil {
					t.Fatal(err)
				}
				if !told(fired) {
					t.Error("the watch is lost")
				}
			})
		})
	}
}

// It may do so again and again, so the connection goes on, and an operator can know.
func TestServerThatRefusesToSetWatchesAgainIsToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var log strings.Builder
		p := start(t, s, zklock.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		n := p.acquire(t)
		awaitWatch()
		met := at(s, zktest.OpSetWatches, 1, zktest.Error(zktest.CodeThrottled))
		s.CutAll()
		synctest.Wait()
		wantImmediate(t, p)
		if err := n.Err(); err != nil || !met() || !strings.Contains(log.String(), strconv.Itoa(int(zktest.CodeThrottled))) {
			t.Errorf("refused: %t; Err: %v; logged: %q", met(), err, &log)
		}
	})
}

// More watches than fit one request are set by several, and the connection breaks between them.
func TestNoEventIsLostThoughSettingWatchesTakesSeveralRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), raw(t, s)
		var paths []string
		var watches []<-chan struct{}
		for i := range 200 { // of 200 KB
			path := fmt.Sprintf("/%04d%s", i, strings.Repeat("x", 1000))
			put(t, other, 0, path)
			paths, watches = append(paths, path), append(watches, p.watch(t, path))
		}
		synctest.Wait()
		s.Mute(p.session, zktest.ToServer) // the client comes back, but is not heard
		s.Cut(p.session)
		for _, path := range paths {
			if _, err := other.Set(path, nil, -1); err != nil {
				t.Fatal(err)
			}
		}
		met := at(s, zktest.OpSetWatches, 2, zktest.Cut)
		s.Unmute(p.session, zktest.ToServer)
		synctest.Wait()
		if !met() {
			t.Fatal("all in one request")
		}
		wantImmediate(t, p)
		time.Sleep(timeout)
		lost := 0
		for _, fired := range watches {
			if !told(fired) {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d events were lost", lost, len(watches))
		}
	})
}

// One that claims to have seen less would fire them all.
func TestWatchOfANodeThatDidNotChangeOutlivesReconnects(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), raw(t, s)
		put(t, other, 0, "/x")
		put(t, other, 0, "/y")
		data, children := p.watch(t, "/x"), p.watchChildren(t, "/y")
		for range 3 {
			s.CutAll()
			synctest.Wait()
			wantImmediate(t, p)
		}
		if told(data) || told(children) {
			t.Error("told of what did not happen")
		}
		if _, err := other.Set("/x", nil, -1); err != nil {
			t.Fatal(err)
		}
		put(t, other, 0, "/y/z")
		if !told(data) || !told(children) {
			t.Error("events do not come any more")
		}
	})
}

// A request that was made while the connection was down goes out before anything else does. Its answer must not
// make the client believe that it has seen what happened before.
func TestWatchesAreSetBeforeARequestThatHasQueued(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), raw(t, s)
		put(t, other, 0, "/x")
		fired := p.watchChildren(t, "/x")
		s.Mute(p.session, zktest.ToServer)
		s.Cut(p.session)
		synctest.Wait()
		put(t, other, 0, "/x/y")
		tr := record(s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Library().Get("/")
		}()
		s.Unmute(p.session, zktest.ToServer)
		<-done
		if ops := tr.take(); len(ops) == 0 || ops[0] != zktest.OpSetWatches {
			t.Errorf("asked: %v, want the watches first", ops)
		}
		if !told(fired) {
			t.Error("the answer came before the event")
		}
	})
}

// A member that lags behind what a client has seen must not take it on. It can tell only from the handshake.
func TestHandshakeClaimsWhatTheClientHasSeen(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const behind = "127.0.0.2:2181"
		var laggard atomic.Bool
		p := start(t, s, zklock.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			if laggard.Load() {
				address = behind
			}
			return s.DialContext(ctx, network, address)
		}))
		s.Member(behind).Lag()
		put(t, p.Library(), 0, "/x")
		laggard.Store(true)
		s.CutAll()
		time.Sleep(lease)
		if err := p.Err(); err == nil {
			t.Error("connected to a member that is behind")
		}
		s.Member(behind).CatchUp()
		time.Sleep(time.Second)
		if err := p.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Some servers show no event to a client that may not read the node.
func TestWatchesAreSetAfterTheCredentials(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s, zklock.WithAuth("digest", []byte("u:p")))
		put(t, p.Library(), 0, "/x")
		p.watch(t, "/x")
		tr := record(s)
		s.CutAll()
		if ops := tr.take(); len(ops) < 2 || ops[0] != zktest.OpSetAuth || ops[1] != zktest.OpSetWatches {
			t.Errorf("asked: %v", ops)
		}
	})
}

func TestHoldersHearOfTheEndThoughTheServerRefusedToSetWatchesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		var nodes []*zklock.Node
		for i := range 20 { // a heartbeat looks at one of them
			n, err := lockAt(t, p.Client, fmt.Sprintf("/locks/%d", i)).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpSetWatches {
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		s.Cut(p.session)
		time.Sleep(time.Second)
		for _, n := range nodes {
			if err := conn.Delete(n.Path(), -1); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			wantErr(t, "Err of "+n.Path(), n.Err(), zklock.ErrLost)
		}
	})
}
