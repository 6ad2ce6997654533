package zktest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A target is a server that the conformance tests run against.
type target struct {
	addr string
	dial func(network, address string, timeout time.Duration) (net.Conn, error)
}

// TestScriptsOnModel and TestScriptsOnServer run the same scripts, testdata/*.txt. The expected results were recorded from ZooKeeper 3.8.0.
// Both tests have to give these results, apart from the changes of later releases.
func TestScriptsOnModel(t *testing.T) {
	s := zktest.Start(t)
	runScripts(t, zktest.Modelled, target{addr, s.DialTimeout})
}

// With ZKTEST_RECORD=1 in the environment, this test records the server's answers as the new expectations.
func TestScriptsOnServer(t *testing.T) {
	t.Parallel()
	s := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, TickTime: time.Second})
	release := need.Get(s.Version())(t)
	runScripts(t, release, target{s.Addr(), net.DialTimeout})
}

func runScripts(t *testing.T, release string, on target) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	need.Must(t, fmt.Sprintf("no scripts: %v", err), err == nil && len(files) != 0)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text := need.Get(os.ReadFile(file))(t)
			got := runScript(t, on, string(text))
			if os.Getenv("ZKTEST_RECORD") == "1" && on.addr != addr {
				need.Must(t, fmt.Sprintf("recorded is %s, not %s", zktest.Modelled, release), release == zktest.Modelled)
				need.OK(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			compareLines(t, file, got, zktest.Expect(t, release, name, string(text)))
		})
	}
}

// compareLines reports only the first line that differs, because later differences seldom mean anything.
func compareLines(t *testing.T, file, got, want string) {
	t.Helper()
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if g, w := line(gotLines, i), line(wantLines, i); g != w {
			t.Errorf("%s:%d:\n got %s\nwant %s\n  in %s", file, i+1, g, w, lastCommand(wantLines, i))
			return
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}

func lastCommand(lines []string, i int) string {
	for i = min(i, len(lines)-1); i > 0; i-- {
		if isCommand(lines[i]) {
			break
		}
	}
	return lines[i]
}

// A script is a text of commands. A command is "<client> <verb> <arguments>", and the following indented lines are its outcome. A word may
// be quoted as in Go. A client connects when its name first appears. Stats are printed with zxids relative to the start of the script: "c+1
// m+1 p+2 v0 cv2 av0 owner=a len=4 kids=1". Times are only checked to be close to the present.
type script struct {
	t       *testing.T
	on      target
	base    int64
	clients map[string]*client
	out     strings.Builder
}

func isCommand(line string) bool {
	return line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#")
}

// runScript returns the script with the results of this target. It leaves an empty tree.
func runScript(t *testing.T, on target, text string) string {
	s := &script{t: t, on: on, clients: make(map[string]*client)}
	s.base = s.startZxid()
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		fmt.Fprintln(&s.out, line)
		if isCommand(line) {
			s.run(words(t, line))
		}
	}
	for _, c := range s.clients {
		c.close()
	}
	s.startZxid()
	return s.out.String()
}

func words(t *testing.T, line string) []string {
	words := strings.Fields(line)
	for i, word := range words {
		if strings.HasPrefix(word, `"`) {
			var err error
			if words[i], err = strconv.Unquote(word); err != nil {
				t.Fatalf("script: %s: %v", word, err)
			}
		}
	}
	return words
}

