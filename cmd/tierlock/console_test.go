//go:build linux || darwin || freebsd

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// A console is a server as an operator has it.
type console struct{ server *zkserver.Server }

// want runs the command and returns what it prints; see [commandtest.Want].
func (c console) want(t *testing.T, args string, status int, patterns ...string) string {
	t.Helper()
	return commandtest.Want(t, at(c.server.Addr()), args, status, patterns...)
}

func (c console) lock(t *testing.T, path string, opts ...zklock.Option) *zklock.Lock {
	t.Helper()
	client, err := zklock.Dial(t.Context(), c.server.Addr(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	lock, err := client.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// locks returns those of one more process.
func (c console) locks(t *testing.T, opts ...tierlock.Option) *tier.Registry {
	t.Helper()
	locks, err := tierlock.Dial(t.Context(), c.server.Addr(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

func acquire(t *testing.T, lock *zklock.Lock) *zklock.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node, err := lock.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// evil is what a process may write into a node that a terminal would obey.
var evil = `{"v":1,"host":"\u001b]0;owned\u0007","pid":7,"label":"\u001b[2J\u202egnp\n\u2028level=ERROR` + strings.Repeat("x", 900<<10) + `"}`

func TestWhatAQueueIsIsSeenExplainedAndBroken(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	conn := operate(t, c.server)
	c.want(t, "ls /jobs", 0, "no lock at /jobs or below it")
	c.want(t, "who /jobs/report", 0, "does not exist: nobody holds it or waits for it")

	holder := acquire(t, c.lock(t, "/jobs/report", zklock.WithLabel("billing")))
	c.want(t, "doctor /jobs/report", 0, "ok +these credentials may queue", "holds the lock")
	stray, err := conn.CreateProtectedEphemeralSequential("/jobs/report/lock-", []byte(evil), zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(os.Getpid())
	c.want(t, "ls /jobs", 0, `/jobs/report +2 .*tierlock .* pid `+pid+` billing`)
	c.want(t, "who /jobs/report", 0, `0 +holds +tierlock .* - .*billing`, `1 +waits +zk.Lock +\S+ +0 .*\\x1b\[2J\\u202egnp`, "A node's age is not a hold's")
	c.want(t, "doctor /jobs/report", 0, `waits for 1 ahead of it, the nearest #0`)

	var queue struct {
		Contenders []struct {
			Token     int64
			State     string
			WaitsFor  string `json:"waits_for"`
			Node      string
			NodeAgeMS *int64 `json:"node_age_ms"`
		}
	}
	text := c.want(t, "who /jobs/report -o json", 0)
	if err := json.Unmarshal([]byte(text), &queue); err != nil {
		t.Fatal(err)
	}
	if len(text) > 8<<10 {
		t.Errorf("%d bytes about two contenders", len(text))
	}
	if q := queue.Contenders; len(q) != 2 || q[0].Token != holder.Token() || q[1].WaitsFor != q[0].Node || q[0].NodeAgeMS == nil {
		t.Fatalf("got %+v", queue)
	}

	c.want(t, "break /jobs/report", 64, "wants -token N")
	c.want(t, fmt.Sprintf("break /jobs/report -token %d", holder.Token()), 64, "-yes") // there is nobody to ask at /dev/null
	c.want(t, fmt.Sprintf("break /jobs/report -yes -token %d", queue.Contenders[1].Token), 1,
		`nothing was deleted: \d+ is not the token of the holder; the lock is held by tierlock .* billing, token`)
	if err := holder.Err(); err != nil {
		t.Fatalf("after a break with another token: %v", err)
	}
	c.want(t, fmt.Sprintf("break /jobs/report -yes -token %d", holder.Token()), 0,
		"deleted "+filepath.Base(holder.Path()), `the lock is held by zk.Lock`, "may still be working")
	select {
	case <-holder.Lost():
	case <-time.After(time.Minute):
		t.Error("the former holder does not hear of it")
	}
	holder.Release()

	const said = `held by process 7 on \\x1b\]0;owned\\a \(\\x1b\[2J\\u202egnp\\n\\u2028level=ERRORx{200,256}…\)\n$`
	c.want(t, "run -n /jobs/report -- true", 75, "^[^\n]*not acquired: "+said)
	c.want(t, "run -v -w 4s /jobs/report -- true", 75, "^[^\n]*waiting: held by process 7 on [^\n]*\n[^\n]*not acquired within 4s: "+said)

	// What belongs to nobody stays until somebody breaks it.
	if err := conn.Delete(stray, -1); err != nil {
		t.Fatal(err)
	}
	left, err := conn.Create("/jobs/report/lock-", []byte("left over"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, stat, err := conn.Get(left)
	if err != nil {
		t.Fatal(err)
	}
	c.want(t, "doctor /jobs/report", 1, "problem +belongs to no session", fmt.Sprintf("tierlock break /jobs/report -token %d", stat.Czxid))
	c.want(t, fmt.Sprintf("break /jobs/report -yes -token %d", stat.Czxid), 0, "nobody holds the lock now")
	acquire(t, c.lock(t, "/jobs/report")).Release()
}

// Readers, of whichever library, have a lock together, and may be asked for it.
func TestReadersAreSeenAndAskedForTheLock(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	conn := operate(t, c.server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.want(t, "revoke /rw/report", 1, "nobody holds /rw/report, so nobody was asked")

	var holds []*tier.Hold
	for _, label := range []string{"billing", "search"} {
		rw := c.locks(t, zklock.WithLabel(label)).RWMutex("/rw/report")
		for range 3 {
			hold, err := rw.Reader().Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, hold)
		}
	}
	curators, err := conn.Create("/rw/report/_c_5f1c9a3e-7a54-4c1e-9d0b-2f6d1c8e4b70-__READ__", []byte("10.0.0.1"),
		zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	writer := c.locks(t, zklock.WithLabel("writer")).RWMutex("/rw/report")
	go func() {
		hold, err := writer.Writer().Acquire(ctx)
		if err == nil {
			err = hold.Release()
		}
		waiting <- err
	}()
	commandtest.Eventually(t, "a writer in the queue", func() bool { return len(queue(t, conn, "/rw/report")) == 4 })

	c.want(t, "ls /rw", 0, `/rw/report +4 .*tierlock read .* billing and 2 more`)
	c.want(t, "who /rw/report", 0, `0 +holds +tierlock read .* billing`, `1 +holds +tierlock read .* search`,
		`2 +holds +curator read .*10.0.0.1`, `3 +waits +tierlock write +\S+ +2 and 2 more .* writer`)
	p := start(t, c.server.Addr(), "watch", "/rw", "-every", "100ms")
	p.Prints(p.Stdout, `/rw/report held by tierlock read .* search, token \d+, 1 process waits$`)
	p.Prints(p.Stdout, `/rw/report waited for by tierlock write .* writer, #3$`)

	var told struct {
		Asked []struct{ Kind, Label string }
	}
	if err := json.Unmarshal([]byte(c.want(t, "revoke /rw/report -o json", 0)), &told); err != nil {
		t.Fatal(err)
	}
	if a := told.Asked; len(a) != 3 || a[0].Label != "billing" || a[1].Kind != "tierlock-read" || a[2].Kind != "read" {
		t.Errorf("asked %+v", told)
	}
	c.want(t, "who /rw/report", 0, `0 +holds, asked +tierlock read .* billing\n`, `2 +holds, asked +curator read`)
	p.Prints(p.Stdout, `/rw/report wanted: somebody has asked tierlock read .* billing for it$`)
	if data, _, err := conn.Get(curators); err != nil || string(data) != "__REVOKE__" {
		t.Errorf("Curator's node says %q, %v", data, err)
	}
	for _, hold := range holds {
		select {
		case <-hold.Revoked():
		case <-ctx.Done():
			t.Fatal("a reader does not hear of it")
		}
		if err := hold.Release(); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Delete(curators, -1); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the writer: %v", err)
	}
	p.Signal(syscall.SIGINT)
	p.Exits(0)

	kazoos, err := conn.Create("/rw/kazoo", nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Create(kazoos+"/f7a2c0d9e8b64f13a5d4c3b2a1908f7e__lock__", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	c.want(t, "revoke /rw/kazoo", 0, "asked kazoo -, whose library takes no notice")
}

func TestPermitsAreSeen(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	conn := operate(t, c.server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.locks(t, zklock.WithLabel("billing")).Semaphore("/pool/db", 5).Acquire(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.CreateProtectedEphemeralSequential("/pool/db/leases/lease-", []byte("10.0.0.1"), zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	c.want(t, "who /pool/db", 0, "/pool/db: 4 of 5 permits in use", `3 +.* billing`, `1 +.*"10.0.0.1"`, "nobody waits for permits")
	batch := c.locks(t, zklock.WithLabel("batch")).Semaphore("/pool/db", 5)
	go batch.Acquire(ctx, 2)
	commandtest.Eventually(t, "one who waits", func() bool { return len(queue(t, conn, "/pool/db/locks")) == 1 })
	c.want(t, "who /pool/db", 0, "waiting for permits, in this order:", `\d+ +next +tierlock .* batch`)
	c.want(t, "ls /pool", 0, `/pool/db +1 +- +4 of 5 permits in use`)
	c.want(t, "revoke /pool/db", 1, "/pool/db is a semaphore: permits cannot be asked for")
	c.want(t, "doctor /pool/db", 0, "a semaphore, 4 of 5 permits in use, 1 in the queue for permits")
	mutex := acquire(t, c.lock(t, "/pool/db"))
	c.want(t, "doctor /pool/db", 1, "problem +a lock and a semaphore do not exclude each other")
	c.want(t, "who /pool/db", 0, "holds +tierlock", "4 of 5 permits in use")
	if err := mutex.Release(); err != nil {
		t.Error(err)
	}
}

func TestWatchTellsOfEachChangeAndOutlivesTheConnection(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	proxy := proxyTo(t, c.server)
	p := start(t, proxy.Addr(), "watch", "/watch/report", "-every", "100ms")
	lock := c.lock(t, "/watch/report", zklock.WithLabel("billing"))
	node := acquire(t, lock)
	p.Prints(p.Stdout, fmt.Sprintf(`^\S+Z /watch/report held by tierlock .* billing, token %d, nobody waits$`, node.Token()))
	proxy.Refuse()
	proxy.Cut()
	p.Prints(p.Stdout, "no answer from ZooKeeper")
	proxy.Accept()
	p.Prints(p.Stdout, "ZooKeeper answers again")
	if err := node.Release(); err != nil {
		t.Fatal(err)
	}
	p.Prints(p.Stdout, "/watch/report free$")
	p.Signal(syscall.SIGINT)
	p.Exits(0)
}

func TestWatchServesAPageUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	c := console{startServer(t)}
	node := acquire(t, c.lock(t, "/page/report", zklock.WithLabel("billing")))
	defer node.Release()
	c.want(t, "watch /page -http 0.0.0.0:0", 64, "-public")
	p := start(t, c.server.Addr(), "watch", "/page", "-http", "127.0.0.1:0", "-every", "100ms")
	url := p.Prints(p.Stderr, `showing /page at (http://127\.0\.0\.1:\d+/)`)[1]
	var state struct {
		Locks []struct {
			Path    string
			Holders []struct{ Who, Token string }
		}
	}
	commandtest.Eventually(t, "a lock on the page", func() bool {
		answer, err := http.Get(url + "state.json")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			err = json.NewDecoder(answer.Body).Decode(&state)
		}
		return err == nil && len(state.Locks) > 0
	})
	if l := state.Locks[0]; len(state.Locks) != 1 || l.Path != "/page/report" || len(l.Holders) != 1 || l.Holders[0].Token != fmt.Sprint(node.Token()) || !strings.HasPrefix(l.Holders[0].Who, "billing · ") {
		t.Errorf("got %+v", state)
	}
	http.DefaultClient.CloseIdleConnections()
	p.Signal(syscall.SIGINT)
	p.Exits(0)
}
