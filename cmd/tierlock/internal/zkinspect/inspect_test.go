package zkinspect_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/zkinspect"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const (
	addr = "127.0.0.1:2181"
	path = "/locks/x"
	uuid = "5f1c9a3e-7a54-4c1e-9d0b-2f6d1c8e4b70"
	hex  = "f7a2c0d9e8b64f13a5d4c3b2a1908f7e"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a server, together with an operator's reader and a connection of another program.
type site struct {
	*zktest.Server
	client *zknode.Client
	conn   *zk.Conn
}

func bubble(t *testing.T, f func(t *testing.T, s site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := zktest.Start(t)
		conn := zkconn.Start(t, []string{addr, addr}, 10*time.Second, server.DialTimeout)
		f(t, site{server, dial(t, server), conn})
	})
}

func dial(t *testing.T, server *zktest.Server, opts ...zknode.Option) *zknode.Client {
	t.Helper()
	client := need.Get(zknode.Dial(t.Context(), addr, append(opts, zknode.WithDialContext(server.DialContext))...))(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// queue makes a process acquire the lock at a path, or wait for it.
func (s site) queue(t *testing.T, path string, opts ...zknode.Option) {
	t.Helper()
	lock := need.Get(dial(t, s.Server, opts...).Lock(path))(t)
	go lock.Acquire(t.Context())
	synctest.Wait()
}

// put creates a node and the nodes above it, and returns its path.
func (s site) put(t *testing.T, path, data string, flags int32, perms int32) string {
	t.Helper()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			zkconn.Put(t, s.conn, 0, path[:i])
		}
	}
	return need.Get(s.conn.Create(path, []byte(data), flags, zk.WorldACL(perms)))(t)
}

func (s site) reader() zkinspect.Reader { return zkinspect.Reader{Client: s.client} }

func (s site) look(t *testing.T) *inspect.Queue {
	t.Helper()
	return need.Get(s.reader().Look(t.Context(), path))(t)
}

// The method permits makes a process acquire k of eight permits.
func (s site) permits(t *testing.T, k int) {
	t.Helper()
	need.Get(s.locks(t).Semaphore(path, 8).Acquire(t.Context(), k))(t)
}

const stay, ephemeral = zk.FlagSequence, zk.FlagEphemeral | zk.FlagSequence

func TestLookTellsWhoWaitsForWhom(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		s.queue(t, path, zknode.WithLabel("billing"))
		s.put(t, path+"/_c_"+uuid+"-lock-", "10.0.0.1", ephemeral, zk.PermAll)
		s.put(t, path+"/_c_"+uuid+"-__READ__", "10.0.0.1", ephemeral, zk.PermAll)
		s.put(t, path+"/"+hex+"__lock__", "kazoo says", ephemeral, zk.PermAll)
		s.put(t, path+"/config", "", 0, zk.PermAll)
		s.queue(t, path, zknode.WithKazoo())
		time.Sleep(time.Minute)

		q := s.look(t)
		need.Must(t, fmt.Sprintf("got %+v", q), len(q.Contenders) == 5 && len(q.Others) == 1 && q.Others[0].Name == "config" && q.Next == 7)
		for i, want := range []string{
			"tierlock holds 0 0 0 billing", "curator waits 1 0 0 10.0.0.1", "read holds 0 0 2 10.0.0.1",
			"kazoo perhaps 0 2 1 kazoo says", "tierlock waits 4 0 0 ",
		} {
			c := q.Contenders[i]
			got := fmt.Sprint(c.Kind, " ", c.State, " ", c.Ahead, " ", c.Perhaps, " ", c.Ignored, " ", c.Label+c.Content)
			need.Equal(t, fmt.Sprint("contender ", i), got, want)
			need.That(t, fmt.Sprintf("contender %d: got %+v", i, c),
				c.Ephemeral && c.Readable && c.Token != 0 && c.Age() >= time.Minute && c.Age() <= 2*time.Minute)
		}
		if last := q.Contenders[4]; last.Behind != q.Contenders[3].Node || last.Pair == "" {
			t.Errorf("got %+v, want it behind %s", last, q.Contenders[3].Node)
		}
	})
}