// shown returns a path in the form that a script uses.
func shown(path string) string {
	if quoted := strconv.QuoteToASCII(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// startZxid empties the tree with a separate client. It returns the zxid of the last transaction.
func (s *script) startZxid() int64 {
	c := newClient(s.t, s.on, 10*time.Second)
	for _, user := range []string{"u:secret", "v:secret"} {
		need.OK(s.t, c.conn.AddAuth("digest", []byte(user)))
	}
	deleteAll(s.t, c.conn, "/")
	need.Get(c.conn.Create("/start", nil, 0, zk.WorldACL(zk.PermAll)))(s.t)
	_, stat, err := c.conn.Get("/start")
	need.OK(s.t, err)
	need.OK(s.t, c.conn.Delete("/start", -1))
	c.close()
	const after = 2 // two transactions follow: the deletion, and the end of the session
	return stat.Czxid + after
}

func deleteAll(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	children, _, err := conn.Children(path)
	need.OK(t, err)
	for _, name := range children {
		child := strings.TrimSuffix(path, "/") + "/" + name
		if child == "/zookeeper" {
			continue
		}
		deleteAll(t, conn, child)
		need.OK(t, conn.Delete(child, -1))
	}
}

func (s *script) print(format string, args ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", args...) }

func (s *script) result(err error, format string, args ...any) {
	if err != nil {
		s.print("%v", err)
		return
	}
	s.print(format, args...)
}

func (s *script) run(words []string) {
	c := s.clients[words[0]]
	if c == nil {
		c = newClient(s.t, s.on, 10*time.Second)
		s.clients[words[0]] = c
	}
	verb, args := words[1], words[2:]
	switch verb {
	case "create", "delete", "set", "check":
		s.write(c, verb, args)
	case "multi":
		s.multi(c, strings.Split(strings.Join(args, " "), " | "))
	case "get", "getw", "exists", "existsw", "children", "childrenw", "acl":
		s.read(c, verb, args[0])
	case "setacl":
		stat, err := c.conn.SetACL(args[0], parseACL(args[1]), parseInt(args[2]))
		s.result(err, "%s", s.stat(stat))
	case "sync":
		path, err := c.conn.Sync(args[0])
		s.result(err, "%s", shown(path))
	case "auth":
		s.result(c.conn.AddAuth("digest", []byte(args[0])), "ok")
	case "events", "sorted":
		// This read makes sure that earlier events have arrived: they come before its reply.
		if _, _, err := c.conn.Exists("/"); err != nil {
			s.t.Fatal(err)
		}
		s.events(c.takeEvents(), verb == "sorted")
	case "cut":
		c.cut()
	case "reconnect":
		c.reconnect()
	case "close":
		c.close()
		delete(s.clients, words[0])
	default:
		s.t.Fatalf("script: no verb %q", verb)
	}
}

// The method events prints events. If the order in which the client sets its watches may vary, the events are sorted.
func (s *script) events(events []zk.Event, sorted bool) {
	if sorted {
		slices.SortFunc(events, func(a, b zk.Event) int { return strings.Compare(a.Path, b.Path) })
	}
	for _, ev := range events {
		s.print("%v %s", ev.Type, ev.Path)
	}
}

func (s *script) write(c *client, verb string, args []string) {
	switch op := parseOp(verb, args).(type) {
	case *zk.CreateRequest:
		create := c.conn.Create
		if op.Flags == zk.FlagContainer {
			create = c.conn.CreateContainer
		}
		path, err := create(op.Path, op.Data, op.Flags, op.Acl)
		s.result(err, "%s", shown(path))
	case *zk.DeleteRequest:
		s.result(c.conn.Delete(op.Path, op.Version), "ok")
	case *zk.SetDataRequest:
		stat, err := c.conn.Set(op.Path, op.Data, op.Version)
		s.result(err, "%s", s.stat(stat))
	default:
		s.t.Fatalf("script: %s only in a multi", verb)
	}
}

func (s *script) multi(c *client, lines []string) {
	var ops []any
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > 0 {
			ops = append(ops, parseOp(words[0], words[1:]))
		}
	}
	results, err := c.conn.Multi(ops...)
	s.result(err, "ok")
	for _, r := range results {
		s.result(r.Error, "- %s%s", r.String, s.stat(r.Stat))
	}
}

func (s *script) read(c *client, verb, path string) {
	switch verb {
	case "get":
		data, stat, err := c.conn.Get(path)
		s.result(err, "%q %s", data, s.stat(stat))
	case "getw":
		data, stat, _, err := c.conn.GetW(path)
		s.result(err, "%q %s", data, s.stat(stat))
	case "exists":
		ok, stat, err := c.conn.Exists(path)
		s.result(err, "%t %s", ok, s.statIf(ok, stat))
	case "existsw":
		ok, stat, _, err := c.conn.ExistsW(path)
		s.result(err, "%t %s", ok, s.statIf(ok, stat))
	case "children":
		names, stat, err := c.conn.Children(path)
		slices.Sort(names)
		s.result(err, "%q %s", names, s.stat(stat))
	case "childrenw":
		names, stat, _, err := c.conn.ChildrenW(path)
		slices.Sort(names)
		s.result(err, "%q %s", names, s.stat(stat))
	case "acl":
		acl, stat, err := c.conn.GetACL(path)
		s.result(err, "%v %s", acl, s.stat(stat))
	}
}

func (s *script) statIf(ok bool, stat *zk.Stat) string {
	if !ok {
		return ""
	}
	return s.stat(stat)
}

func (s *script) stat(stat *zk.Stat) string {
	if stat == nil {
		return ""
	}
	for _, ms := range []int64{stat.Ctime, stat.Mtime} {
		if age := time.Since(time.UnixMilli(ms)); age.Abs() > time.Minute && stat.Czxid != 0 {
			s.t.Errorf("a time in a Stat is off by %v", age)
		}
	}
	return fmt.Sprintf("c%+d m%+d p%+d v%d cv%d av%d owner=%s len=%d kids=%d",
		stat.Czxid-s.base, stat.Mzxid-s.base, stat.Pzxid-s.base, stat.Version, stat.Cversion, stat.Aversion,
		s.owner(stat.EphemeralOwner), stat.DataLength, stat.NumChildren)
}

func (s *script) owner(session int64) string {
	if session == 0 {
		return "none"
	}
	for name, c := range s.clients {
		if c.conn.SessionID() == session {
			return name
		}
	}
	return "unknown"
}

func parseInt(word string) int32 {
	n, err := strconv.ParseInt(word, 10, 32)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

// A client is a zk.Conn whose connection can be cut. It records its watch events in order.
type client struct {
	t      *testing.T
	on     target
	conn   *zk.Conn
	closed <-chan zk.Event

	mu          sync.Mutex // guards the fields below
	nc          net.Conn
	down        bool // dialing fails while this is set
	events      []zk.Event
	sessions    int // how many times a session was granted
	setsWatches int // how many setWatches requests were sent
}

func newClient(t *testing.T, on target, timeout time.Duration) *client {
	t.Helper()
	c := &client{t: t, on: on}
	conn, events, err := zk.Connect([]string{on.addr, on.addr}, timeout, zk.WithDialer(c.dial),
		zk.WithEventCallback(c.event), zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
	need.OK(t, err)
	c.conn, c.closed = conn, events
	c.await("a session", func() bool { return c.sessions == 1 })
	return c
}

func (c *client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, net.ErrClosed
	}
	nc, err := c.on.dial(network, address, timeout)
	c.nc = nc
	return &tap{nc, c}, err
}

// A tap counts the requests that restore watches.
type tap struct {
	net.Conn
	client *client
}

func (t *tap) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	if d := (wire.Decoder{Rest: wire.Body(b)}); d.RequestHeader().Op == wire.OpSetWatches {
		t.client.mu.Lock()
		defer t.client.mu.Unlock()
		t.client.setsWatches++
	}
	return n, err
}

func (c *client) event(ev zk.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ev.Type == zk.EventSession && ev.State == zk.StateHasSession:
		c.sessions++
	case ev.Type > 0:
		c.events = append(c.events, ev)
	}
}

func (c *client) takeEvents() []zk.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

// await polls condition. It locks mu for each call of condition.
func (c *client) await(what string, condition func() bool) {
	c.t.Helper()
	waittest.Eventually(c.t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return condition()
	})
}

