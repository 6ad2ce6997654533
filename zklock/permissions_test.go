package zklock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// permissions are ACLs of a path, and what is missing for a lock there.
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

func checkPermitted(t *testing.T, conn *zk.Conn, client *zklock.Client) {
	t.Helper()
	for path, p := range permissions {
		if _, err := conn.Create(path, nil, 0, zk.WorldACL(p.perms)); err != nil {
			t.Fatal(err)
		}
		below := path + "/a/b"
		for _, lock := range []string{path, below} {
			err := lockAt(t, client, lock).CheckPermissions(t.Context())
			switch missing := p.missing; {
			case missing == "", lock == below && missing != "CREATE":
				if err != nil {
					t.Errorf("%s: %v", lock, err)
				}
			case !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), missing+" permission on "+path+" "):
				t.Errorf("%s: got %v, want that %s is missing on %s", lock, err, missing, path)
			}
		}
		_, stat, err := conn.Exists(path)
		if p.missing == "READ" && errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 and 3.9.2 on
			continue
		}
		if err != nil || stat.Cversion != 0 {
			t.Errorf("%s: asking has changed it: %+v, %v", path, stat, err)
		}
	}
}

func TestPermittedNamesWhatIsMissingAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		checkPermitted(t, raw(t, s), start(t, s).Client)
	})
}

func TestPermittedOnARealServer(t *testing.T) {
	addr := zkservertest.Start(t, zkserver.Config{NoSync: true}).Addr()
	client, err := zklock.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	checkPermitted(t, zkconn.Start(t, []string{addr}, timeout, nil), client)
}