func TestListFindsLocksAndSaysWhenItStops(t *testing.T) {
	bubble(t, func(t *testing.T, s site) {
		for i := range 5 {
			s.queue(t, fmt.Sprintf("/app/%d/lock", i))
		}
		s.queue(t, "/app/3/lock")
		s.put(t, "/other/deep/data", "of a program", 0, zk.PermAll)
		s.put(t, "/other/nothing", "", 0, zk.PermAll)
		s.put(t, "/pool", "tierlock permits=3", 0, zk.PermAll)
		need.OK(t, acquire(t, s.locks(t).Mutex("/other/deep/idle")).Release())
		s.put(t, "/secret", "", 0, zk.PermAll&^zk.PermRead)

		list := func(path string, limit int, all bool) *inspect.Listing {
			return need.Get(s.reader().List(t.Context(), path, limit, all))(t)
		}
		l := list("/", 1000, false)
		need.Must(t, fmt.Sprintf("got %+v", l), len(l.Locks) == 5 && l.Complete && len(l.Unreadable) == 1 && l.Unreadable[0] == "/secret")
		if third := l.Locks[3]; third.Path != "/app/3/lock" || third.Queue != 2 || third.Holder == nil || third.Holder.PID == 0 {
			t.Errorf("got %+v", third)
		}
		l = list("/", 1000, true)
		need.That(t, fmt.Sprintf("all: %+v", l.Locks), len(l.Locks) == 7 && l.Locks[5].Path == "/other/deep/idle" && l.Locks[6].Path == "/pool")
		l = list("/", 6, false)
		need.That(t, fmt.Sprintf("with a limit of 6: %+v", l), !l.Complete && l.Looked == 6)
		l = list("/app/3/lock", 10, false)
		need.That(t, fmt.Sprintf("of a lock itself: %+v", l), len(l.Locks) == 1 && l.Locks[0].Queue == 2)
		l = list("/none", 10, false)
		need.That(t, fmt.Sprintf("of nothing: %+v", l), len(l.Locks) == 0 && l.Complete)
		need.WantErr(t, "List of a path that may not be read", need.ErrOf(s.reader().List(t.Context(), "/secret", 10, false)), zk.ErrNoAuth)
	})
}