// cut breaks the connection and prevents the client from reconnecting.
func (c *client) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	c.nc.Close()
}

// reconnect ends a cut, for a client that has watches. It returns when the client has set its watches again. Before that, a reply would
// race with the building of that request (a data race in the client, on its lastZxid).
func (c *client) reconnect() {
	c.mu.Lock()
	sets := c.setsWatches
	c.down = false
	c.mu.Unlock()
	c.await("watches", func() bool { return c.setsWatches > sets })
}

func (c *client) close() {
	c.conn.Close()
	for range c.closed {
	}
}

var modes = map[string]int32{
	"e": zk.FlagEphemeral, "s": zk.FlagSequence, "es": zk.FlagEphemeral | zk.FlagSequence, "c": zk.FlagContainer,
}

// parseOp understands "create path data [mode] [acl]", "delete path version", "set path data version" and
// "check path version".
func parseOp(verb string, args []string) any {
	switch verb {
	case "create":
		op := &zk.CreateRequest{Path: args[0], Data: []byte(args[1]), Acl: zk.WorldACL(zk.PermAll)}
		for _, arg := range args[2:] {
			if acl, ok := strings.CutPrefix(arg, "acl="); ok {
				op.Acl = parseACL(acl)
			} else {
				op.Flags = modes[arg]
			}
		}
		return op
	case "delete":
		return &zk.DeleteRequest{Path: args[0], Version: parseInt(args[1])}
	case "set":
		return &zk.SetDataRequest{Path: args[0], Data: []byte(args[1]), Version: parseInt(args[2])}
	case "check":
		return &zk.CheckVersionRequest{Path: args[0], Version: parseInt(args[1])}
	}
	panic("script: no operation " + verb)
}

