package link

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A program uses only the client library. It records the requests and states of that library.
type program struct {
	*zk.Conn
	t      *testing.T
	s      *zktest.Server
	events <-chan zk.Event // no goroutine reads these

	mu       sync.Mutex // guards the fields below
	named    int        // how many times Next was called
	inDial   func() error
	dialed   []string        // networks and servers
	writes   [][]byte        // each element is one written frame
	told     []zk.Event      // the events that the callback got
	inEvent  func(zk.Event)  // called in the callback
	provider map[string]bool // the calls of the host provider
}

func (p *program) Init([]string) error { return nil }
func (p *program) Len() int            { return 1 }
func (p *program) Connected()          { p.note("Connected") }
func (p *program) Next() (server string, pause bool) {
	p.note("Next")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named++
	return addr, p.named > 1
}

func (p *program) note(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.provider[call] = true
}

func (p *program) dial(network, server string, timeout time.Duration) (net.Conn, error) {
	p.mu.Lock()
	p.dialed = append(p.dialed, network+" "+server)
	hook := p.inDial
	p.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return nil, err
		}
	}
	conn, err := p.s.DialTimeout(network, server, timeout)
	return recorded{conn, p}, err
}

type recorded struct {
	net.Conn
	p *program
}

func (r recorded) Write(b []byte) (int, error) {
	r.p.mu.Lock()
	r.p.writes = append(r.p.writes, slices.Clone(b))
	r.p.mu.Unlock()
	return r.Conn.Write(b)
}

func (p *program) onEvent(ev zk.Event) {
	p.mu.Lock()
	p.told = append(p.told, ev)
	hook := p.inEvent
	p.mu.Unlock()
	if hook != nil {
		hook(ev)
	}
}

// states waits until the bubble is idle. It returns the states that the callback got since the last call.
func (p *program) states() []zk.State {
	synctest.Wait()
	return p.take()
}

// take is like states, for callers that block the library.
func (p *program) take() (states []zk.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range p.told {
		if ev.Type == zk.EventSession {
			states = append(states, ev.State)
		}
	}
	p.told = nil
	return states
}

// sent returns the names and the xids of the requests since the last call.
func (p *program) sent() (ops []string, xids []int32) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, frame := range p.writes {
		d := wire.Decoder{Rest: wire.Body(frame)}
		h := d.RequestHeader()
		ops, xids = append(ops, wire.OpName(h.Op)), append(xids, h.Xid)
	}
	p.writes = nil
	return ops, xids
}

func (p *program) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

var up = []zk.State{zk.StateConnecting, zk.StateConnected, zk.StateHasSession}

// These rows test the behavior of the library on which the package relies. If a row fails with another version, see the comments in
// socket.go, dialed.go and attached.go. They say what depends on that behavior.
var assumptions = map[string]func(p *program){
	"it dials TCP, to the server that the provider has named, and tells the provider of success": func(p *program) {
		need.List(p.t, "dialed", p.dialed, "tcp "+addr)
		need.That(p.t, "the provider got no calls", p.provider["Next"] && p.provider["Connected"])
	},
	"it writes each frame with one call, the handshake first": func(p *program) {
		p.Exists("/x")
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, frame := range p.writes {
			d := wire.Decoder{Rest: frame}
			need.Equal(p.t, fmt.Sprint("the length of frame ", i), int(d.Int32()), len(frame)-4)
		}
		d := wire.Decoder{Rest: wire.Body(p.writes[0])}
		q := d.ConnectRequest()
		need.That(p.t, fmt.Sprintf("no handshake: %+v", q), !d.Bad && q.Timeout == timeout && len(q.Password) == wire.PasswordLen)
	},
	"its requests have xids that count up from 1, and its pings -2": func(p *program) {
		p.sent()
		p.Exists("/x")
		time.Sleep(timeout / 2)
		p.Exists("/x")
		ops, xids := p.sent()
		need.List(p.t, "requests", ops, "exists", "ping", "exists")
		need.That(p.t, fmt.Sprint("xids ", xids), xids[0] > 0 && xids[1] == -2 && xids[2] == xids[0]+1)
	},
	"it tells the callback all events in order, though nobody reads the channel": func(p *program) {
		need.List(p.t, "at first", p.states(), up...)
		for range 5 {
			p.s.CutAll()
			time.Sleep(2 * time.Second)
			need.List(p.t, "after a cut", p.states(), append([]zk.State{zk.StateDisconnected}, up...)...)
		}
	},
	"it knows its session before it says so, and has none once that has expired": func(p *program) {
		var ids []int64
		p.set(func() {
			p.inEvent = func(ev zk.Event) {
				if ev.State == zk.StateHasSession || ev.State == zk.StateExpired {
					ids = append(ids, p.SessionID())
				}
			}
		})
		p.s.Expire(p.SessionID())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		need.List(p.t, "sessions when it expired, and when there was one", ids, 0, p.SessionID())
		need.That(p.t, "no new session", p.SessionID() != 0 && p.State() == zk.StateHasSession)
	},
	"a request that is under way when the connection ends gets ErrConnectionClosed": func(p *program) {
		p.s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "exists" {
				return zktest.Cut
			}
			return zktest.Pass
		})
		wantErr(p.t, "Exists", need.ErrOf(exists(p.Conn)), zk.ErrConnectionClosed)
	},
	"a request that was never written gets ErrNoServer when all servers were tried": func(p *program) {
		p.s.Member(addr).Refuse()
		p.s.CutAll()
		synctest.Wait()
		wantErr(p.t, "Exists", need.ErrOf(exists(p.Conn)), zk.ErrNoServer)
		p.s.Member(addr).Accept()
	},
	"it presents credentials again before any other request": func(p *program) {
		need.OK(p.t, p.AddAuth("digest", []byte("u:p")))
		p.s.CutAll()
		synctest.Wait() // the library pauses before it connects again
		go p.Exists("/x")
		p.sent()
		time.Sleep(2 * time.Second)
		ops, _ := p.sent()
		need.List(p.t, "behind the handshake", ops[1:3], "setAuth", "exists")
	},
	"it sets no watches again if it has none": func(p *program) {
		p.Exists("/x")
		p.s.CutAll()
		p.sent()
		time.Sleep(timeout / 4)
		ops, _ := p.sent()
		need.Len(p.t, "sent behind the handshake", ops[1:], 0)
	},
	"a request that cannot be encoded is not sent, and refused otherwise than by a closed connection": func(p *program) {
		ask := func() error { return need.ErrOf(p.Multi((*zk.CheckVersionRequest)(nil))) }
		p.sent()
		need.That(p.t, "refused as by a closed one", !errors.Is(ask(), zk.ErrConnectionClosed))
		ops, _ := p.sent()
		need.Empty(p.t, "sent", ops)
		p.Close()
		wantErr(p.t, "once it is closed", ask(), zk.ErrConnectionClosed)
	},
	"of an error code without a name it tells the number": func(p *program) {
		p.s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "exists" && f.Dir == zktest.Request {
				return zktest.Throttled
			}
			return zktest.Pass
		})
		need.Equal(p.t, "the error", fmt.Sprint(need.ErrOf(exists(p.Conn))), "unknown error: -127")
	},
	"it cannot read that it has made a container": func(p *program) {
		_, err := p.Multi(&zk.CreateRequest{Path: "/c", Acl: all, Flags: zk.FlagContainer})
		wantErr(p.t, "Multi", err, zk.ErrAPIError)
		need.That(p.t, "nothing was made", p.s.Exists("/c"))
	},
	"the callback comes between the end of the pause and the refusal of what is queued": func(p *program) {
		p.s.Member(addr).Refuse()
		p.s.CutAll()
		synctest.Wait() // the library is in its pause
		p.set(func() {
			p.inEvent = func(ev zk.Event) {
				if ev.State == zk.StateDisconnected {
					time.Sleep(farewellWithin)
				}
			}
		})
		begun := time.Now()
		p.Close()
		need.Equal(p.t, "Close took", time.Since(begun), farewellWithin)
	},
	"it says that it connects before it pauses and dials": func(p *program) {
		p.states()
		var at []zk.State
		p.set(func() {
			p.inDial = func() error { at = p.take(); return nil }
		})
		p.s.CutAll()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		need.List(p.t, "states before the dialer was called", at, zk.StateDisconnected, zk.StateConnecting)
	},
	"it closes the channel of events as its last act": func(p *program) {
		p.Close()
		for range p.events { // if the channel stayed open, the bubble would fail
		}
		n := len(p.states())
		time.Sleep(timeout)
		need.Empty(p.t, "states after that", p.states())
		need.That(p.t, "no last state", n > 0)
	},
}

