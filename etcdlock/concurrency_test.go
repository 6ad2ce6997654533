package etcdlock

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// theirs returns etcd's own mutex, which etcdctl uses, at the path of the test's lock.
func theirs(t *testing.T) *concurrency.Mutex {
	t.Helper()
	session := need.Get(concurrency.NewSession(outside(t), concurrency.WithTTL(60)))(t)
	t.Cleanup(func() { session.Close() })
	return concurrency.NewMutex(session, lockPath(t))
}

func TestEtcdsMutexAndWeExcludeEachOther(t *testing.T) {
	t.Parallel()
	for _, mode := range []second.Mode{second.Exclusive, second.Reading} {
		m, p, q := theirs(t), start(t).at(t, lockPath(t), mode), start(t).reader(t)
		ours := acquire(t, p)
		if mode == second.Reading {
			release(t, acquire(t, q)) // readers can have the lock together
		}
		wantErr(t, m.TryLock(soon(t)), concurrency.ErrLocked)
		locks := make(chan error, 1)
		go func() { locks <- m.Lock(soon(t)) }()
		ended(t, "contended", ours.Contended().C())
		behind := queues(t, q)
		behind.Pending(t)
		select {
		case err := <-locks:
			t.Fatalf("locked beside us: %v", err)
		case <-time.After(200 * time.Millisecond): // longer than a watch of the other library may take
		}
		release(t, ours)
		wantErr(t, <-locks, nil)
		locked(t, p)
		behind.Pending(t)
		all := need.Get(p.Contenders(soon(t)))(t)
		need.That(t, fmt.Sprintf("contenders %v", all), len(all) == 2 && all[0].PID == 0 && all[1].PID == os.Getpid())
		need.OK(t, m.Unlock(soon(t)))
		release(t, behind.Must(t))
	}
}
