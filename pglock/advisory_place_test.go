package pglock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestNameSaysWhoItIs(t *testing.T) {
	s := &advisory{base: base{self: second.Describe("night run")}}
	s.self.Host = "db-7"
	name := "tierlock 99 1 " + s.about(1500*time.Millisecond)
	says := func(name string, granted bool) second.Contender { return placeOf("31", false, granted, name).Contender }
	want := second.Contender{ID: "31", Token: 99, Host: "db-7", PID: os.Getpid(), Label: "night run", Asked: true}
	want.Linger, want.Since = 1500*time.Millisecond, says(name, true).Since
	if got := says(name, true); got != want || time.Since(want.Since) > time.Minute {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	want.Token, want.Asked = 0, false
	need.Equal(t, "one that waits", says(name, false), want)
	cut := name[:strings.Index(name, "night")+2] // the server cuts a long name like this
	if got := says(cut, false); got.Label != "ni" || got.PID != os.Getpid() {
		t.Errorf("cut: %+v", got)
	}
	for _, name := range []string{"", "psql", "tierlock", "tierlock ", "tierlock x y"} {
		need.Equal(t, name, says(name, false), (second.Contender{ID: "31"}))
	}
}

// A session that becomes a reader has the lock in both modes for a moment. The session at the other key is in that state.
func TestPlacesAreInTheOrderOfTokensThenOfTheWait(t *testing.T) {
	t.Parallel()
	key, other, pool := advisoryKey(lockPath(t)), advisoryKey(lockPath(t)+"-2"), poolAt(t, sharedURL(t))
	look := func() map[string][]place {
		conn := need.Get(pool.Acquire(soon(t)))(t)
		defer conn.Release()
		keys := []byte("{" + key + "," + other + "}")
		r := conn.Conn().PgConn().ExecParams(soon(t), statements["look"], [][]byte{keys}, nil, nil, nil).Read()
		need.OK(t, r.Err)
		return places(r.Rows)
	}
	for i, takes := range []string{
		"'tierlock 30 0 1 1 1 h ', pg_advisory_lock_shared(" + key + ")",
		"'psql', pg_advisory_lock_shared(" + key + ")",
		"'tierlock 9 0 1 1 1 h ', pg_advisory_lock_shared(" + key + ")",
		"'tierlock 0 0 1 1 2 h ', pg_advisory_lock(" + key + ")",
		"'tierlock 0 0 1 1 3 h ', pg_advisory_lock_shared(" + key + ")",
		"'tierlock 5 0 1 1 1 h ', pg_advisory_lock(" + other + "), pg_advisory_lock_shared(" + other + ")",
	} {
		conn := need.Get(pgx.Connect(soon(t), sharedURL(t)))(t)
		defer conn.PgConn().Conn().Close()
		name, locks, _ := strings.Cut(takes, ", ")
		need.Get(conn.Exec(soon(t), "SET application_name = "+name))(t)
		go conn.Exec(context.Background(), "SELECT "+locks)
		eventually(t, "it is in the queue", func() bool { all := look(); return len(all[key])+len(all[other]) == i+1 })
	}
	all := look()
	var order string
	for _, p := range all[key] {
		order += fmt.Sprintf("%d %v %v, ", p.Token, p.granted, p.Shared)
	}
	need.Equal(t, "order", order, "9 true true, 30 true true, 0 true true, 0 false false, 0 false true, ")
	eventually(t, "both modes", func() bool { return ask[int](t, pool, "SELECT count(*) FROM pg_locks WHERE "+ofLock, other) == 2 })
	both := look()[other]
	need.That(t, fmt.Sprintf("%v, want one that does not read yet", both), len(both) == 1 && !both[0].Shared)
}
