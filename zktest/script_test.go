package zktest_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// A script is a text of commands, each "<client> <verb> <arguments>" and followed by its indented outcome; a
// word may be quoted as in Go. Clients are connected when first named. Stats are printed with zxids relative to the start of the script: "c+1 m+1 p+2 v0
// cv2 av0 owner=a len=4 kids=1"; times are only checked to be the present.
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

// runScript returns the script with the outcomes it has on this target. It leaves an empty tree behind.
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

// shown is a path as it is written in a script.
func shown(path string) string {
	if quoted := strconv.QuoteToASCII(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// startZxid empties the tree, with a client of its own, and returns the zxid of the last transaction.
func (s *script) startZxid() int64 {
	c := newClient(s.t, s.on, 10*time.Second)
	for _, user := range []string{"u:secret", "v:secret"} {
		if err := c.conn.AddAuth("digest", []byte(user)); err != nil {
			s.t.Fatal(err)
		}
	}
	deleteAll(s.t, c.conn, "/")
	if _, err := c.conn.Create("/start", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		s.t.Fatal(err)
	}
	_, stat, err := c.conn.Get("/start")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.conn.Delete("/start", -1); err != nil {
		s.t.Fatal(err)
	}
	c.close()
	const after = 2 // the deletion and the end of the session
	return stat.Czxid + after
}

func deleteAll(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	children, _, err := conn.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range children {
		child := strings.TrimSuffix(path, "/") + "/" + name
		if child == "/zookeeper" {
			continue
		}
		deleteAll(t, conn, child)
		if err := conn.Delete(child, -1); err != nil {
			t.Fatal(err)
		}
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
		// Events of the past precede the reply to any read.
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

// events prints events, sorted where the client does not always ask for its watches in the same order.
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
