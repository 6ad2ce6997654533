package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
)

func TestMain(m *testing.M) {
	store.ZooKeeper.Locks["broken"] = store.Kind{Dial: storetest.DialBroken}
	addFlawed()
	load.BeWorker()
	store.ZooKeeper.Locks["deadly"] = store.Kind{Dial: storetest.DialBroken} // the worker processes do not know this kind and die
	os.Exit(withServers(m))
}

// withServers runs the tests. If one fails, the files of the workers stay. If all pass, the files are removed, also files with evidence
// against a broken lock.
func withServers(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "stress-") // the name is short, because addresses of unix sockets begin with it, too
	if err != nil {
		panic(err)
	}
	defer func() {
		if code == 0 {
			os.RemoveAll(dir)
		}
	}()
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL runs as another user
		panic(err)
	}
	os.Setenv("TMPDIR", dir)
	defer func() {
		if s, err := zooKeeper(); err == nil {
			s.Stop()
		}
	}()
	return m.Run()
}

// zooKeeper starts one server that all tests use. Each test has a chroot of its own.
var zooKeeper = sync.OnceValues(func() (*zkserver.Server, error) {
	return zkserver.Start(context.Background(), zkserver.Config{})
})

// servers returns a chroot on the ZooKeeper server that only this test uses.
func servers(t *testing.T) string {
	t.Helper()
	s, err := zooKeeper()
	childtest.Check(t, err)
	return s.Addr() + "/" + t.Name()
}

func TestMissingServerExitsWith69(t *testing.T) {
	nowhere := t.TempDir()
	t.Setenv("ZOOKEEPER_HOME", nowhere)
	t.Setenv("ETCD", nowhere+"/etcd")
	t.Setenv("POSTGRESQL_HOME", nowhere)
	t.Setenv("MARIADB_HOME", nowhere)
	t.Setenv("REDIS_SERVER", nowhere+"/redis-server")
	postgres := []string{"scripts/get-postgresql.sh", "apt-get install -y postgresql", "brew install postgresql"}
	for store, help := range map[string][]string{
		"zookeeper": {"apt-get install -y zookeeper", "brew install zookeeper", "docker run --rm -p 127.0.0.1:2181:2181 zookeeper:3.9", "-zk"},
		"etcd":      {"scripts/get-etcd.sh", "apt-get install -y etcd-server", "brew install etcd"},
		"postgres":  postgres, "postgres-advisory": postgres,
		"mysql": {"scripts/get-mariadb.sh", "apt-get install -y mariadb-server"},
		"redis": {"scripts/get-redis.sh", "apt-get install -y redis-server", "brew install redis"},
	} {
		code, _, stderr := runWith("-store", store)
		need.Equal(t, "the exit where there is no "+store, code, exitNoServer)
		need.Has(t, "the message where there is no "+store, stderr, append(help, nowhere)...)
	}
	start := time.Now()
	if code, _, stderr := runWith("-zk", "127.0.0.1:1"); code != exitNoServer {
		t.Errorf("unreachable server: got exit %d, stderr %q, want %d", code, stderr, exitNoServer)
	}
	need.AtMost(t, "unreachable server: found out after", time.Since(start), 10*time.Second)
}

func TestRealLocksPass(t *testing.T) {
	for _, lock := range []string{"mutex", "zklock", "zk"} {
		t.Run(lock, func(t *testing.T) {
			r := runJSON(t, exitPass, "-zk", servers(t), "-lock", lock,
				"-procs", "2", "-goroutines", "10", "-paths", "2", "-cs", "100us", "-think", "100us", "-duration", "1s")
			need.Equal(t, "the verdict", r.Verdict, "PASS")
			need.That(t, fmt.Sprintf("%+v", r), r.Acquisitions != 0 && len(r.PerProcess) == 2 && r.Packets != nil && r.Wait.Max != 0)
			if len(r.Curve) == 0 || r.Writes == nil || r.Away != nil || r.Release != nil {
				t.Errorf("got %d points, writes %v, away %v, release %v, want the first two", len(r.Curve), r.Writes, r.Away, r.Release)
			}
			need.That(t, fmt.Sprintf("errors on a healthy server: %v, lost %d", r.Errors, r.Lost), len(r.Errors) == 0 && r.Lost == 0)
		})
	}
}

