package interop_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/waittest"
	"github.com/tierlock/tierlock/tier"
)

const (
	uuid = "5f1c9a3e-7a54-4c1e-9d0b-2f6d1c8e4b70"
	hex  = "f7a2c0d9e8b64f13a5d4c3b2a1908f7e"
)

// strangers are children of a lock path that are no contenders for it.
var strangers = []struct {
	who, name string
	flags     int32
}{
	{"ZooKeeper's WriteLock in Java", "x-72057598332239872-", zk.FlagEphemeral | zk.FlagSequence},
	{"ZooKeeper's WriteLock, negative session", "x--6701356245527298048-", zk.FlagEphemeral | zk.FlagSequence},
	{"ZooKeeper's lock in C", "x-0100003c4b5b0004-", zk.FlagEphemeral | zk.FlagSequence},
	{"ZooKeeper's LeaderElectionSupport", "n_", zk.FlagEphemeral | zk.FlagSequence},
	{"Curator's LeaderLatch", "_c_" + uuid + "-latch-", zk.FlagEphemeral | zk.FlagSequence},
	{"Curator's semaphore, its mutex", "locks", 0},
	{"Curator's semaphore, its leases", "leases", 0},
	{"kazoo's Semaphore", hex, zk.FlagEphemeral},
	{"an application", "config", 0},
}

// vitess's nodes have no name but the number. Curator and zk.Lock queue behind them,
// tier takes them for strangers.
const vitess = ""

// create makes a child of the lock path and returns its full path.
func (e *ensemble) create(t *testing.T, name string, flags int32) string {
	t.Helper()
	parent := ""
	for name := range strings.SplitSeq(e.path[1:], "/") {
		parent += "/" + name
		if _, err := e.conn.Create(parent, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	made, err := e.conn.Create(e.path+"/"+name, nil, flags, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatalf("create %q: %v", name, err)
	}
	return made
}

func (e *ensemble) remove(t *testing.T, node string) {
	t.Helper()
	if err := e.conn.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
}

// zk.Lock is left out: it fails on any of them.
func TestTierIgnoresStrangersAndTheyAllExcludeAmongThem(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	mu := e.tier(t)
	for _, s := range strangers {
		e.create(t, s.name, s.flags)
	}
	for _, d := range launch(t, e, sessionTimeout, "curator", "kazoo") {
		hold := acquire(t, mu)
		d.excluded(t)
		waittest.Release(t, hold)

		d.acquire(t)
		if hold, err := mu.TryAcquire(waittest.Soon(t)); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire while %s has the lock: got %v, %v; want %v", d.kind, hold, err, tier.ErrLocked)
		}
		d.release(t)
	}
	e.create(t, vitess, zk.FlagEphemeral|zk.FlagSequence)
	for _, below := range []string{"locks/_c_" + uuid + "-lock-", "leases/_c_" + uuid + "-lease-"} {
		e.create(t, below, zk.FlagEphemeral|zk.FlagSequence)
	}
	waittest.Release(t, acquire(t, mu))
}