// Each row has nodes at a path, and a finding that doctor has to report about them.
func TestDoctorFinds(t *testing.T) {
	type row struct {
		prepare func(*testing.T, site)
		grade   inspect.Grade
		text    string
	}
	need.Each(t, map[string]row{
		"nothing": {func(*testing.T, site) {}, inspect.OK, "does not exist"},
		"a healthy lock": {func(t *testing.T, s site) { s.queue(t, path); s.queue(t, path) },
			inspect.OK, "waits, with 1 ahead of it: the nearest is #0"},
		"a persistent node at the head": {func(t *testing.T, s site) { s.put(t, path+"/lock-", "", stay, zk.PermAll) },
			inspect.Problem, "tierlock break /locks/x -token "},
		"a persistent node in the queue": {func(t *testing.T, s site) { s.queue(t, path); s.put(t, path+"/lock-", "", stay, zk.PermAll) },
			inspect.Problem, "belongs to no session"},
		"a node that may not be read": {func(t *testing.T, s site) { s.put(t, path+"/lock-", "", ephemeral, zk.PermAll&^zk.PermRead) },
			inspect.OK, "mutex; holds the lock"},
		"Curator's read/write lock": {func(t *testing.T, s site) {
			s.queue(t, path)
			s.put(t, path+"/_c_"+uuid+"-__WRIT__", "", ephemeral, zk.PermAll)
		}, inspect.Problem, "curator write does not wait for tierlock"},
		"kazoo without a pair": {func(t *testing.T, s site) {
			s.queue(t, path)
			s.put(t, path+"/"+hex+"__lock__", "", ephemeral, zk.PermAll)
		},
			inspect.Warning, `kazoo waits for tierlock only with extra_lock_patterns`},
		"a kazoo reader beside a pair": {func(t *testing.T, s site) {
			s.queue(t, path, zknode.WithKazoo())
			s.put(t, path+"/"+hex+"__rlock__", "", ephemeral, zk.PermAll)
		}, inspect.Note, "before kazoo 2.9.0"},
		"several processes": {func(t *testing.T, s site) { s.queue(t, path); s.queue(t, path) },
			inspect.OK, "sessions that own these nodes: 2"},
		"a long wait": {func(t *testing.T, s site) { s.queue(t, path); s.queue(t, path); time.Sleep(10 * time.Minute) },
			inspect.Note, "#1 has waited for 10m0s"},
		"Curator's mutex beside a reader/writer lock": {func(t *testing.T, s site) {
			s.put(t, path+"/_c_"+uuid+"-lock-", "", ephemeral, zk.PermAll)
			go s.locks(t).RWMutex(path).Writer().Acquire(t.Context())
			synctest.Wait()
		}, inspect.Problem, "curator does not wait for tierlock write: on this path they do not exclude each other; " +
			"give the reader/writer lock a path"},
		"Curator's mutex beside its read/write lock": {func(t *testing.T, s site) {
			s.put(t, path+"/_c_"+uuid+"-lock-", "", ephemeral, zk.PermAll)
			s.put(t, path+"/_c_"+uuid+"-__WRIT__", "", ephemeral, zk.PermAll)
		}, inspect.Problem, "curator write does not wait for curator: "},
		"readers of all processes": {func(t *testing.T, s site) {
			acquire(t, s.locks(t).RWMutex(path).Reader())
			acquire(t, s.locks(t).RWMutex(path).Reader())
			s.put(t, path+"/_c_"+uuid+"-__READ__", "", ephemeral, zk.PermAll)
		}, inspect.OK, "holds the lock together with 2 readers ahead of it"},
		"a request": {func(t *testing.T, s site) {
			mu := s.locks(t).Mutex(path)
			acquire(t, mu)
			mu.Revoke(t.Context())
		}, inspect.Note, "it was asked to release the lock"},
		"a semaphore": {func(t *testing.T, s site) { s.permits(t, 3) },
			inspect.OK, "a semaphore, 3 of 8 permits in use, 0 in the queue"},
		"whose permits": {func(t *testing.T, s site) { s.permits(t, 3) }, inspect.OK, "3 permits: host "},
		"a mutex on a semaphore's path": {func(t *testing.T, s site) { s.permits(t, 3); s.queue(t, path) },
			inspect.Problem, "a lock and a semaphore use this path"},
		"more permits than there are": {func(t *testing.T, s site) {
			s.permits(t, 8)
			s.put(t, path+"/leases/_c_"+uuid+"-lease-", "", ephemeral, zk.PermAll)
		}, inspect.Problem, "more permits are in use than exist"},
		"a permit that belongs to nobody": {func(t *testing.T, s site) {
			s.permits(t, 1)
			s.put(t, path+"/leases/_c_"+uuid+"-lease-", "", stay, zk.PermAll)
		}, inspect.Problem, "its permit stays taken"},
		"a stranger among permits": {func(t *testing.T, s site) {
			s.permits(t, 1)
			s.put(t, path+"/leases/x", "", zk.FlagEphemeral, zk.PermAll)
		}, inspect.Warning, "it takes up a permit"},
		"a number of permits that is none": {func(t *testing.T, s site) {
			s.permits(t, 1)
			s.conn.Set(path, []byte("tierlock permits=many"), -1)
		},
			inspect.Problem, `the number of permits is "many"`},
		"Curator's semaphore": {func(t *testing.T, s site) { s.put(t, path+"/leases/_c_"+uuid+"-lease-", "", ephemeral, zk.PermAll) },
			inspect.Note, "does not store the number of permits"},
		"kazoo's semaphore": {func(t *testing.T, s site) { s.put(t, path, "5", 0, zk.PermAll) }, inspect.Note, "as kazoo's Semaphore writes it"},
		"kazoo's semaphore and a mutex": {func(t *testing.T, s site) { s.put(t, path, "5", 0, zk.PermAll); s.queue(t, path) },
			inspect.Warning, "as kazoo's Semaphore writes it"},
		"half a pair": {func(t *testing.T, s site) { s.put(t, path+"/_c_"+uuid+"-__lock__", "", ephemeral, zk.PermAll) },
			inspect.Warning, "a pair of nodes"},
		"a stranger": {func(t *testing.T, s site) { s.queue(t, path); s.put(t, path+"/config", "", 0, zk.PermAll) },
			inspect.Note, "ignored by tierlock and kazoo"},
		"a stranger beside zk.Lock": {func(t *testing.T, s site) {
			s.put(t, path+"/_c_"+hex+"-lock-", "", ephemeral, zk.PermAll)
			s.put(t, path+"/config", "", 0, zk.PermAll)
		}, inspect.Problem, "zk.Lock fails while this node exists"},
		"a number beside Curator": {func(t *testing.T, s site) {
			s.put(t, path+"/", "", ephemeral, zk.PermAll)
			s.put(t, path+"/_c_"+uuid+"-lock-", "", ephemeral, zk.PermAll)
		}, inspect.Warning, "Curator reads a number in its name"},
		"worn numbers of ours": {func(t *testing.T, s site) { s.queue(t, path); s.SetSequence(path, 1<<30+5) },
			inspect.Note, "resets them as soon as the queue is empty"},
		"worn numbers of a plain path": {func(t *testing.T, s site) { s.put(t, path, "", 0, zk.PermAll); s.SetSequence(path, 1<<30+5) },
			inspect.Warning, "tierlock cannot reset them"},
		"numbers at their end": {func(t *testing.T, s site) { s.put(t, path, "", 0, zk.PermAll); s.SetSequence(path, 1<<31-2) },
			inspect.Problem, "no process can queue any more"},
		"a negative number": {func(t *testing.T, s site) { s.put(t, path+"/lock--000000007", "", 0, zk.PermAll) },
			inspect.Problem, "negative number"},
	}, func(t *testing.T, c row) {
		bubble(t, func(t *testing.T, s site) {
			c.prepare(t, s)
			report := need.Get(zkinspect.Reader{Client: s.client}.Examine(t.Context(), path))(t)
			found := false
			for _, f := range report.Findings {
				found = found || f.Grade == c.grade && strings.Contains(f.Text, c.text)
			}
			need.That(t, fmt.Sprintf("no %s with %q in %+v", c.grade, c.text, report.Findings), found)
			need.That(t, fmt.Sprintf("found something bad: %+v", report.Findings), c.grade.Bad() || !report.Bad())
		})
	})
}
