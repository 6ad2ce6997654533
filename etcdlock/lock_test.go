package etcdlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// costs calls f, and checks how many requests and writes f makes. No other test may write in that time.
func (p *process) costs(t *testing.T, what string, requests int, wrote int64, f func()) {
	t.Helper()
	before, revision := p.calls.count(""), writes(t)
	f()
	need.Equal(t, what+": requests", p.calls.count("")-before, requests)
	need.Equal(t, what+": writes", writes(t)-revision, wrote)
}

func TestWhatALockCosts(t *testing.T) {
	p, q := start(t), start(t)
	var c, d *queue.Contender
	p.costs(t, "to acquire", 1, 1, func() { c = acquire(t, p.mutex(t)) })
	q.costs(t, "a try in vain", 1, 0, func() { locked(t, q.mutex(t)) })
	p.costs(t, "a requeue", 1, 1, func() { c = requeue(t, p.mutex(t), c) })
	p.costs(t, "a release", 1, 1, func() { release(t, c) })
	p.costs(t, "a try", 1, 1, func() { c = try(t, p.mutex(t)) })
	w := queues(t, q.mutex(t))
	eventually(t, "a look", func() bool { return q.calls.count("Range") > 0 })
	q.costs(t, "to be given the lock", 0, 1, func() { d = after(t, w, c) })
	release(t, d)

	c = acquire(t, p.reader(t))
	q.costs(t, "to read beside a reader", 1, 1, func() { d = acquire(t, q.reader(t)) })
	q.costs(t, "a release by a reader", 1, 1, func() { release(t, d) })
	q.costs(t, "a try beside a reader", 1, 1, func() { d = try(t, q.reader(t)) })
	release(t, c, d)

	c = acquire(t, p.writer(t))
	w = queues(t, q.reader(t))
	ended(t, "contended", c.Contended().C())
	p.costs(t, "to share", 1, 1, func() { wantErr(t, c.Share(soon(t)), nil) })
	r := start(t)
	r.costs(t, "to read beside a writer that shares", 1, 1, func() { d = acquire(t, r.reader(t)) })
	release(t, d)
	r.costs(t, "a try beside a writer that shares", 2, 1, func() { d = try(t, r.reader(t)) })
	locked(t, r.mutex(t))
	locked(t, r.writer(t))
	next := queues(t, r.writer(t))
	locked(t, r.reader(t))
	release(t, after(t, next, c, d, w.Must(t)))
	p.costs(t, "to ask where nobody is", 1, 0, func() { ask(t, p.mutex(t)) })
	need.Empty(t, "left", left(t))
}

// The key of a lock at a lower path has one more slash after the prefix. In the order of keys, it may come before, among, and after the
// keys of the lock above.
func TestLocksBelowAreOtherLocks(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	for _, below := range []string{"/a", "/b", "/read-", "/z"} {
		defer release(t, acquire(t, p.at(t, lockPath(t)+below, second.Writing)), acquire(t, p.at(t, lockPath(t)+below+"/c", second.Reading)))
	}
	for _, mode := range []second.Mode{second.Exclusive, second.Reading} {
		l := q.at(t, lockPath(t), mode)
		release(t, acquire(t, l))
		tried := try(t, l)
		w := queues(t, p.mutex(t))
		w.Pending(t)
		locked(t, p.mutex(t))
		need.Equal(t, "contenders", len(need.Get(l.Contenders(soon(t)))(t)), 2)
		release(t, after(t, w, tried))
	}
}

// While locks at lower paths are busy, new keys appear below the path all the time. TryAcquire must not start again for each of them.
func TestTryBesideBusyLocksBelow(t *testing.T) {
	t.Parallel()
	for _, mode := range []second.Mode{second.Exclusive, second.Reading} {
		p, n := start(t), 0
		p.calls.on("Txn", func(call) (bool, error) {
			n++
			_, err := outside(t).Put(soon(t), fmt.Sprintf("%s/below/%v/%d", lockPath(t), mode, n), "")
			return false, err
		})
		tried := try(t, p.at(t, lockPath(t), mode))
		need.AtMost(t, "transactions of a try", n, 4)
		release(t, tried)
	}
}

func TestKeyTellsOfItsOwner(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLabel("<the label>"))
	l := need.Get(p.Claim(lockPath(t), second.Options{MayLinger: 3 * time.Second}))(t)
	c := acquire(t, lock{Claim: l})
	kv, _ := stored(t, keyOf(c.Ref()))
	need.Equal(t, "revision and lease", [2]int64{kv.CreateRevision, kv.Lease}, [2]int64{c.Token(), int64(p.lease())})
	all := need.Get(l.Contenders(soon(t)))(t)
	need.Len(t, "contenders", all, 1)
	o := all[0]
	need.That(t, fmt.Sprintf("%+v", o), o.Token == c.Token() && o.ID == c.Ref().ID && o.Label == "<the label>" && o.Linger == 3*time.Second)
}

// The audit reads the keys of a lease, and has to find out from each key which contender it is.
func TestContenderIsKnownByItsKey(t *testing.T) {
	for _, ref := range []queue.Ref{{Path: "/a/b", ID: "x-1"}, {Path: "a", ID: "x-1", Reads: true}, {Path: "/a", ID: "x-1", Permits: 12}} {
		need.Equal(t, "what a key is taken for", refOf(keyOf(ref)), ref)
	}
}

