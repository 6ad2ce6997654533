package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const (
	lockPath  = "/locks/a" // these two are there from the beginning
	otherPath = "/locks/b"

	lease = 4 * time.Second // sessionTimeout less the default margin

	// bound is the time within which a healthy ensemble must get to whatever is waited
	// for: the sessions of the dead expire, and the periodic look at the queue comes.
	bound = 3 * sessionTimeout
)

// A scene is an ensemble and the processes that lock in it, in virtual time. Whatever
// is played, at the end nobody held the lock together with somebody else, it can be had
// by another process, and nothing is left behind.
type scene struct {
	*testing.T
	srv        *zktest.Server
	grants     atomic.Int64
	faults     fault.Set
	background sync.WaitGroup // which time does not pass without

	mu       sync.Mutex       // guards the fields below; never held across a call of the server
	sent     []zktest.Frame   // requests that have arrived, pings left out
	homes    map[int64]string // session → address of its process
	owners   map[string]int64 // lock node → session that made it
	created  []string         // lock nodes in order of creation
	actors   []*actor
	turns    []*turn
	operator *zk.Conn
}

func play(f func(s *scene)) func(t *testing.T) {
	return func(t *testing.T) {
		// Time does not pass in a bubble while a goroutine waits for a sync.Mutex: a
		// deadlock of the client library would hang there without a word.
		still := time.AfterFunc(time.Minute, func() { panic(t.Name() + ": time stands still") })
		defer still.Stop()
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			f(s)
			s.finish()
		})
	}
}

// each plays f once for every variant of a scenario.
func each[V any](variants map[string]V, f func(s *scene, v V)) func(t *testing.T) {
	return func(t *testing.T) {
		for name, v := range variants {
			t.Run(name, play(func(s *scene) { f(s, v) }))
		}
	}
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T:      t,
		srv:    zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Hour}),
		homes:  make(map[int64]string),
		owners: make(map[string]int64),
	}
	t.Cleanup(s.background.Wait)
	s.srv.Intercept(s.intercept)
	s.srv.OnChange(s.observe)
	for _, path := range []string{"/locks", lockPath, otherPath} {
		_, err := s.admin().Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		s.must(err)
	}
	return s
}

// observe checks that nobody deletes the node of another process.
func (s *scene) observe(view zktest.View, changes []zktest.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		switch z, ok := parseZnode(c.Path); {
		case !ok || z.forKazoo():
		case c.Op == "create":
			s.owners[c.Path] = c.Session
			s.created = append(s.created, c.Path)
		case c.Op == "delete":
			by, of := s.homes[c.Session], s.homes[s.owners[c.Path]]
			if by != "" && by != of {
				s.Errorf("the process at %s deleted %s of the process at %s", by, c.Path, of)
			}
		}
	}
}

// nodes returns how many lock nodes have been created so far.
func (s *scene) nodes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created)
}

// requests returns how many requests of a kind the process has sent so far.
func (p *actor) requests(ops ...string) int {
	p.scene.mu.Lock()
	defer p.scene.mu.Unlock()
	n := 0
	for _, f := range p.scene.sent {
		for _, op := range ops {
			if f.Op == op && p.uses(f.Member) {
				n++
			}
		}
	}
	return n
}

// eventually lets virtual time pass until the condition holds.
func (s *scene) eventually(within time.Duration, what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s", within, what)
		}
	}
}

// finish heals everything and checks what must be true at the end of any scene.
func (s *scene) finish() {
	s.Helper()
	s.heal()
	s.background.Wait()
	for _, u := range s.turns {
		u.end()
	}
	s.operator.Close()
	s.eventually(bound, "nothing is left behind", func() bool { return s.leftovers() == "" })
	another := s.join(role{})
	for _, path := range s.paths() {
		another.acquireAt(path).end()
	}
	for _, p := range s.actors {
		p.locks.Close()
	}
	synctest.Wait()
	if left := s.leftovers(); left != "" {
		s.Errorf("after everybody has gone: %s", left)
	}
	s.checkExclusion()
}

func (s *scene) leftovers() string {
	var left []string
	for _, sess := range s.srv.Sessions() {
		left = append(left, sess.Ephemerals...)
	}
	for _, p := range s.actors {
		if n := p.reaping(); n > 0 && !errors.Is(p.client.Err(), zklock.ErrClosed) {
			left = append(left, fmt.Sprintf("%d to reap at %s", n, p.servers[0]))
		}
	}
	return strings.Join(left, ", ")
}

func (s *scene) paths() []string {
	seen := map[string]bool{lockPath: true}
	paths := []string{lockPath}
	for _, u := range s.turns {
		if u.hold != nil && !seen[u.path] {
			seen[u.path] = true
			paths = append(paths, u.path)
		}
	}
	return paths
}

// admin returns a connection of the operator, who has no use for locks.
func (s *scene) admin() *zk.Conn {
	s.Helper()
	if s.operator == nil {
		s.operator = s.connectTo(s.srv)
	}
	return s.operator
}

func (s *scene) connectTo(srv *zktest.Server) *zk.Conn {
	s.Helper()
	return zkconn.Start(s, []string{"127.0.0.1:2181"}, 40*time.Second, srv.DialTimeout)
}

// must checks the outcome of a step that is not what the scene is about.
func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) wantErr(err error, targets ...error) {
	s.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			s.Errorf("error: got %v, want one that wraps %v", err, target)
		}
	}
}

// in returns a context that ends in the middle of a scene.
func (s *scene) in(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	s.Cleanup(cancel)
	return ctx
}