func TestReaderWriterLockPasses(t *testing.T) {
	r := runJSON(t, exitPass, "-zk", servers(t), "-lock", "rw", "-reads", "0.8", "-baseline",
		"-procs", "2", "-goroutines", "10", "-paths", "2", "-cs", "100us", "-think", "100us", "-duration", "1s")
	need.That(t, fmt.Sprintf("got %+v", r),
		r.Verdict == "PASS" && *r.Reads == 0.8 && r.Baseline.Lock == "mutex" && r.Ratio != 0 && r.Inside != 0 && len(r.Errors) == 0)
	reads := float64(r.Readers.Acquisitions) / float64(r.Acquisitions)
	need.Between(t, "the share of readers", reads, 0.7, 0.9)
	need.That(t, fmt.Sprintf("writers %+v", r.Writers), r.Writers.Wait.Max != 0 && r.Writers.Jain != 0)
}

func TestRealLocksPassOnTheOtherStores(t *testing.T) {
	for name, c := range map[string]struct{ lock, baseline string }{
		"etcd":              {"mutex", "etcd"},
		"postgres":          {"mutex", "advisory"},
		"postgres-advisory": {"mutex", "advisory"},
		"redis":             {"rw", "mutex"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each test has a server of its own
			r := runJSON(t, exitPass, "-store", name, "-lock", c.lock, "-baseline="+c.baseline,
				"-procs", "2", "-goroutines", "10", "-paths", "2", "-cs", "100us", "-think", "100us", "-duration", "1s")
			for lock, r := range map[string]report.Result{c.lock: r, c.baseline: *r.Baseline} {
				need.That(t, fmt.Sprintf("%s: %+v", lock, r), r.Verdict == "PASS" && r.Store == name && r.Acquisitions != 0)
				need.That(t, fmt.Sprintf("%s: errors on a healthy server: %v, lost %d", lock, r.Errors, r.Lost), len(r.Errors) == 0 && r.Lost == 0)
			}
			checkTraffic(t, name, c.lock, r)
		})
	}
}

// checkTraffic checks that packets are counted on every store, and that an advisory lock makes no writes.
func checkTraffic(t *testing.T, name, lock string, r report.Result) {
	t.Helper()
	e := r.Environment
	versions := map[string]string{"etcd": e.Etcd, "postgres": e.PostgreSQL, "postgres-advisory": e.PostgreSQL, "redis": e.Redis}
	need.That(t, fmt.Sprintf("version %q, ZooKeeper's %q", versions[name], e.ZooKeeper), versions[name] != "" && e.ZooKeeper == "")
	volatile := lock == "advisory" || name == "postgres-advisory"
	need.That(t, fmt.Sprintf("%v writes per turn", r.Writes), r.Writes != nil && (*r.Writes != 0 || volatile))
	need.That(t, fmt.Sprintf("packets per turn: %v", r.Packets), r.Packets != nil && *r.Packets > 0)
}

func TestServersAreAnRTTAway(t *testing.T) {
	const rtt = 200 * time.Millisecond // longer than a release takes on a busy machine
	for _, lock := range []string{"mutex", "zk"} {
		r := runJSON(t, exitPass, "-zk", servers(t)+"/"+lock, "-rtt", rtt.String(), "-lock", lock, "-procs", "1", "-goroutines", "1",
			"-duration", "2s")
		need.Must(t, fmt.Sprintf("%s: got an RTT of %v, release %+v", lock, time.Duration(r.RTT), r.Release),
			r.RTT == rtt.Nanoseconds() && r.Release != nil)
		// The median is from acquisitions on a path that existed before.
		if wait, release := time.Duration(r.Wait.P50), time.Duration(r.Release.P50); wait < rtt || release < rtt || release > 2*rtt {
			t.Errorf("%s: got a wait of %v and a release of %v, want at least one round trip, and for the release not two", lock, wait, release)
		}
	}
}

func TestRunLeavesNoNodes(t *testing.T) {
	place := servers(t)
	runJSON(t, exitPass, "-zk", place+"/b", "-procs", "1", "-duration", "100ms")
	server, root, _ := strings.Cut(place, "/")
	conn := zkconn.Start(t, []string{server}, 15*time.Second, nil)
	exists, _, err := conn.Exists("/" + root)
	need.That(t, fmt.Sprintf("the parents that were missing before: exists %t, %v", exists, err), err == nil && !exists)
}

