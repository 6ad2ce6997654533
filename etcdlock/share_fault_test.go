package etcdlock

import (
	"context"
	"log/slog"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// Whoever is behind the one that is read may not read.
func TestReaderTrustsNoHeadsThatHideOthers(t *testing.T) {
	t.Parallel()
	ref := queue.Ref{Path: lockPath(t), ID: "x", Reads: true, Token: 9}
	shared := func(created int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(lockPath(t) + "/x"), CreateRevision: created, Value: []byte(`{"v":1,"shared":true}`)}
	}
	for _, r := range []struct {
		what  string
		heads *etcdserverpb.RangeResponse
		first bool
	}{
		{"all known", &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{shared(1)}}, true},
		{"more unknown", &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{shared(1)}, More: true}, false},
		{"more behind", &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{shared(10)}, More: true}, true},
	} {
		head := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: r.heads}}
		if first := firstBy([]*etcdserverpb.ResponseOp{head}, ref); first != r.first {
			t.Errorf("%s: first %v", r.what, first)
		}
	}
}

func TestLostReplyOfAShareIsFoundOut(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	before := writes(t)
	p.calls.dropReply("Txn", 1)
	if err := c.Share(soon(t)); err != nil {
		t.Fatal(err)
	}
	if n := writes(t) - before; n != 1 {
		t.Errorf("%d writes", n)
	}
	mustRelease(t, reader.must(t))
	mustRelease(t, c)
}

func TestShareThatIsExecutedLateChangesNothingMore(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	deliver := p.replay(t, "Txn")
	if err := c.Share(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, c)
	mustRelease(t, reader.must(t))
	again := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
	if keyOf(again.Ref()) != keyOf(c.Ref()) {
		t.Fatal("the name is not used again")
	}
	deliver()
	if _, o := stored(t, keyOf(again.Ref())); o.Shared {
		t.Error("the next writer is shared by the request of the last one")
	}
	mustRelease(t, again)
}

func TestShareThatIsRefusedIsNone(t *testing.T) {
	t.Parallel()
	p, log := startLogged(t)
	c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	p.calls.once("Txn", 1, func(context.Context, func(context.Context) error) error {
		return rpctypes.ErrGRPCPermissionDenied
	})
	wantErr(t, c.Share(soon(t)), rpctypes.ErrPermissionDenied)
	if c.Shared() {
		t.Error("shared")
	}
	wantLines(t, log, slog.LevelWarn, "cannot let readers of other processes in", 1)
	if err := c.Share(soon(t)); err != nil {
		t.Error(err)
	}
	mustRelease(t, c)
	mustRelease(t, reader.must(t))
}

func TestReleaseOvertakesAShare(t *testing.T) {
	t.Parallel()
	t.Run("that waits", func(t *testing.T) {
		c := mustAcquire(t, startPatient(t).in(t, lockPath(t), second.Writing))
		result := sharing(t, soon(t), c)
		notYet(t, result)
		mustRelease(t, c)
		wantErr(t, mustSoon(t, result), second.ErrReleased)
	})
	t.Run("by a requeue", func(t *testing.T) {
		l := start(t).in(t, lockPath(t), second.Writing)
		c := mustAcquire(t, l)
		result := sharing(t, soon(t), c)
		notYet(t, result)
		g, err := l.Requeue(soon(t), c)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-result, second.ErrReleased)
		mustRelease(t, g)
	})
	t.Run("that is not answered", func(t *testing.T) {
		p := startPatient(t)
		c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
		reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
		ended(t, "contested", c.Contested().C(), ttl/3)
		p.calls.once("Txn", 1, func(ctx context.Context, _ func(context.Context) error) error {
			<-ctx.Done()
			return ctx.Err()
		})
		result := sharing(t, soon(t), c)
		notYet(t, result)
		mustRelease(t, c)
		wantErr(t, mustSoon(t, result), second.ErrReleased)
		mustRelease(t, reader.must(t))
	})
	t.Run("that is executed", func(t *testing.T) {
		p := start(t)
		c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
		reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
		p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
			if err := c.Release(); err != nil {
				t.Error(err)
			}
			return send(context.Background())
		})
		wantErr(t, c.Share(soon(t)), second.ErrReleased)
		if err := c.Context().Err(); err != nil {
			t.Errorf("a grant that is given up has a context that ends: %v", context.Cause(c.Context()))
		}
		mustRelease(t, reader.must(t))
	})
}

func TestLossEndsAShare(t *testing.T) {
	t.Parallel()
	t.Run("that waits", func(t *testing.T) {
		c := mustAcquire(t, start(t).in(t, lockPath(t), second.Writing))
		result := sharing(t, soon(t), c)
		notYet(t, result)
		removeKey(t, keyOf(c.Ref()))
		wantErr(t, <-result, second.ErrLost)
		wantErr(t, c.Release(), second.ErrLost)
	})
	t.Run("that finds no key", func(t *testing.T) {
		p := start(t)
		c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
		reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
		ended(t, "contested", c.Contested().C(), ttl/3)
		p.calls.silence() // it hears of nothing
		removeKey(t, keyOf(c.Ref()))
		wantErr(t, c.Share(soon(t)), second.ErrLost)
		wantErr(t, c.Release(), second.ErrLost)
		mustRelease(t, reader.must(t))
	})
	t.Run("by the lease", func(t *testing.T) {
		p := start(t)
		c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
		reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
		ended(t, "contested", c.Contested().C(), ttl/3)
		heal := p.wire.sever()
		wantErr(t, c.Share(soon(t)), second.ErrLost)
		heal()
		wantErr(t, c.Release(), second.ErrLost)
		mustRelease(t, reader.must(t))
	})
}

func TestQueueIsReadAnewWithWhatKeysSay(t *testing.T) { // a look in place of the event
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, start(t).in(t, lockPath(t), second.Writing))
	reader := queueAt(t, p.in(t, lockPath(t), second.Reading))
	reader.pending(t)
	p.calls.silence()
	if err := c.Share(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, reader.must(t))
	mustRelease(t, c)
}
