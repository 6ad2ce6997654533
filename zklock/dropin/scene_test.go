package dropin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A zkLock has the methods that zk.Lock and dropin.Lock share.
type zkLock interface {
	Lock() error
	LockWithData(data []byte) error
	Unlock() error
}

// A scene runs a behaviour. It has two processes and one lock path, and notes everything that a user would see.
type scene struct {
	t           *testing.T
	srv         *zktest.Server // nil if the server is a real one
	newLock     func(*zk.Conn, string, []zk.ACL) zkLock
	path        string
	acl         []zk.ACL
	another     func() *zk.Conn
	conn, other *zk.Conn
	notes       []string
}

func newScene(t *testing.T, addr string, dialer zk.Dialer) *scene {
	t.Helper()
	s := &scene{t: t, path: "/compat/a", acl: zk.WorldACL(zk.PermAll)}
	s.another = func() *zk.Conn { return outsider(t, addr, dialer) }
	s.conn, s.other = s.another(), s.another()
	return s
}

// play compares the notes with the expected notes.
func (s *scene) play(b behaviour, want string) {
	s.t.Helper()
	b.run(s, s.handle("", s.conn))
	s.left()
	need.Equal(s.t, "notes", strings.Join(s.notes, ", "), want)
}

func (s *scene) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// The variable named has the errors that a caller can distinguish.
var named = []struct {
	err  error
	name string
}{
	{tier.ErrClosed, "closed"},
	{tier.ErrLost, "lost"},
	{zk.ErrDeadlock, "ErrDeadlock"},
	{zk.ErrNotLocked, "ErrNotLocked"},
	{zk.ErrNoNode, "ErrNoNode"},
	{zk.ErrNoAuth, "ErrNoAuth"},
	{zk.ErrInvalidACL, "ErrInvalidACL"},
	{zk.ErrInvalidPath, "ErrInvalidPath"},
	{zk.ErrNoChildrenForEphemerals, "ErrNoChildrenForEphemerals"},
	{zk.ErrConnectionClosed, "ErrConnectionClosed"},
	{zk.ErrClosing, "ErrClosing"},
	{zk.ErrSessionExpired, "ErrSessionExpired"},
	{zk.ErrNoServer, "ErrNoServer"},
}

func nameOf(err error) string {
	if err == nil {
		return "ok"
	}
	var names []string
	for _, n := range named {
		if errors.Is(err, n.err) {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "some error"
	}
	return strings.Join(names, "+")
}

// patience returns how long a call may take before it counts as a call that waits.
func (s *scene) patience() time.Duration {
	if s.srv == nil {
		return time.Second
	}
	return time.Minute
}

// A handle is a lock whose results are recorded under its name.
type handle struct {
	scene *scene
	name  string
	zkLock
}

func (s *scene) handle(name string, conn *zk.Conn) handle {
	return handle{s, name, s.newLock(conn, s.path, s.acl)}
}

// original returns a zk.Lock.
func (s *scene) original(name string, conn *zk.Conn) handle {
	return handle{s, name, zk.NewLock(conn, s.path, s.acl)}
}

// A call is a call of a handle that may have to wait.
type call struct {
	handle  handle
	op      string
	outcome chan error
}

func (h handle) begin(op string, f func() error) call {
	c := call{h, strings.TrimPrefix(h.name+" "+op, " "), make(chan error, 1)}
	go func() { c.outcome <- f() }()
	h.scene.still()
	return c
}

func (h handle) beginLock() call { return h.begin("Lock", h.zkLock.Lock) }

// end records the result of the call, and reports whether there was one.
func (c call) end() bool {
	timer := time.NewTimer(c.handle.scene.patience())
	defer timer.Stop()
	select {
	case err := <-c.outcome:
		c.handle.scene.note("%s %s", c.op, nameOf(err))
		return true
	case <-timer.C:
		c.handle.scene.note("%s waits", c.op)
		c.handle.scene.t.Cleanup(c.free)
		return false
	}
}

// free ends a waiting call before its connection is closed. If a request is made while the library closes, the library may hang
// (conn.go:527).
func (c call) free() {
	s := c.handle.scene
	for _, child := range s.children() {
		s.removed(child)
	}
	select {
	case <-c.outcome:
	case <-time.After(s.patience()): // the call waits for something else
	}
}

func (h handle) lock() bool { return h.beginLock().end() }
func (h handle) lockWith(data string) bool {
	return h.begin("Lock", func() error { return h.LockWithData([]byte(data)) }).end()
}
func (h handle) unlock() bool { return h.begin("Unlock", h.zkLock.Unlock).end() }

// still waits until the bubble is idle. With a real server, it returns at once, because there is no way to know that.
func (s *scene) still() {
	if s.srv != nil {
		synctest.Wait()
	}
}

func (s *scene) children() []string {
	if s.srv != nil {
		return s.srv.Children(s.path)
	}
	children, _, err := s.other.Children(s.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.t.Fatal(err)
	}
	return children
}

// queued waits until n nodes are in the queue.
func (s *scene) queued(n int) {
	s.t.Helper()
	waittest.Eventually(s.t, fmt.Sprintf("%d nodes in the queue", n), func() bool { return len(s.children()) == n })
	s.still()
}

// left records how many nodes stay in the queue.
func (s *scene) left() {
	for end := time.Now().Add(s.patience()); len(s.children()) > 0 && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
	s.note("left %d", len(s.children()))
}

// close closes the connection and waits for its end; see free.
func (s *scene) close() {
	s.conn.Close()
	s.still()
}

// removed deletes a child, as its owner or an operator would do.
func (s *scene) removed(child string) {
	s.t.Helper()
	need.OK(s.t, s.other.Delete(s.path+"/"+child, -1))
}

// data returns the content of the first node in the queue.
func (s *scene) data() []byte {
	s.t.Helper()
	data, _, err := s.other.Get(s.path + "/" + s.children()[0])
	need.OK(s.t, err)
	return data
}

// put creates a node with its parents, as another program would do.
func (s *scene) put(path string, acl []zk.ACL) {
	s.t.Helper()
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		nodeACL := acl
		if i < len(path) {
			nodeACL = zk.WorldACL(zk.PermAll)
		}
		if _, err := s.other.Create(path[:i], nil, 0, nodeACL); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			s.t.Fatal(err)
		}
	}
}
