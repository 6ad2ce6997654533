package link

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// An attached link need not be closed. When the bubble ends, synctest fails if a goroutine of the link still waits for its next task.
func TestAttachedLinkLeavesNoGoroutineBehindATask(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := New(to(s))
		conn := dial(t, to(s), addr).Conn
		l.Attach(conn, conn.SessionID)
		l.Spawn(func() {})
	})
}

// The session may expire between the check of the connection's state and the read of its id.
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

// Otherwise later readers would believe that the path is watched, and would not read it again.
func TestAttachedLookThatFailsLeavesNothingToListenTo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, l := dial(t, to(s), addr).Conn, New(to(s))
		l.Attach(conn, conn.SessionID)
		wantErr(t, "read", l.Ask(l.Reading("/missing", &Watcher{Notify: func() {}}))[0].Err, zk.ErrNoNode)
		need.Equal(t, "paths that are taken for watched", len(l.Events.Watchers()), 0)
	})
}

// Any program may write a megabyte of content.
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
