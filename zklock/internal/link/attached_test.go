package link

import (
	"testing"

	"github.com/tierlock/tierlock/zktest"
)

// Nobody closes such a link. The end of the bubble checks that no goroutine waits for another task.
func TestAttachedLinkLeavesNoGoroutineBehindATask(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := New(to(s))
		conn := dial(t, to(s), addr).Conn
		l.Attach(conn, conn.SessionID)
		l.Spawn(func() {})
	})
}

// It may expire after the look at the connection and before that at its id.
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