func exists(conn *zk.Conn) (bool, error) {
	found, _, err := conn.Exists("/x")
	return found, err
}

func TestTheClientLibrary(t *testing.T) {
	each(t, assumptions, func(t *testing.T, s *zktest.Server, holds func(p *program)) {
		p := &program{t: t, s: s, provider: make(map[string]bool)}
		conn, events, err := zk.Connect([]string{addr}, timeout, zk.WithHostProvider(p), zk.WithDialer(p.dial),
			zk.WithEventCallback(p.onEvent), zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
		need.OK(t, err)
		p.Conn, p.events = conn, events
		t.Cleanup(func() {
			conn.Close()
			for range events {
			}
		})
		synctest.Wait()
		holds(p)
	})
}

// The version that the warning names has to be the one in go.mod, with which the tests run.
func TestTheTestedLibraryIsThatOfTheModule(t *testing.T) {
	text := string(need.Get(os.ReadFile("../../../../go.mod"))(t))
	required := regexp.MustCompile(regexp.QuoteMeta(library) + ` (\S+)`).FindStringSubmatch(text)
	need.Must(t, "go.mod does not require the library", required != nil)
	need.Equal(t, "the version in go.mod", required[1], testedLibrary)
}

func TestAnotherLibraryThanTheTestedOneIsWarnedOf(t *testing.T) {
	linked := func(m ...*debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: append([]*debug.Module{{Path: "example.com/x", Version: "v3.0.0"}}, m...)}
	}
	replacedBy := func(by *debug.Module) *debug.BuildInfo {
		return linked(&debug.Module{Path: library, Version: testedLibrary, Replace: by})
	}
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		want string // "" for no warning
	}{
		"the tested one":         {linked(&debug.Module{Path: library, Version: testedLibrary}), ""},
		"a later one":            {linked(&debug.Module{Path: library, Version: "v1.0.5"}), "linked=v1.0.5 tested=" + testedLibrary},
		"a fork":                 {replacedBy(&debug.Module{Path: "b/zk", Version: "v1.0.4"}), "b/zk v1.0.4"},
		"a directory":            {replacedBy(&debug.Module{Path: "../zk"}), "linked=../zk tested"},
		"built without modules":  {nil, ""},
		"it is not in the list":  {linked(), ""},
		"a program without deps": {&debug.BuildInfo{}, ""},
	} {
		log, logger := logtest.New(slog.LevelDebug)
		warnOfLibrary(logger, linkedLibrary(c.info))
		lines := log.Lines(slog.LevelWarn, "")
		if c.want == "" {
			need.Empty(t, name+": warnings", lines)
			continue
		}
		need.Len(t, name+": warnings", lines, 1)
		need.Has(t, name, strings.Join(lines, ""), c.want)
	}
}
