//go:build linux || darwin || freebsd

package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
)

// Locks of the client library compete at the same path. The command shows them, and says that their holders cannot be asked.
func TestLocksOfTheClientAreSeen(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := operate(t, server)
	session := need.Get(concurrency.NewSession(client))(t)
	defer session.Close()
	mutex := concurrency.NewMutex(session, "/others/report")
	need.OK(t, mutex.Lock(t.Context()))
	put(t, client, "/others/config", "of a program")
	put(t, client, "/others/VQSESKCG33GCUL7JY7NORDWGVB", "a name like one of ours, under no lease")
	env := at(server.Addr())
	commandtest.Want(t, env, "ls /others", 0, `(?m)^/others/report +1 +\? +other -$`)
	if out := commandtest.Want(t, env, "ls /others -o json", 0); !json.Valid([]byte(out)) {
		t.Error(out)
	}
	commandtest.Want(t, env, "who /others/report", 0, `0 +holds +other +\? +- +\d+ +- +-`)
	commandtest.Want(t, env, "doctor /others/report", ailing(t, server), "has no description", `its lease \w+, of 60 s`)
	put(t, client, "/others/report/below/key", "")
	commandtest.Want(t, env, "doctor /others/report", 1, "warning +/others/report/below/key is a key of a lock below")
	commandtest.Want(t, env, "revoke /others/report", 1, "ignores requests")
	commandtest.Want(t, env, fmt.Sprintf("break /others/report -yes -token %d", mutex.Header().Revision), 0, "deleted",
		"the lock is free now")
}

// A key without a lease stays until an operator deletes it.
func TestAKeyUnderNoLeaseIsFoundAndBroken(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := operate(t, server)
	token := put(t, client, "/left/report/over", "")
	put(t, client, "/left/report/over-too", "")
	env := at(server.Addr())
	commandtest.Want(t, env, "doctor /left/report", 1,
		"(?m)^over\n.*\n +problem +belongs to no lease.*tierlock break /left/report -token "+fmt.Sprint(token),
		"(?m)^over-too\n.*waits, with 1 ahead.*\n.*delete it$")
	commandtest.Want(t, env, fmt.Sprintf("break /left/report -yes -token %d", token), 0, "deleted over of other")
	commandtest.Want(t, env, fmt.Sprintf("break /left/report -yes -token %d", token), 1, "nothing was deleted")
}

// The name of a key may contain any bytes. It is shown as a short line, and break can still delete it.
func TestAKeyOfAnyNameIsShownAndBroken(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	token := put(t, operate(t, server), "/odd/report/\x1b[2J\n\u202e\xff"+strings.Repeat("x", 1000), "")
	env := at(server.Addr())
	const name = `\\x1b\[2J\\n\\u202e\\xffx{200,256}…`
	commandtest.Want(t, env, "doctor /odd/report", 1, "(?m)^"+name+"\n.*\n +problem +belongs to no lease")
	commandtest.Want(t, env, "run -n /odd/report -- true", 75, "held by "+name+"\n$")
	commandtest.Want(t, env, fmt.Sprintf("break /odd/report -yes -token %d", token), 0, "deleted "+name+" of other")
}

// If there are more keys than -limit, the output says so.
func TestListStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := operate(t, server)
	lease := need.Get(client.Grant(t.Context(), 60))(t)
	defer client.Revoke(context.Background(), lease.ID)
	for i := range 5 {
		put(t, client, fmt.Sprintf("/many/%d/%x", i, lease.ID), "", clientv3.WithLease(lease.ID))
	}
	env := at(server.Addr())
	commandtest.Want(t, env, "ls /many -limit 3", 0, "(?m)^/many/2 ", "stopped after 3 paths")
	for limit, want := range map[int]int{3: 3, 4: 4, 5: 5, 6: 5} {
		paths, looked, complete, err := keys{client}.paths(t.Context(), "/many", limit)
		need.That(t, fmt.Sprintf("of 5 locks with a limit of %d: %v, looked at %d, complete: %t, %v", limit, paths, looked, complete, err),
			err == nil && len(paths) == want && looked == want && complete == (limit >= 5))
	}
}

// Credentials come from a file or from the environment. The command may then do what their permissions allow.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := childtest.Start(t, etcdserver.Start, etcdserver.Config{NoSync: true})
	root := operate(t, server)
	ctx := t.Context()
	for _, err := range []error{
		errorOf(root.UserAdd(ctx, "root", "r")), errorOf(root.UserGrantRole(ctx, "root", "root")),
		errorOf(root.RoleAdd(ctx, "jobs")),
		errorOf(root.RoleGrantPermission(ctx, "jobs", "/jobs/", clientv3.GetPrefixRangeEnd("/jobs/"),
			clientv3.PermissionType(clientv3.PermReadWrite))),
		errorOf(root.UserAdd(ctx, "user", "secret")), errorOf(root.UserGrantRole(ctx, "user", "jobs")),
		errorOf(root.AuthEnable(ctx)),
	} {
		need.OK(t, err)
	}
	env := at(server.Addr())
	commandtest.Want(t, env, "who /jobs/report", 69, "user name is empty")
	wrong := append(at(server.Addr()), "TIERLOCK_AUTH=user:wrong")
	commandtest.Want(t, wrong, "who /jobs/report", 69, "authentication failed")
	right := append(at(server.Addr()), "TIERLOCK_AUTH=user:secret")
	commandtest.Want(t, right, "run -n /jobs/report -- true", 0)
	commandtest.Want(t, right, "doctor /jobs/report", ailing(t, server), "ok +these credentials may queue")
	commandtest.Want(t, at("user:secret@"+server.Addr()), "run -n /jobs/report -- true", 0)
	commandtest.Want(t, at("user@"+server.Addr()), "run -n /jobs/report -- true", 64, "one of them is missing")
	commandtest.Want(t, right, "run -n /other -- true", 70, "permission denied")
	commandtest.Want(t, right, "doctor /other", 1, "problem +.*permission denied")
	commandtest.Want(t, append(at(server.Addr()), "TIERLOCK_AUTH=hunter2"), "ls", 64, "TIERLOCK_AUTH: want user:password")
	file := filepath.Join(t.TempDir(), "credentials")
	need.OK(t, os.WriteFile(file, []byte("user:secret\n"), 0o600))
	commandtest.Want(t, env, "run -auth-file "+file+" /jobs/report -- true", 0)
}

// Leases of etcd last for whole seconds. Therefore -session has to be a multiple of a second.
func TestSessionsAreOfWholeSeconds(t *testing.T) {
	t.Parallel()
	commandtest.Want(t, at(startServer(t).Addr()), "run -session 1500ms /seconds -- true", 64, "lease TTL 1.5s: want a multiple of 1s")
}

func put(t *testing.T, client *clientv3.Client, key, value string, opts ...clientv3.OpOption) (revision int64) {
	t.Helper()
	answer := need.Get(client.Put(t.Context(), key, value, opts...))(t)
	return answer.Header.Revision
}

func errorOf[T any](_ T, err error) error { return err }
