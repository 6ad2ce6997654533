package etcdlock

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

func TestWhoNeverAsksCausesNoLooking(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	w := queueAt(t, start(t).at(t, lockPath(t)))
	w.pending(t)
	if n := p.calls.count("Watch"); n != 0 {
		t.Errorf("%d watches", n)
	}
	mustRelease(t, c)
	mustRelease(t, w.must(t))
}

// A watch that begins in the past is served from a loop that comes round every 100 ms, if anything was written since. So it begins at the
// present, and the look at the queue comes behind it.
func TestHandOverWaitsForNoResync(t *testing.T) {
	p, q := start(t), start(t)
	held := mustAcquire(t, p.at(t, lockPath(t)))
	q.calls.once("Range", 1, func(ctx context.Context, send func(context.Context) error) error {
		if q.calls.begun() == nil {
			t.Error("the queue is looked at before it is watched")
		}
		return send(ctx)
	})
	w := queueAt(t, q.at(t, lockPath(t)))
	eventually(t, "a look", func() bool { return q.calls.count("Range") > 0 })
	mustRelease(t, held)
	mustRelease(t, w.must(t))
	if got := q.calls.begun(); !slices.Equal(got, []int64{0}) {
		t.Errorf("watches begin at revisions %d, want one at the present one, 0", got)
	}
}

func TestQueueIsWatchedFromTurnToTurnAndThenNoMore(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	lock := p.at(t, lockPath(t))
	held := mustAcquire(t, lock)
	other := queueAt(t, q.at(t, lockPath(t)))
	for range 5 {
		again := begin(t, func(ctx context.Context) (second.Grant, error) { return lock.Requeue(ctx, held) })
		o := other.must(t)
		next := begin(t, func(ctx context.Context) (second.Grant, error) { return q.at(t, lockPath(t)).Requeue(ctx, o) })
		held, other = again.must(t), next
	}
	if n := p.calls.count("Range"); n > 1 {
		t.Errorf("%d looks in five turns, want one", n)
	}
	mustRelease(t, held)
	mustRelease(t, other.must(t))
	eventually(t, "no queue", func() bool {
		return p.store.mirror(lockPath(t)+"/") == nil
	})
}

func TestWaiterSurvivesTheEndOfItsWatch(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*process){
		"broken connection": func(p *process) { p.wire.reset() },
		"short cut":         func(p *process) { heal := p.wire.sever(); time.Sleep(ttl / 4); heal() },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			holder := mustAcquire(t, start(t).at(t, lockPath(t)))
			w := queueAt(t, p.at(t, lockPath(t)))
			w.pending(t)
			trouble(p)
			mustRelease(t, holder)
			mustRelease(t, w.must(t))
		})
	}
}

