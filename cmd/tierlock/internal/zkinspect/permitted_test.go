package zkinspect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/zknode"
)

// The table permissions lists ACLs of a path, each with the permission that a lock there then lacks.
var permissions = map[string]struct {
	perms   int32
	missing string
}{
	"/all":      {zk.PermAll, ""},
	"/enough":   {zk.PermCreate | zk.PermRead | zk.PermDelete, ""},
	"/nocreate": {zk.PermAll &^ zk.PermCreate, "CREATE"},
	"/nodelete": {zk.PermAll &^ zk.PermDelete, "DELETE"},
	"/noread":   {zk.PermAll &^ zk.PermRead, "READ"},
}

func checkPermitted(t *testing.T, conn *zk.Conn, client *zknode.Client) {
	t.Helper()
	for path, p := range permissions {
		need.Get(conn.Create(path, nil, 0, zk.WorldACL(p.perms)))(t)
		below := path + "/a/b"
		for _, lock := range []string{path, below} {
			report := need.Get(zkinspect.Reader{Client: client}.Examine(t.Context(), lock))(t)
			switch access, missing := report.Findings[0], p.missing; {
			case missing == "", lock == below && missing != "CREATE":
				need.Equal(t, fmt.Sprintf("%s: %+v", lock, access), access.Grade, inspect.OK)
			case access.Grade != inspect.Problem || !strings.Contains(access.Text, missing+" permission on "+path+" "):
				t.Errorf("%s: got %+v, want that %s is missing on %s", lock, access, missing, path)
			}
		}
		_, stat, err := conn.Exists(path)
		if p.missing == "READ" && errors.Is(err, zk.ErrNoAuth) { // from ZooKeeper 3.8.4 and 3.9.2 on, Exists needs READ, too
			continue
		}
		need.WantErr(t, path, err, nil)
		need.Equal(t, path+": changes by the question", stat.Cversion, 0)
	}
}

func TestPermittedNamesWhatIsMissingAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s site) { checkPermitted(t, s.conn, s.client) })
}

func TestPermittedOnARealServer(t *testing.T) {
	addr := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true}).Addr()
	client := need.Get(zknode.Dial(t.Context(), addr))(t)
	defer client.Close()
	checkPermitted(t, zkconn.Start(t, []string{addr}, 10*time.Second, nil), client)
}

// Paths are relative to the path in the connect string.
func TestWhatIsReadIsBelowTheConnectString(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.put(t, "/app/locks/x/_c_"+hex+"-lock-0000000001", "", 0, zk.PermAll)
		client := need.Get(zknode.Dial(t.Context(), addr+"/app", zknode.WithDialContext(s.DialContext)))(t)
		defer client.Close()
		for path, want := range map[string]int{"/locks/x": 1, "/app/locks/x": 0} {
			q := need.Get((zkinspect.Reader{Client: client}).Look(t.Context(), path))(t)
			need.Equal(t, path+": contenders", len(q.Contenders), want)
		}
		q := need.Get((zkinspect.Reader{Client: client}).Look(t.Context(), "/"))(t)
		need.That(t, fmt.Sprintf("/: %+v, want the node below", q), len(q.Others) == 1 && q.Others[0].Name == "locks")
	})
}
