package link

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// asked returns a function. It returns the requests that a server got since the last call, without pings, handshakes and the syncs of
// heartbeats.
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

// wantImmediate waits for a connection, and checks that a read then takes no time.
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

func TestFirstReadAfterAReconnectIsImmediateThoughTheOneBeforeEndedWithTheCredentials(t *testing.T) {
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
				l := dial(t, config, addr)
				wantErr(t, "AddAuth", l.Conn.AddAuth("digest", []byte("u:p")), nil)
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
			})
		})
	}
}

// When a connection ends, the server forgets its watches. The link must set them again on the next connection.
func TestWatchEndsWithItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l, other := dial(t, to(s), addr), dial(t, to(s), addr).Conn
		put(t, other, "/x", "/y")
		for range 3 {
			node, children := watch(t, l, "/x", false), watch(t, l, "/y", true)
			checked := &Watcher{Checked: true, Notify: func() { t.Error("notified, although the watcher is checked anyway") }}
			l.Ask(l.Reading("/x", checked))
			need.That(t, "wrong watchers hear of the path", l.Events.Hears("/x", checked) && !l.Events.Hears("/x", new(Watcher)))
			s.CutAll()
			need.That(t, "the watchers were not notified", told(node) && told(children))
			need.That(t, "still taken for watched", !l.Events.Hears("/x", checked) && len(l.Events.Watchers()) == 0)
		}
		node, children := watch(t, l, "/x", false), watch(t, l, "/y", true)
		need.That(t, "notified without a change", !told(node) && !told(children))
		need.Get(other.Set("/x", nil, -1))(t)
		put(t, other, "/y/z")
		need.That(t, "events do not come any more", told(node) && told(children))
	})
}

// A watcher that has to read again sets its watch on the new connection, and gets its event there.
func TestWatchThatBeginsOnANewConnectionIsHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l, other := dial(t, to(s), addr), dial(t, to(s), addr).Conn
		put(t, other, "/x")
		looks, gone := make(chan struct{}, 10), make(chan struct{})
		w := new(Watcher)
		w.Notify = func() { looks <- struct{}{} }
		go func() {
			for !w.Gone.Load() {
				l.AwaitSession(t.Context())
				l.Ask(l.Reading("/x", w))
				<-looks
			}
			close(gone)
		}()
		synctest.Wait()
		for range 3 {
			s.CutAll()
			synctest.Wait()
		}
		need.OK(t, other.Delete("/x", -1))
		need.That(t, "the end of the node is not heard of", told(gone))
	})
}

// A member that lags behind the state that a client has seen must not accept the client. It learns of that state only from the handshake. A
// member whose data was restored never catches up; it accepts a new session after the old one has expired.
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
			time.Sleep(3 * time.Second / 2) // in this time, the client tries to connect at least once
		} else {
			time.Sleep(5 * timeout)
		}
		wantErr(t, "Err", l.Err(), nil)
	})
}

// A server whose data was restored may still know an old session, with nodes that the client has deleted since. These nodes would stay as
// long as that session lives. Therefore the client never resumes it.
func TestSessionThatWasAwayForLongIsNeverResumed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var asked wire.ConnectRequest
		config := to(s)
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return spied{conn, &asked}, err
		}
		l := dial(t, config, addr)
		put(t, l.Conn, "/x")
		begun := time.Now()
		for _, c := range []struct {
			after      time.Duration
			same, seen bool
		}{{timeout / 2, true, true}, {2 * timeout, false, true}, {5 * timeout, false, false}} {
			old := l.Session().ID
			s.Freeze()
			s.CutAll()
			time.Sleep(c.after)
			synctest.Wait()
			need.Equal(t, fmt.Sprint(c.after, ": the session is asked for"), asked.Session == old, c.same)
			need.Equal(t, fmt.Sprint(c.after, ": it names a transaction that it has seen"), asked.LastZxid > 0, c.seen)
			s.Unfreeze()
			time.Sleep(timeout)
			need.OK(t, l.Err())
		}
		need.AtLeast(t, "time", time.Since(begun), 10*timeout)
	})
}

// A spied is a connection that records the handshake.
type spied struct {
	net.Conn
	asked *wire.ConnectRequest
}

func (c spied) Write(frame []byte) (int, error) {
	d := wire.Decoder{Rest: wire.Body(frame)}
	if q := d.ConnectRequest(); !d.Bad && len(q.Password) == wire.PasswordLen {
		*c.asked = q
	}
	return c.Conn.Write(frame)
}

// After a reconnect, requests must follow the credentials, because some servers show nothing to a client without them.
func TestWhatIsAskedAfterAReconnectIsBehindTheCredentials(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		for _, secret := range []string{"u:p", "v:p"} {
			wantErr(t, "AddAuth", l.Conn.AddAuth("digest", []byte(secret)), nil)
		}
		put(t, l.Conn, "/x")
		looked := make(chan struct{})
		w := &Watcher{Notify: func() {
			go func() {
				defer close(looked)
				l.AwaitSession(t.Context())
				l.Ask(Get("/x"))
			}()
		}}
		l.Ask(l.Reading("/x", w))
		ops := asked(s)
		s.CutAll()
		<-looked
		need.List(t, "asked", ops(), "setAuth", "setAuth", "getData")
	})
}