// Each queue is tested twice: with the view of the last contender, and with the views of all contenders.
func TestViews(t *testing.T) {
	key := func(ref queue.Ref, value string) place {
		return placeOf(&mvccpb.KeyValue{Key: []byte(keyOf(ref)), CreateRevision: ref.Token, Value: []byte(value)})
	}
	const shared = `{"v":1,"shared":true}`
	for name, c := range map[string]struct {
		readers string // one letter for each contender: r for a reader, w for a writer, s for a writer that has let readers in
		want    queue.View
	}{
		"writer behind readers":              {"rrw", queue.View{Ahead: 2, Nearest: second.Contender{Token: 2}}},
		"reader behind a writer":             {"rwrr", queue.View{Ahead: 1, Nearest: second.Contender{Token: 2}}},
		"reader beside a writer that shares": {"srr", queue.View{Has: true}},
		"writer behind one that shares":      {"sw", queue.View{Ahead: 1, Nearest: second.Contender{Token: 1}}},
	} {
		var places []place
		var ref queue.Ref
		for i, kind := range c.readers {
			ref = queue.Ref{Path: "/x", ID: ownID(rune('A' + i)), Token: int64(i + 1), Reads: kind == 'r'}
			places = append(places, key(ref, map[rune]string{'s': shared}[kind]))
		}
		c.want.ID, c.want.Known, c.want.Token, c.want.At, c.want.Reads = ref.ID, true, ref.Token, 7, ref.Reads
		v := viewOf(ref, 7, places)
		v.Nearest = second.Contender{Token: v.Nearest.Token}
		need.Equal(t, name, v, c.want)
	}
}

// ownID returns an ID in the form of [store.Name].
func ownID(first rune) string { return string(first) + strings.Repeat("A", 25) }

// A key of another program excludes all contenders, even if its value looks like one of this package.
func TestForeignKeysLetNobodyPass(t *testing.T) {
	reader := queue.Ref{Path: "/x", ID: ownID('B'), Token: 2, Reads: true}
	for name, ours := range map[string]bool{
		ownID('A'): true, readMark + ownID('A'): true, "12-" + ownID('A'): true,
		"694d8a6f2c1b0d3e": false, "x": false, "x" + ownID('A'): false, "x-" + ownID('A'): false, ownID('a'): false, ownID('A') + "A": false,
	} {
		foreign := placeOf(&mvccpb.KeyValue{Key: []byte("/x/" + name), CreateRevision: 1, Value: []byte(`{"v":1,"shared":true,"revoke":true}`)})
		need.Equal(t, name+" is of this package", foreign.ours, ours)
		v := viewOf(reader, 7, []place{foreign, placeOf(&mvccpb.KeyValue{Key: []byte(keyOf(reader)), CreateRevision: 2})})
		need.Equal(t, name+" lets a reader pass", v.Has, ours)
	}
}

// The name of another program's key may contain characters that are replaced when they are displayed, and may be a part of another name.
// Break still finds the key by its token.
func TestBreakFindsAnyKeyByItsToken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\x07\nb", "read-\xff", "X", "7-"} {
		p := start(t).mutex(t)
		key := lockPath(t) + "/" + name
		does(t, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(key+"/below", ""), clientv3.OpPut(key, "")}, nil)) // at one revision
		all := need.Get(p.Contenders(soon(t)))(t)
		need.Equal(t, "contenders", len(all), 1)
		need.OK(t, p.Break(soon(t), all[0].Token))
		need.Equal(t, "left of "+name, len(left(t)), 1)
		wantErr(t, p.Break(soon(t), all[0].Token), second.ErrReleased)
		release(t, acquire(t, p))
		does(t, clientv3.OpDelete(key+"/below"))
	}
}

func TestRevokedLeaseIsFollowedByAnotherOneAtOnce(t *testing.T) {
	t.Parallel()
	revoke := func(p *process) { need.Get(outside(t).Revoke(soon(t), p.lease()))(t) }
	p := start(t, tier.WithLeaseTTL(brief))
	revoke(p)
	eventually(t, "a renewal that finds it", func() bool { return p.count(queue.Open, queue.Done) == 2 })

	p = start(t)
	held := acquire(t, p.at(t, lockPath(t)+"-2", second.Exclusive))
	revoke(p)
	release(t, acquire(t, p.mutex(t))) // the acquisition finds that the session has ended
	need.AtMost(t, "transactions, with two of another lock", p.calls.count("Txn"), 3)
	need.Equal(t, "why it was lost", second.CauseOf(held.Release()), second.BySession)
}

func TestCloseRevokesTheLeaseAndLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	p := start(t)
	acquire(t, p.mutex(t))
	lease := p.lease()
	need.OK(t, p.Close())
	need.AtMost(t, "the TTL of the lease, which an open client tells", need.Get(p.client.TimeToLive(soon(t), lease))(t).TTL, 0)
}

func TestProcessEndsWithItsClient(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := acquire(t, p.mutex(t))
	p.client.Close()
	ended(t, "the hold", c.Context().Done())
	ended(t, "the tier", p.Context().Done())
}