// parseACL parses entries "scheme/id/perms" that are joined by "+". The perms are some of "rwcda". With the scheme "user", the id is a user
// whose password is "secret". The text "none" is the empty ACL.
func parseACL(text string) []zk.ACL {
	list := []zk.ACL{}
	if text == "none" {
		return list
	}
	for entry := range strings.SplitSeq(text, "+") {
		part := strings.Split(entry, "/")
		var perms int32
		for i, letter := range "rwcda" {
			if slices.Contains([]rune(part[2]), letter) {
				perms |= 1 << i
			}
		}
		if part[0] == "user" {
			list = append(list, zk.DigestACL(perms, part[1], "secret")...)
		} else {
			list = append(list, zk.ACL{Perms: perms, Scheme: part[0], ID: part[1]})
		}
	}
	return list
}

// The constant shortest is the shortest session timeout that both targets grant. A busy machine can still keep a session of this length.
const shortest = 2 * time.Second

// onBoth runs a test against both targets. The test is about times, which a script cannot record.
func onBoth(t *testing.T, test func(t *testing.T, on target)) {
	t.Run("model", func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{MinSessionTimeout: shortest, ContainerCheck: 50 * time.Millisecond})
		test(t, target{addr, s.DialTimeout})
	})
	t.Run("server", func(t *testing.T) {
		s := childtest.Start(t, zkserver.Start, zkserver.Config{
			NoSync: true, TickTime: shortest / 2, ContainerCheck: 50 * time.Millisecond,
		})
		test(t, target{s.Addr(), net.DialTimeout})
	})
}

func TestLostSessionExpires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, on target) {
		a, b := newClient(t, on, shortest), newClient(t, on, 10*time.Second)
		t.Cleanup(a.close)
		t.Cleanup(b.close)
		need.Get(a.conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)))(t)
		_, _, gone, err := b.conn.GetW("/e")
		need.OK(t, err)
		lost := a.conn.SessionID()
		a.cut()
		need.Equal(t, "the event after the end of its session", (<-gone).Type, zk.EventNodeDeleted)
		a.mu.Lock()
		a.down = false
		a.mu.Unlock()
		a.await("new session", func() bool { return a.sessions == 2 })
		need.That(t, "a session is back from the dead", a.conn.SessionID() != lost)
	})
}

func TestOnlyContainersOnceUsedAreReaped(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, on target) {
		c := newClient(t, on, 10*time.Second)
		t.Cleanup(c.close)
		acl := zk.WorldACL(zk.PermAll)
		need.Get(c.conn.CreateContainer("/used", nil, zk.FlagContainer, acl))(t)
		need.Get(c.conn.CreateContainer("/unused", nil, zk.FlagContainer, acl))(t)
		need.Get(c.conn.CreateContainer("/last", nil, zk.FlagContainer, acl))(t)
		need.Get(c.conn.Create("/plain", nil, zk.FlagContainer, acl))(t) // this flag alone creates no container
		_, _, gone, err := c.conn.GetW("/last")
		need.OK(t, err)
		for _, parent := range []string{"/plain", "/used", "/last"} {
			need.Get(c.conn.Create(parent+"/child", nil, 0, acl))(t)
		}
		born := &zk.CreateRequest{Path: "/born", Acl: acl, Flags: zk.FlagContainer}
		_, err = c.conn.Multi(born, &zk.CreateRequest{Path: "/born/child", Acl: acl})
		need.WantErr(t, "one made with its child, which the library cannot read", err, zk.ErrAPIError)
		for _, parent := range []string{"/plain", "/used", "/last", "/born"} {
			need.OK(t, c.conn.Delete(parent+"/child", -1))
		}
		need.Equal(t, "the event", (<-gone).Type, zk.EventNodeDeleted)
		waittest.Eventually(t, "reaping", func() bool {
			used, _, err := c.conn.Exists("/used")
			born, _, err2 := c.conn.Exists("/born")
			return err == nil && err2 == nil && !used && !born
		})
		for _, path := range []string{"/plain", "/unused"} {
			if ok, _, err := c.conn.Exists(path); !ok || err != nil {
				t.Errorf("Exists(%q): got %t, %v, want true", path, ok, err)
			}
		}
	})
}
