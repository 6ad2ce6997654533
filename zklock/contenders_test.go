package zklock_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestContendersAreListedInOrderWithTheirOwners(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, waiter := start(t, s, zklock.WithLabel("first")), start(t, s, zklock.WithLabel("größter"))
		begun := time.Now()
		n := holder.acquire(t)
		r := waiter.queue(t.Context())
		queue, err := waiter.lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(queue) != 2 {
			t.Fatalf("got %d contenders, want 2", len(queue))
		}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for i, label := range []string{"first", "größter"} {
			c := queue[i]
			if c.Label != label || c.PID != os.Getpid() || c.Host != host || c.Kind != zklock.KindTierlock {
				t.Errorf("contender %d: got %+v", i, c)
			}
			if d := c.Since.Sub(begun).Abs(); d > time.Second {
				t.Errorf("contender %d: since %v, off by %v", i, c.Since, d)
			}
		}
		if queue[0].Session != holder.session || queue[1].Session != waiter.session {
			t.Errorf("sessions: got %#x and %#x", queue[0].Session, queue[1].Session)
		}
		if path+"/"+queue[0].Node != n.Path() || queue[0].Token != n.Token() {
			t.Errorf("holder: got %+v, want %s with token %d", queue[0], n.Path(), n.Token())
		}
		n.Release()
		r.granted(t).Release()
	})
}

func TestContendersOfOtherLibrariesAreShownAndForeignChildrenAreNot(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/locks", path, path+"/leases")
		put(t, conn, zk.FlagEphemeral|zk.FlagSequence, path+"/a__lock__", path+"/b__WRIT__")
		put(t, conn, zk.FlagSequence, path+"/lock-")
		queue, err := p.lock.Contenders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, c := range queue {
			kinds = append(kinds, string(c.Kind))
			if c.Host != "" || c.PID != 0 || c.Label != "" {
				t.Errorf("made up an owner: %+v", c)
			}
		}
		if got, want := strings.Join(kinds, " "), "kazoo write mutex"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if last := queue[len(queue)-1]; last.Session != 0 {
			t.Errorf("a persistent node has session %#x", last.Session)
		}
	})
}

// From 3.8.4 and 3.9.2 on a server does not even say that there is a node which one may not read.
func TestContenderThatMayNotBeReadIsShownByItsName(t *testing.T) {
	for _, op := range []zktest.Op{zktest.OpGetData, zktest.OpExists} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			node := secret(t, raw(t, s))
			p := start(t, s)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op == op && f.Stage == zktest.Request {
					return zktest.Error(zktest.CodeNoAuth)
				}
				return zktest.Pass
			})
			queue, err := p.lock.Contenders(t.Context())
			if err != nil || len(queue) != 1 || path+"/"+queue[0].Node != node || queue[0].Data != nil {
				t.Fatalf("got %+v, %v; want %s", queue, err, node)
			}
			if known := queue[0].Session != 0; known != (op == zktest.OpGetData) {
				t.Errorf("%v refused: session %#x", op, queue[0].Session)
			}
		})
	}
}

// What another program or a later version says of itself may mean something else.
func TestContentInAnotherFormSaysNothingOfItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/locks", path)
		for i, data := range []string{`{"v":2,"host":"a","pid":7,"linger_ms":5}`, `{"host":"a","pid":7}`, `{"v":1,"host":"a","pid":7`, ``} {
			if _, err := conn.Create(fmt.Sprintf("%s/lock-%010d", path, i), []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		}
		queue, err := p.lock.Contenders(t.Context())
		if err != nil || len(queue) != 4 {
			t.Fatalf("got %+v, %v; want 4", queue, err)
		}
		for _, c := range queue {
			if c.Host != "" || c.PID != 0 || c.Linger != 0 {
				t.Errorf("%s: read %+v", c.Data, c)
			}
		}
	})
}

func TestContendersOfAnUnusedLockAreNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		queue, err := start(t, s).lock.Contenders(t.Context())
		if err != nil || len(queue) != 0 {
			t.Errorf("got %v, %v", queue, err)
		}
		if s.Exists("/locks") {
			t.Error("looking created the path")
		}
	})
}

func TestNodeDataIsSmallAndValid(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s, zklock.WithLabel(strings.Repeat("<", 256))).acquire(t)
		data, stat, _ := s.Get(n.Path())
		if len(data) > 1024 || !json.Valid(data) {
			t.Errorf("got %d bytes, valid JSON: %t; want at most 1024", len(data), json.Valid(data))
		}
		if stat.Version != 0 {
			t.Errorf("written %d times after its creation", stat.Version)
		}
	})
}
