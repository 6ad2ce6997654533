package etcdlock

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// sharing begins a Share.
func sharing(t *testing.T, ctx context.Context, c *queue.Contender) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	done := make(chan struct{})
	go func() { defer close(done); result <- c.Share(ctx) }()
	t.Cleanup(func() { <-done })
	return result
}

func notYet(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

// startPatient starts a process that does not look again for long: it goes by what it is told.
func startPatient(t *testing.T) *process {
	t.Helper()
	return start(t, WithLeaseTTL(time.Minute))
}

// atOnce is sooner than anything that a patient process does by the clock.
const atOnce = 5 * time.Second

// mustSoon returns what a call comes to, which is to be told and not found out.
func mustSoon(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(atOnce):
		t.Fatal("not at once")
		return nil
	}
}

// stored returns what etcd has of a key.
func stored(t *testing.T, key string) (*mvccpb.KeyValue, owner) {
	t.Helper()
	answer, err := outside(t).Get(soon(t), key)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, answer, err)
	}
	var o owner
	if err := json.Unmarshal(answer.Kvs[0].Value, &o); err != nil {
		t.Fatal(err)
	}
	return answer.Kvs[0], o
}

func TestShareLetsTheReadersBehindInAtThePlace(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.in(t, lockPath(t), second.Writing))
	before, _ := stored(t, keyOf(c.Ref()))
	reader := queueAt(t, startPatient(t).in(t, lockPath(t), second.Reading))
	next := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	writer := queueAt(t, start(t).in(t, lockPath(t), second.Writing))
	late := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	contested := c.Contested()
	ended(t, "contested", contested.C(), ttl/3)
	revision, token := writes(t), c.Token()
	if err := c.Share(soon(t)); err != nil {
		t.Fatal(err)
	}
	if n := writes(t) - revision; n != 1 {
		t.Errorf("%d writes", n)
	}
	after, o := stored(t, keyOf(c.Ref()))
	if after.CreateRevision != token || c.Token() != token || after.Lease != before.Lease || !o.Shared || o.Host == "" {
		t.Errorf("key %v of %+v, want the place, the lease and the description kept", after, o)
	}
	if !c.Shared() || c.Contested() == contested {
		t.Errorf("shared %v, with the old signal: %v", c.Shared(), c.Contested() == contested)
	}
	began := time.Now()
	r := reader.must(t)
	if d := time.Since(began); d > atOnce {
		t.Errorf("the reader came in after %v", d)
	}
	n := next.must(t)
	writer.pending(t)
	late.pending(t)
	ended(t, "contested by the writer", c.Contested().C(), ttl/3)
	if queue, err := p.at(t, lockPath(t)).Contenders(soon(t)); err != nil || len(queue) != 5 || !queue[0].Shared {
		t.Errorf("contenders %+v, %v", queue, err)
	}
	mustRelease(t, r)
	mustRelease(t, n)
	writer.pending(t)
	if err := c.Share(soon(t)); err != nil {
		t.Errorf("shared again: %v", err)
	}
	mustRelease(t, c)
	mustRelease(t, writer.must(t))
	mustRelease(t, late.must(t))
	wantErr(t, c.Share(soon(t)), second.ErrReleased)
}

func TestReadersComeInBesideASharedWriter(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).in(t, lockPath(t), second.Exclusive))
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	if err := c.Share(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, reader.must(t))
	p := start(t)
	l := p.in(t, lockPath(t), second.Reading)
	requests := p.calls.count("")
	r := mustAcquire(t, l)
	if n := p.calls.count("") - requests; n != 1 {
		t.Errorf("acquired with %d requests, want one", n)
	}
	g, err := l.TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := p.calls.count("") - requests; n != 3 {
		t.Errorf("tried with %d requests, want two", n-1)
	}
	for _, mode := range []second.Mode{second.Exclusive, second.Writing} {
		_, err := p.in(t, lockPath(t), mode).TryAcquire(soon(t))
		wantErr(t, err, second.ErrLocked)
	}
	writer := queueAt(t, start(t).in(t, lockPath(t), second.Writing))
	writer.pending(t)
	_, err = l.TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	behind := queueAt(t, l)
	behind.pending(t)
	mustRelease(t, g)
	mustRelease(t, r)
	behind.pending(t)
	mustRelease(t, c)
	mustRelease(t, writer.must(t))
	mustRelease(t, behind.must(t))
}

func TestSharesAtTheSameTimeAreOne(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).in(t, lockPath(t), second.Writing))
	var results []<-chan error
	for range 4 {
		results = append(results, sharing(t, soon(t), c))
	}
	notYet(t, results[0])
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	for _, result := range results {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	mustRelease(t, reader.must(t))
	mustRelease(t, c)
}
