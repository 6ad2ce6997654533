package link

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A program need not close an attached link. At the end of the bubble, synctest fails the test if a goroutine of the link still waits for a
// task.
func TestAttachedLinkLeavesNoGoroutineBehindATask(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := New(to(s))
		conn := dial(t, to(s), addr).Conn
		l.Attach(conn, conn.SessionID)
		l.Spawn(func() {})
	})
}

// A session may expire between the check of the connection's state and the read of its ID. A caller that waits for a session must still get
// a valid ID.
func TestAttachedSessionThatIsAwaitedHasAnID(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, l := dial(t, to(s), addr).Conn, New(to(s))
		ids := []int64{0, 0, conn.SessionID()}
		l.Attach(conn, func() (id int64) {
			id, ids = ids[0], ids[1:]
			return id
		})
		if got, err := l.AwaitSession(t.Context()); err != nil || got == nil || got.ID != conn.SessionID() {
			t.Errorf("got %v, %v, want session 0x%x", got, err, conn.SessionID())
		}
	})
}

// A failed read sets no watch. If the link believed that it did, later readers would not read the path again.
func TestAttachedLookThatFailsLeavesNothingToListenTo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, l := dial(t, to(s), addr).Conn, New(to(s))
		l.Attach(conn, conn.SessionID)
		wantErr(t, "read", l.Ask(l.Reading("/missing", &Watcher{Notify: func() {}}))[0].Err, zk.ErrNoNode)
		need.Equal(t, "paths that are taken for watched", len(l.Events.Watchers()), 0)
	})
}

// Another program may write a megabyte of content. The link keeps nothing of it.
func TestOfALongContentNothingIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		own, l := dial(t, to(s), addr), New(to(s))
		l.Attach(own.Conn, own.Conn.SessionID)
		put(t, own.Conn, "/x")
		for length, kept := range map[int]int{maxData: maxData, maxData + 1: 0} {
			need.Get(own.Conn.Set("/x", make([]byte, length), -1))(t)
			for _, l := range []*Link{own, l} {
				need.Equal(t, "bytes that are kept", len(l.Ask(Get("/x"))[0].Data), kept)
			}
		}
	})
}
