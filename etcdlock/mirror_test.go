package etcdlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// If a watch starts at a past revision, and something was written since, etcd serves it from a loop that runs every 100 ms. Therefore the
// watch starts at the present revision, and the queue is read after that.
func TestHandOverWaitsForNoResync(t *testing.T) {
	t.Parallel()
	p := start(t)
	held := acquire(t, start(t).mutex(t))
	looked := p.calls.once("Range", 1, func(one call) error {
		need.That(t, "the queue is looked at before it is watched", p.calls.begun() != nil)
		return one.send(one)
	})
	w := queues(t, p.mutex(t))
	ended(t, "a look", looked)
	release(t, after(t, w, held))
	need.List(t, "revisions at which watches begin, 0 for the present one", p.calls.begun(), 0)
}

func TestQueueIsWatchedFromTurnToTurnAndThenNoMore(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	held, other := acquire(t, p.mutex(t)), queues(t, q.mutex(t))
	for range 5 {
		again := begin(t, func(ctx context.Context) (second.Grant, error) { return p.mutex(t).Requeue(ctx, held) })
		o := other.Must(t)
		other = begin(t, func(ctx context.Context) (second.Grant, error) { return q.mutex(t).Requeue(ctx, o) })
		held = again.Must(t)
	}
	need.AtMost(t, "looks in five turns", p.calls.count("Range"), 1)
	release(t, after(t, other, held))
	eventually(t, "no mirror", func() bool {
		p.store.mu.Lock()
		defer p.store.mu.Unlock()
		return p.store.mirrors[lockPath(t)+"/"] == nil
	})
}

func TestWaiterSurvivesACompaction(t *testing.T) {
	p := start(t)
	holder := acquire(t, start(t).mutex(t))
	w := queues(t, p.mutex(t))
	eventually(t, "a look", func() bool { return p.calls.count("Range") > 0 })
	heal := p.calls.sever()
	release(t, holder)
	for range 3 {
		does(t, clientv3.OpPut("/noise", ""))
	}
	need.Get(outside(t).Compact(soon(t), writes(t)))(t)
	heal()
	release(t, w.Must(t))
}

// If a read of the queue finds a change without an event, the watch is silent. The next watch then uses another stream, although other
// watches keep the silent one open.
func TestWaiterNoticesAWatchThatIsSilent(t *testing.T) {
	t.Parallel()
	p, q := start(t, tier.WithLeaseTTL(brief)), start(t)
	elsewhere := acquire(t, q.at(t, lockPath(t)+"-2", second.Exclusive))
	keeps := begin(t, p.at(t, lockPath(t)+"-2", second.Exclusive).Acquire)
	eventually(t, "a look", func() bool { return p.calls.count("Range") > 0 })
	p.calls.silence() // before another watch begins
	holder := acquire(t, q.mutex(t))
	release(t, after(t, queues(t, p.mutex(t)), holder))
	need.Equal(t, "other streams for watches", p.store.stream.Load(), 1)
	holder = acquire(t, q.writer(t))
	reader, watches := queues(t, p.reader(t)), len(p.calls.begun())
	eventually(t, "a watch", func() bool { return p.calls.count("Range") > 0 && len(p.calls.begun()) >= watches })
	ended(t, "contended", holder.Contended().C())
	p.calls.silence() // after the other watch has started
	share(t, holder)
	release(t, reader.Must(t), holder, after(t, keeps, elsewhere))
	need.AtLeast(t, "other streams for watches", p.store.stream.Load(), 2)
}

// Servers before 3.5 report an expired token as a watch that is not permitted. That must not count as a refusal of the queue.
func TestRefusalOfAWatchIsNoneOfTheQueue(t *testing.T) {
	t.Parallel()
	p := start(t)
	refused := make(chan struct{})
	p.calls.created = func(r *etcdserverpb.WatchResponse) {
		r.Canceled, r.CancelReason = true, "etcdserver: permission denied"
		close(refused)
	}
	holder := acquire(t, start(t).mutex(t))
	w := begin(t, p.mutex(t).Acquire)
	ended(t, "a watch", refused)
	w.Pending(t)
	release(t, after(t, w, holder))
}

func TestWaiterThatMayNotLookIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t)
	acquire(t, start(t).mutex(t))
	p.calls.on("Range", func(call) (bool, error) { return true, rpctypes.ErrGRPCPermissionDenied })
	wantErr(t, need.ErrOf(p.mutex(t).Acquire(soon(t))), rpctypes.ErrPermissionDenied)
}

func TestMirrorTellsNothingOfAPlaceThatIsYounger(t *testing.T) {
	t.Parallel()
	p := start(t)
	ref := queue.Ref{Path: lockPath(t), ID: "x", Token: 10}
	m := &mirror{store: p.store, prefix: prefixOf(ref), revision: 9, idle: time.NewTimer(time.Hour)}
	m.followers = make(map[queue.Ref]time.Duration)
	p.store.mu.Lock()
	p.store.mirrors[m.prefix] = m
	p.store.mu.Unlock()
	before := p.Now()
	p.store.Follow(ref)
	m.tellLocked(ref, 0)
	m.tellLocked(ref, before) // a read of the queue that was sent before the contender followed
	need.That(t, "the contender was reported missing", p.count("", queue.Unknown) == 0)
	m.tellLocked(ref, p.Now()+1)
	need.Equal(t, "reports after a read that came later", p.count("", queue.Unknown), 1)
	m.revision = 10
	m.tellLocked(ref, 0)
	need.Equal(t, "reports", p.count("", queue.Unknown), 2)
}

// The watch starts before the queue is read. Its first events may be older than the queue that was read, and must not change this queue.
func TestMirrorKeepsWhatALookHasShown(t *testing.T) {
	key := func(modified int64, value string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("/x/" + ownID('A')), Value: []byte(value), CreateRevision: 1, ModRevision: modified}
	}
	m := &mirror{prefix: "/x/"}
	m.revision, m.places = 3, []place{placeOf(key(3, `{"v":1,"shared":true}`))}
	m.applyLocked([]*clientv3.Event{{Kv: key(1, `{"v":1}`)}, {Kv: key(2, `{"v":1}`)}})
	need.That(t, fmt.Sprintf("at %d: %+v", m.revision, m.places), m.revision == 3 && len(m.places) == 1 && m.places[0].Shared)
}
