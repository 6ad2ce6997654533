package pglock

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/test/need"
)

// A notification says that a process waits for a lock. Only the holder of that lock then reads the queue, and only while it still holds the
// lock.
func TestWhoLooksForThoseWhoWait(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*entry)
		looks  bool
	}{
		"holds":         {func(*entry) {}, true},
		"waits":         {func(e *entry) { e.stands.Token = 0 }, false},
		"gives it up":   {func(e *entry) { e.over.Store(true) }, false},
		"said it":       {func(e *entry) { e.session.pid = "7" }, false},
		"has another's": {func(e *entry) { e.key = "2" }, false},
	} {
		e := &entry{id: "1", key: "1", session: &serverConn{pid: "8"}}
		e.stands.Token = 5
		c.change(e)
		s := &advisory{pause: time.Hour}
		s.entries.Store(e.id, e)
		s.notified(&pgconn.Notification{PID: 7, Payload: "waits 1"})
		need.Equal(t, fmt.Sprintf("whether an entry that %s looks", name), s.pause != time.Hour, c.looks)
	}
}