func TestWaiterSurvivesACompaction(t *testing.T) {
	p := start(t)
	holder := mustAcquire(t, start(t).at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	w.pending(t)
	heal := p.wire.sever()
	mustRelease(t, holder)
	for range 3 {
		outside(t).Put(soon(t), "/noise", "")
	}
	if _, err := outside(t).Compact(soon(t), writes(t)); err != nil {
		t.Fatal(err)
	}
	heal()
	mustRelease(t, w.must(t))
}

func TestWaiterNoticesAWatchThatFellSilent(t *testing.T) {
	t.Parallel()
	p := start(t)
	holder := mustAcquire(t, start(t).at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	w.pending(t)
	elsewhere := mustAcquire(t, start(t).at(t, lockPath(t)+"2"))
	shares := queueAt(t, p.at(t, lockPath(t)+"2")) // and so keeps the stream
	shares.pending(t)
	p.calls.silence()
	released := time.Now()
	mustRelease(t, holder)
	holder = w.must(t)
	if d := time.Since(released); d > ttl*3/4 {
		t.Errorf("it took %v", d)
	}
	w = queueAt(t, p.at(t, lockPath(t)))
	w.pending(t) // for as long as another watch takes, on another stream
	released = time.Now()
	mustRelease(t, holder)
	mustRelease(t, w.must(t))
	if d := time.Since(released); d > ttl/8 {
		t.Errorf("it took %v on another stream", d)
	}
	mustRelease(t, elsewhere)
	mustRelease(t, shares.must(t))
}

func TestWaiterNoticesAWatchThatNeverBegins(t *testing.T) {
	t.Parallel()
	p := start(t)
	q := start(t)
	elsewhere := mustAcquire(t, q.at(t, lockPath(t)+"2"))
	shares := queueAt(t, p.at(t, lockPath(t)+"2")) // the stream
	shares.pending(t)
	p.calls.silence()
	holder := mustAcquire(t, q.at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	w.pending(t)
	mustRelease(t, holder)
	mustRelease(t, w.must(t))
	mustRelease(t, elsewhere)
	mustRelease(t, shares.must(t))
}

func TestWaiterOutlivesTheServersRestart(t *testing.T) {
	t.Parallel()
	srv := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	p, q := startAt(t, []string{srv.Addr()}), startAt(t, []string{srv.Addr()})
	holder := mustAcquire(t, p.at(t, lockPath(t)))
	w := begin(t, q.at(t, lockPath(t)).Acquire)
	w.pending(t)
	srv.Kill()
	if err := srv.Restart(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, holder)
	next := w.must(t)
	if next.Token() <= holder.Token() {
		t.Errorf("token %d after %d", next.Token(), holder.Token())
	}
	mustRelease(t, next)
}

func TestWhatIsNotPermittedFailsAtOnce(t *testing.T) {
	t.Parallel()
	srv := etcdservertest.Start(t, etcdserver.Config{NoSync: true})
	root := dial(t, clientv3.Config{Endpoints: []string{srv.Addr()}})
	ctx := soon(t)
	for _, err := range []error{
		errorOf(root.UserAdd(ctx, "root", "r")), errorOf(root.UserGrantRole(ctx, "root", "root")),
		errorOf(root.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o, _, _ := newOptions([]Option{WithLeaseTTL(ttl)})
	s := open(dial(t, clientv3.Config{Endpoints: []string{srv.Addr()}}), o).tier
	defer s.Close()
	lock, err := s.Claim(lockPath(t), second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Acquire(ctx, nil); err == nil || ctx.Err() != nil {
		t.Errorf("acquired without permission: %v", err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

func TestMirrorTellsNothingOfAPlaceThatIsYounger(t *testing.T) {
	t.Parallel()
	p := start(t)
	ref := queue.Ref{Path: lockPath(t), ID: "x", Token: 10}
	m := &mirror{store: p.store, prefix: prefixOf(ref), revision: 9}
	m.tellLocked(ref, 0)
	if n := p.records.count("", queue.Unknown); n != 0 {
		t.Error("told that it is gone")
	}
	m.revision = 10
	m.tellLocked(ref, 0)
	if n := p.records.count("", queue.Unknown); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// A look, or an event, may come behind the answer to a write that it does not know of.
func TestMirrorKeepsWhatWasWrittenSince(t *testing.T) {
	t.Parallel()
	ref := queue.Ref{Path: "/x", ID: "a", Token: 1}
	key := func(modified int64, value string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("/x/a"), Value: []byte(value), CreateRevision: 1, ModRevision: modified}
	}
	before, written := key(2, `{"v":1,"revoke":true}`), key(3, `{"v":1,"revoke":true,"shared":true}`)
	for what, late := range map[string]func(*mirror){
		"look":  func(m *mirror) { m.replace(2, []place{placeOf(before)}, 0) },
		"event": func(m *mirror) { m.apply([]*clientv3.Event{{Kv: before}}) },
	} {
		m := &mirror{prefix: "/x/", revision: 1, places: []place{placeOf(key(1, `{"v":1}`))}}
		if v := m.write(ref, placeOf(written)); !v.Reads {
			t.Errorf("%s: %+v, want that it reads", what, v)
		}
		late(m)
		if p := m.placeOf(ref); !p.Shared || m.revision != 2 {
			t.Errorf("%s: %+v at %d, want what was written, at 2", what, p, m.revision)
		}
	}
}
