//go:build linux || darwin || freebsd

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A console is a server, on which an operator runs the command.
type console struct{ server *zkserver.Server }

// want runs the command and returns what it prints; see [commandtest.Want].
func (c console) want(t *testing.T, args string, status int, patterns ...string) string {
	t.Helper()
	return commandtest.Want(t, at(c.server.Addr()), args, status, patterns...)
}

// locks returns the locks of another process.
func (c console) locks(t *testing.T, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	locks := need.Get(zklock.Dial(t.Context(), c.server.Addr(), opts...))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// acquire makes another process hold a lock.
func (c console) acquire(t *testing.T, path, label string) *tier.Hold {
	t.Helper()
	return need.Get(c.locks(t, tier.WithLabel(label)).Mutex(path).Acquire(need.Within(t, time.Minute)))(t)
}

// evil is content of a node with control sequences that a terminal would obey.
var evil = `{"v":1,"host":"\u001b]0;owned\u0007","pid":7,"label":"\u001b[2J\u202egnp\n\u2028level=ERROR` +
	strings.Repeat("x", 900<<10) + `"}`

// A queue may contain content of another program with control sequences. The command shows it in a form that a terminal does not obey.
// Break may delete such a node if it belongs to no session.
func TestNodesOfOthersAreSeenAndBroken(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	conn := operate(t, c.server)
	holder := c.acquire(t, "/jobs/report", "billing")
	need.Get(conn.CreateProtectedEphemeralSequential("/jobs/report/lock-", []byte(evil), zk.WorldACL(zk.PermAll)))(t)
	c.want(t, "who /jobs/report", 0, `0 +holds +tierlock .* - .*billing`, `1 +waits +zk.Lock +\S+ +0 .*\\x1b\[2J\\u202egnp`,
		"NODE AGE is the age of the queue entry")
	need.AtMost(t, "bytes about two contenders", len(c.want(t, "who /jobs/report -o json", 0, `"node_age_ms": \d`)), 8<<10)
	need.OK(t, holder.Release())
	const said = `held by process 7 on \\x1b\]0;owned\\a \(\\x1b\[2J\\u202egnp\\n\\u2028level=ERRORx{200,256}…\)\n$`
	c.want(t, "run -n /jobs/report -- true", 75, "^[^\n]*not acquired: "+said)
	c.want(t, "run -v -w 4s /jobs/report -- true", 75, "^[^\n]*waiting: held by process 7 on [^\n]*\n[^\n]*not acquired within 4s: "+said)

	left, err := conn.Create("/jobs/left", nil, 0, zk.WorldACL(zk.PermAll))
	if err == nil {
		left, err = conn.Create(left+"/lock-", []byte("left over"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
	}
	need.OK(t, err)
	_, stat, err := conn.Get(left)
	need.OK(t, err)
	c.want(t, "doctor /jobs/left", 1, "problem +belongs to no session", fmt.Sprintf("tierlock break /jobs/left -token %d", stat.Czxid))
	c.want(t, fmt.Sprintf("break /jobs/left -yes -token %d", stat.Czxid), 0, "the lock is free now")
	c.acquire(t, "/jobs/left", "").Release()
}

// Readers of all libraries hold a lock together. Revoke asks each of them in the form that its library knows.
func TestReadersOfOthersAreSeenAndAskedForTheLock(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	conn := operate(t, c.server)
	hold := need.Get(c.locks(t, tier.WithLabel("billing")).RWMutex("/rw/report").Reader().Acquire(t.Context()))(t)
	curators := need.Get(conn.Create("/rw/report/_c_5f1c9a3e-7a54-4c1e-9d0b-2f6d1c8e4b70-__READ__", []byte("10.0.0.1"),
		zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
	c.want(t, "ls /rw", 0, `/rw/report +2 .*tierlock read .* billing and 1 more`)
	c.want(t, "who /rw/report", 0, `0 +holds +tierlock read .* billing`, `1 +holds +curator read .*10.0.0.1`)
	p := start(t, c.server.Addr(), "watch", "/rw", "-every", "100ms")
	p.Prints(p.Stdout, `/rw/report held by curator read .*, token \d+, no process waits$`)

	var told struct {
		Asked []struct{ Kind, Label string }
	}
	need.OK(t, json.Unmarshal([]byte(c.want(t, "revoke /rw/report -o json", 0)), &told))
	a := told.Asked
	need.That(t, fmt.Sprintf("asked %+v", told), len(a) == 2 && a[0].Label == "billing" && a[0].Kind == "tierlock-read" && a[1].Kind == "read")
	c.want(t, "who /rw/report", 0, `0 +holds, asked +tierlock read .* billing\n`, `1 +holds, asked +curator read`)
	p.Prints(p.Stdout, `/rw/report revoke requested: tierlock read .* billing was asked to release it$`)
	data, _, err := conn.Get(curators)
	need.WantErr(t, "Curator's node", err, nil)
	need.Equal(t, "the data of Curator's node", string(data), "__REVOKE__")
	<-hold.RevokeRequested()

	kazoos := need.Get(conn.Create("/rw/kazoo", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	kazoo := kazoos + "/f7a2c0d9e8b64f13a5d4c3b2a1908f7e__lock__"
	need.Get(conn.Create(kazoo, nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
	c.want(t, "revoke /rw/kazoo", 0, "asked kazoo -; its library ignores requests")
}

func TestWatchServesAPageUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	hold := c.acquire(t, "/page/report", "billing")
	defer hold.Release()
	c.want(t, "watch /page -http 0.0.0.0:0", 64, "-public")
	p := start(t, c.server.Addr(), "watch", "/page", "-http", "127.0.0.1:0", "-every", "100ms")
	url := p.Prints(p.Stderr, `showing /page at (http://127\.0\.0\.1:\d+/)`)[1]
	var state struct {
		Locks []struct {
			Path    string
			Holders []struct{ Who, Token string }
		}
	}
	childtest.Eventually(t, "a lock on the page", func() bool {
		answer, err := http.Get(url + "state.json")
		need.OK(t, err)
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			err = json.NewDecoder(answer.Body).Decode(&state)
		}
		return err == nil && len(state.Locks) > 0
	})
	if l := state.Locks[0]; len(state.Locks) != 1 || l.Path != "/page/report" || len(l.Holders) != 1 ||
		l.Holders[0].Token != fmt.Sprint(hold.Token()) || !strings.HasPrefix(l.Holders[0].Who, "billing · ") {
		t.Errorf("got %+v", state)
	}
	http.DefaultClient.CloseIdleConnections()
	p.Signal(syscall.SIGINT)
	p.Exits(0)
}
