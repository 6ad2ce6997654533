package etcdlock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// An alone is an etcd server that only one test uses. Its data can be set back to an earlier state.
type alone struct {
	*etcdserver.Server
	backup string
}

func startAlone(t *testing.T) *alone {
	t.Helper()
	if testing.Short() {
		t.Skip("restarts a server")
	}
	server(t) // skips the test if there is no etcd on this machine
	s := need.Get(etcdserver.Start(soon(t), etcdserver.Config{}))(t)
	t.Cleanup(func() { s.Stop() })
	return &alone{s, filepath.Join(t.TempDir(), "backup")}
}

func (a *alone) data() string { return filepath.Join(a.Dir(), "data") }

// saves makes a copy of the server's data.
func (a *alone) saves(t *testing.T) {
	t.Helper()
	a.Kill()
	need.OK(t, os.CopyFS(a.backup, os.DirFS(a.data())))
	need.OK(t, a.Restart(soon(t)))
}

// goesBack restarts the server with the copy of its data.
func (a *alone) goesBack(t *testing.T) {
	t.Helper()
	a.Kill()
	need.OK(t, os.RemoveAll(a.data()))
	need.OK(t, os.CopyFS(a.data(), os.DirFS(a.backup)))
	need.OK(t, a.Restart(soon(t)))
}

// keys returns the keys below the path of the test.
func (a *alone) keys(t *testing.T) (keys []string) {
	t.Helper()
	client := need.Get(clientv3.New(clientv3.Config{Endpoints: []string{a.Addr()}, Logger: zap.NewNop()}))(t)
	defer client.Close()
	for _, kv := range need.Get(client.Get(soon(t), lockPath(t), clientv3.WithPrefix()))(t).Kvs {
		keys = append(keys, fmt.Sprint(string(kv.Key), " ", string(kv.Value)))
	}
	return keys
}

// The backup has the leases of all processes, but not their later writes. After the restore, locks that were acquired later are free,
// waiters have no keys, and released locks are taken. The TTL is so long that a renewal comes before any periodic read of a queue.
func TestEtcdThatGoesBackIsNoticedWithTheNextRenewal(t *testing.T) {
	t.Parallel()
	etcd := startAlone(t)
	at := []string{etcd.Addr()}
	long := tier.WithLeaseTTL(30 * time.Minute)
	p, q := startAt(t, at, long), startAt(t, at, long)
	path := lockPath(t)
	mutex := func(p *process, name string) lock { return p.at(t, path+name, second.Exclusive) }
	kept, released := acquire(t, mutex(p, "/kept")), acquire(t, mutex(p, "/released"))
	of := func(p *process) semaphore {
		return semaphore{need.Get(p.Semaphore(path+"/permits", 3, second.Options{}))(t), p}
	}
	permits := of(q).take(t, 3)
	share := begin(t, p.at(t, path+"/shared", second.Reading).Acquire).Must(t)
	etcd.saves(t)

	release(t, released, share)
	of(q).give(t, permits[:2]...)
	lost := acquire(t, mutex(p, "/lost"))
	waits := begin(t, mutex(q, "/lost").Acquire)
	eventually(t, "two in the queue", func() bool { return len(need.Get(mutex(p, "/lost").Contenders(soon(t)))(t)) == 2 })
	more := of(p).take(t, 2)
	etcd.goesBack(t)

	r := startAt(t, at)
	p.Renew()
	q.Renew()
	eventually(t, "the loss of contenders", func() bool { return lost.Err() != nil && more[0].(*queue.Contender).Err() != nil })
	wantErr(t, lost.Err(), second.ErrLost)
	wantErr(t, kept.Err(), nil)
	wantErr(t, permits[2].(*queue.Contender).Err(), nil)
	release(t, acquire(t, mutex(r, "/released")))
	need.Len(t, "free permits, including the two that were given up", of(r).take(t, 2), 2)
	of(r).try(t, 1, second.ErrLocked)
	locked(t, mutex(r, "/kept"))
	release(t, waits.Must(t))
	eventually(t, "no keys but those of the held locks", func() bool {
		keys := strings.Join(etcd.keys(t), "\n")
		return strings.Count(keys, "\n") == 2 && strings.Contains(keys, "/kept/")
	})
	release(t, kept)
}

// The answer to a later request is newer, even if its revision is lower. No renewal is due in this test, because the next one comes after
// 15 s.
func TestLookAtAnEtcdThatHasGoneBackCounts(t *testing.T) {
	t.Parallel()
	etcd := startAlone(t)
	p := startAt(t, []string{etcd.Addr()})
	etcd.saves(t)
	for range 5 {
		release(t, acquire(t, p.mutex(t)))
	}
	h := acquire(t, p.mutex(t))
	h.RevokeRequested() // starts the mirror of the queue
	etcd.goesBack(t)
	p.store.mu.Lock()
	m := p.store.mirrors[prefixOf(h.Ref())]
	p.store.mu.Unlock()
	eventually(t, "a look", func() bool { return need.ErrOf(m.look(soon(t))) == nil })
	wantErr(t, h.Err(), second.ErrLost)
}

// A server with an alarm executes no request until an operator has dealt with the alarm. An overloaded server refuses a request before it
// executes any part of it.
func TestWhatARefusalMeans(t *testing.T) {
	for err, want := range map[error]queue.Outcome{
		rpctypes.ErrNoSpace:         queue.Failed,
		rpctypes.ErrCorrupt:         queue.Failed,
		rpctypes.ErrTooManyRequests: queue.Failed,
		rpctypes.ErrTimeout:         queue.Unknown,
	} {
		need.Equal(t, err.Error(), outcomeOf(err), want)
	}
	for _, err := range []error{rpctypes.ErrNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrTooManyRequests} {
		need.That(t, fmt.Sprintf("%v does not count as an answer", err), answered(err))
	}
}

// After a restore, a deleted key may exist again, with fewer permits than its process now asks for. The process must not take that key for
// its new one.
func TestKeyThatIsBackIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 3), start(t).of(t, 3)
	old := p.take(t, 1)
	ref := old[0].(*queue.Contender).Ref()
	p.give(t, old...)
	lease := clientv3.WithLease(p.lease())
	does(t, clientv3.OpPut(keyOf(ref), `{"v":1,"permits":1}`, lease))
	taken := p.take(t, 3)
	need.That(t, "it has the key of before", taken[0].(*queue.Contender).Ref().ID != ref.ID)
	q.try(t, 1, second.ErrLocked)
	p.give(t, taken...)
	eventually(t, "the end of the key", func() bool { return len(left(t)) == 0 })
}