func TestPageOfARun(t *testing.T) {
	name, servers := filepath.Join(t.TempDir(), "page.html"), servers(t)
	runJSON(t, exitPass, "-zk", servers, "-baseline", "-html", name, "-procs", "2", "-goroutines", "2", "-duration", "300ms")
	page := string(need.Get(os.ReadFile(name))(t))
	need.Has(t, "the page", page, "stress: PASS", "2 × 2, empty section", "zk.Lock", "as the server is configured")
	code, _, stderr := runWith("-zk", servers, "-duration", "100ms", "-html", t.TempDir())
	need.That(t, fmt.Sprintf("a page that cannot be written: got exit %d, stderr %q", code, stderr), code != exitPass && stderr != "")
}

func TestBrokenLockFailsBesideItsBaseline(t *testing.T) {
	r := runJSON(t, exitViolation, "-zk", servers(t), "-lock", "broken", "-baseline",
		"-procs", "2", "-goroutines", "10", "-cs", "1ms", "-duration", "1s")
	need.That(t, fmt.Sprintf("a lock that lets everybody in: %+v", r), r.Verdict == "FAIL" && r.Overlaps != 0 && r.LostUpdates != 0)
	b := r.Baseline
	need.That(t, fmt.Sprintf("baseline: got %+v, ratio %v", b, r.Ratio), b != nil && b.Lock == "zk" && b.Verdict == "PASS" && r.Ratio > 1)
}

func TestLeakedNodesFailTheRun(t *testing.T) {
	place := servers(t)
	server, _, _ := strings.Cut(place, "/")
	conn := zkconn.Start(t, []string{server}, 15*time.Second, nil)
	go func() {
		if lock, ok := lockOf(t, conn); ok {
			_, _ = conn.Create(lock+"/leak", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
	}()
	r := runJSON(t, exitViolation, "-zk", place, "-procs", "2", "-duration", "2s")
	need.Equal(t, "leaked nodes", r.LeakedNodes, 1)
	need.Equal(t, fmt.Sprintf("violations %v", r.Violations()), len(r.Violations()), 1)
}

func TestDeadWorkerFailsTheRun(t *testing.T) {
	r := runJSON(t, exitViolation, "-zk", servers(t), "-lock", "deadly", "-procs", "2", "-duration", "1s")
	need.Equal(t, "dead workers", r.DeadWorkers, 2)
	need.Equal(t, "the verdict", r.Verdict, "FAIL")
}

func TestInterruptEndsTheRunAndJudges(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cfg := need.Get(parseFlags([]string{"-zk", servers(t), "-procs", "2", "-goroutines", "5", "-duration", "60s"}, os.Stderr))(t)
	conn := zkconn.Start(t, []string{cfg.Servers[0]}, 15*time.Second, nil)
	go func() {
		for lock, ok := lockOf(t, conn); ok && ctx.Err() == nil; {
			if _, stat, err := conn.Children(lock); err == nil && stat.Cversion > 10 { // the lock has passed from hand to hand
				interrupt()
			}
		}
	}()
	r := need.Get(cfg.stress(ctx, io.Discard))(t)
	need.Equal(t, "the verdict", r.Verdict, "PASS")
	need.AtMost(t, "it ends after", time.Duration(r.Duration), 20*time.Second)
}

// lockOf waits until a run has created the lock of the test, and returns the lock's path.
func lockOf(t *testing.T, conn *zk.Conn) (path string, ok bool) {
	path = "/" + t.Name()
	for !strings.HasSuffix(path, "/0") {
		if t.Context().Err() != nil {
			return "", false
		}
		if names, _, err := conn.Children(path); err == nil && len(names) > 0 {
			path += "/" + names[0]
		}
	}
	return path, true
}

func runWith(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func runJSON(t *testing.T, want int, args ...string) report.Result {
	t.Helper()
	code, stdout, stderr := runWith(append(args, "-o", "json")...)
	for _, missing := range []error{zkserver.ErrNotFound, etcdserver.ErrNotFound, pgserver.ErrNotFound, redisserver.ErrNotFound} {
		if code == exitNoServer && strings.Contains(stderr, missing.Error()) {
			childtest.Check(t, missing)
		}
	}
	need.Must(t, fmt.Sprintf("%v: got exit %d, want %d; stderr:\n%s\nstdout:\n%s", args, code, want, stderr, stdout), code == want)
	var r report.Result
	need.OK(t, json.Unmarshal([]byte(stdout), &r))
	return r
}
