package zktest

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// FuzzRequest sends two arbitrary requests: the server answers or hangs up, and its tree stays whole.
func FuzzRequest(f *testing.F) {
	for _, op := range []int32{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
		for _, flags := range []int32{0, 1, 2, 3, flagContainer} {
			f.Add(op, []byte(createBody("/a", "x", flags)),
				int32(wire.OpMulti), []byte(multiBody(op, createBody("/a/b", "x", flags))))
		}
	}
	f.Add(int32(wire.OpCreateContainer), []byte(createBody("/a", "x", 4)), int32(wire.OpDelete), []byte(deleteBody("/a")))
	f.Add(int32(wire.OpSetWatches), []byte(setWatchesBody(0, "/a", "/")), int32(wire.OpSetAuth), []byte(authBody("digest", "u:p")))
	f.Add(int32(wire.OpExists), []byte(pathAndFlag("", true)), int32(wire.OpGetChildren2), []byte(pathAndFlag("/", true)))
	f.Add(int32(wire.OpDelete), []byte(deleteBody("")), int32(wire.OpCreate), []byte(createBody("", "x", 0)))
	f.Add(int32(wire.OpPing), []byte{}, int32(wire.OpClose), []byte{})
	f.Add(int32(77), []byte{1}, int32(-1), []byte{})
	f.Fuzz(func(t *testing.T, op1 int32, body1 []byte, op2 int32, body2 []byte) {
		if len(body1)+len(body2) > maxFrame/2 {
			t.Skip()
		}
		s := NewServer(Config{})
		p := &peer{t: t, dial: func() (net.Conn, error) { return s.DialTimeout("tcp", "a", 0) }}
		p.open("a", 0, nil)
		p.conns["a"].SetDeadline(time.Now().Add(5 * time.Second))
		p.send("a", 1, op1, body1)
		p.send("a", 2, op2, body2)
		p.send("a", 3, wire.OpClose, nil)
		for p.read("a") != nil {
		}
		s.Expire(p.ids["a"]) // still there if the connection ended before the third request
		s.Close()
		checkTree(t, s)
		if len(s.conns) != 0 {
			t.Errorf("%d connections left after Close", len(s.conns))
		}
	})
}

// checkTree checks counts and indexes against the nodes.
func checkTree(t *testing.T, s *Server) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	kids := make(map[string]int32)
	ephemerals, containers := 0, 0
	for path, n := range s.tree.nodes {
		parent, name := splitPath(path)
		if path != "/" {
			kids[parent]++
			if _, ok := s.tree.children[parent][name]; !ok || s.tree.nodes[parent] == nil {
				t.Errorf("%q is not a child of its parent", path)
			}
		}
		if n.ephemeral() {
			ephemerals++
			if _, ok := s.tree.ephemerals[n.stat.EphemeralOwner][path]; !ok {
				t.Errorf("%q is not among the nodes of its session", path)
			}
		}
		if n.container() {
			containers++
		}
	}
	for path, n := range s.tree.nodes {
		if n.kids != kids[path] || len(s.tree.children[path]) != int(kids[path]) {
			t.Errorf("%q: counts %d children, lists %d, has %d", path, n.kids, len(s.tree.children[path]), kids[path])
		}
	}
	if ephemerals != 0 || len(s.tree.ephemerals) != 0 {
		t.Errorf("after the end of the session: %d ephemeral nodes, index %v", ephemerals, s.tree.ephemerals)
	}
	if len(s.tree.containers) != containers {
		t.Errorf("%d containers, index %v", containers, s.tree.containers)
	}
}

func TestActionThatDoesNotFitPanics(t *testing.T) {
	for action, f := range map[Action]Frame{
		Throttled:                 {Dir: Reply, Op: "create"},
		Error(zk.ErrSessionMoved): {Dir: Request, Op: "connect"},
	} {
		s := NewServer(Config{})
		s.Intercept(func(*Frame) Action { return action })
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v for %v: no panic", action, f)
				}
			}()
			(&conn{server: s}).fate(&f)
		}()
		s.Close()
	}
}
