package etcdlock

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// etcd compares values as texts. A stored text may be greater than the new one without being later, if it comes from another program, or
// from a cluster whose revisions were higher. Save replaces such a text.
func TestSaveReplacesEveryTextButALaterOneOfItsHolder(t *testing.T) {
	t.Parallel()
	locks := tier.New(start(t))
	mu, key := locks.Mutex(lockPath(t)), values+lockPath(t)
	put := func(text string) { need.Get(outside(t).Put(soon(t), key, text))(t) }
	want := func(data string) {
		t.Helper()
		need.Equal(t, "value", string(need.Get(mu.Load(soon(t)))(t).Data), data)
	}
	put(second.EncodeValue(1<<61, 1, time.Now(), []byte("copied")))
	want("copied")
	hold := need.Get(mu.Acquire(soon(t)))(t)
	need.OK(t, hold.Save(soon(t), []byte("mine")))
	want("mine")
	put(second.EncodeValue(hold.Token(), 100, time.Now(), []byte("later")))
	need.OK(t, hold.Save(soon(t), []byte("late")))
	need.OK(t, hold.Forget(soon(t)))
	want("later")

	put("zzz")
	need.WantMention(t, hold.Save(soon(t), []byte("mine")), key, "delete it")
	need.WantMention(t, need.ErrOf(mu.Load(soon(t))), key, "delete the key")
	need.Get(outside(t).Delete(soon(t), key))(t)
	need.OK(t, hold.Save(soon(t), []byte("mine")))
	want("mine")
	need.That(t, "the key of the value is below the lock: other libraries wait for it", len(left(t)) == 1)
	need.That(t, "a session's end removes it", need.Get(outside(t).Get(soon(t), key))(t).Kvs[0].Lease == 0)
	need.That(t, "not idle", waittest.Grant(hold).Idle())
	need.OK(t, hold.Forget(soon(t)))
	need.WantErr(t, "Load", need.ErrOf(mu.Load(soon(t))), tier.ErrNoValue)
	need.OK(t, hold.Release())
}

func TestNoLockIsWhereAValueIs(t *testing.T) {
	need.That(t, "valid", ValidatePath(strings.TrimSuffix(values, "/")) != nil && ValidatePath(values+"x") != nil)
}
