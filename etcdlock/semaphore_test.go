package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A semaphore is that of the test, as a process sees it.
type semaphore struct {
	second.Semaphore
	*process
}

func (p *process) of(t *testing.T, permits int) semaphore {
	t.Helper()
	s, err := p.Semaphore(lockPath(t), permits, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return semaphore{s, p}
}

func (s semaphore) acquire(ctx context.Context, k int) ([]second.Permit, error) {
	return s.Semaphore.Acquire(ctx, &second.Demand{Want: func() int { return k }, Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}})
}

func (s semaphore) take(t *testing.T, k int) []second.Permit {
	t.Helper()
	taken, err := s.acquire(soon(t), k)
	if err != nil || len(taken) != k {
		t.Fatalf("%d permits, %v; want %d", len(taken), err, k)
	}
	return taken
}

// try takes k permits, unless that is to be refused.
func (s semaphore) try(t *testing.T, k int, refusal error) []second.Permit {
	t.Helper()
	taken, err := s.TryAcquire(soon(t), k)
	wantErr(t, err, refusal)
	return taken
}

func (s semaphore) give(t *testing.T, taken ...second.Permit) {
	t.Helper()
	if err := s.Semaphore.Release(taken); err != nil {
		t.Fatal(err)
	}
}

// costs checks how many transactions f takes. What looks at the queue is none.
func (s semaphore) costs(t *testing.T, what string, want int, f func()) {
	t.Helper()
	transactions := func() int { return s.calls.count("Txn") + s.calls.count("DeleteRange") }
	before := transactions()
	f()
	if n := transactions() - before; n != want {
		t.Errorf("%s: %d transactions, want %d", what, n, want)
	}
}

// waits begins an acquisition and returns when it queues.
func (s semaphore) waits(t *testing.T, k int) (granted func() []second.Permit) {
	t.Helper()
	ctx, taken, before := soon(t), make(chan []second.Permit, 1), len(left(t, lockPath(t)))
	go func() {
		defer close(taken)
		got, err := s.acquire(ctx, k)
		if err != nil {
			t.Error(err)
		}
		taken <- got
	}()
	t.Cleanup(func() { <-taken })
	eventually(t, "a key in the queue", func() bool { return len(left(t, lockPath(t))) > before })
	return func() []second.Permit { return <-taken }
}

func TestPermitsAreOneTransactionEachWay(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 5), start(t).of(t, 5)
	var a, b []second.Permit
	p.costs(t, "to acquire", 1, func() { a = p.take(t, 3) })
	q.costs(t, "to acquire beside others", 1, func() { b = q.take(t, 1) })
	q.costs(t, "a try in vain", 1, func() { q.try(t, 2, second.ErrLocked) })
	var c []second.Permit
	q.costs(t, "a try beside others", 2, func() { c = q.try(t, 1, nil) })
	q.give(t, c...)
	p.costs(t, "to give a part", 1, func() { p.give(t, a[0]) })
	r := start(t).of(t, 5)
	granted := r.waits(t, 4)
	r.costs(t, "to be given some", 0, func() {
		p.costs(t, "to give all", 1, func() { p.give(t, a[1:]...) })
		c = granted()
	})
	q.give(t, b...)
	r.give(t, c...)
	q.costs(t, "a try alone", 1, func() { q.try(t, 5, nil) })
}

func TestAPartIsGivenUpByOneWhoDoesNotKnowItsPlace(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	taken := p.take(t, 3)
	p.store.wishes.Clear()
	p.costs(t, "to give a part", 2, func() { p.give(t, taken[0]) })
	p.costs(t, "to give another", 1, func() { p.give(t, taken[1]) })
	start(t).of(t, 3).try(t, 2, nil)
}

func TestTryThatIsOvertakenTakesNothing(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 3), start(t).of(t, 3)
	p.take(t, 1)
	q.calls.once("Txn", 2, func(ctx context.Context, send func(context.Context) error) error {
		p.take(t, 2)
		return send(ctx)
	})
	q.try(t, 1, second.ErrLocked)
	if keys := left(t, lockPath(t)); len(keys) != 2 {
		t.Errorf("keys %v, want those of two who have permits", keys)
	}
}

// What one has only becomes less, in whatever order that is executed.
func TestLateWeighTakesNothingBack(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]func(p semaphore, taken []second.Permit){
		"again": func(p semaphore, taken []second.Permit) {
			_, deliver := p.calls.delay(t, "Txn", 1)
			p.give(t, taken[0])
			p.give(t, taken[1])
			deliver()
		},
		"behind the next": func(p semaphore, taken []second.Permit) {
			under, free, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
				close(under)
				<-free
				return send(ctx)
			})
			go func() {
				defer close(done)
				p.give(t, taken[0])
			}()
			<-under
			p.give(t, taken[1])
			close(free)
			<-done
		},
	} {
		p, q := start(t).of(t, 3), start(t).of(t, 3)
		taken := p.take(t, 3)
		late(p, taken)
		got, err := q.TryAcquire(soon(t), 2)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		p.give(t, taken[2])
		q.give(t, got...)
	}
}

func TestLateRequestTakesNothingBack(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 3), start(t).of(t, 3)
	_, deliver := p.calls.delay(t, "Txn", 1)
	taken := p.take(t, 3) // by the second one
	p.give(t, taken[0])
	deliver()
	q.try(t, 1, nil)
	if _, o := stored(t, left(t, lockPath(t))[0]); o.Permits != 2 {
		t.Errorf("a late request for 3 permits leaves %d, want the 2 that are not given up", o.Permits)
	}
}

func TestRequestForPermitsThatIsExecutedLateLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	late, deliver := p.calls.delay(t, "Txn", 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-late
		cancel()
	}()
	_, err := p.acquire(ctx, 3)
	wantErr(t, err, context.Canceled)
	eventually(t, "an idle reaper", func() bool { return p.records.count(queue.Leave, queue.Done) > 0 })
	deliver()
	start(t).of(t, 3).take(t, 3) // long before the lease of p ends
	if p.records.count(queue.Open, queue.Done) > 1 {
		t.Error("the session ended")
	}
}

// What does not say how many permits it wants may want all.
func TestKeysOfOthersCountAsAllPermits(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	for _, value := range []string{"", "stranger", `{"v":2,"permits":1}`, `{"v":1}`, `{"v":1,"permits":9}`, `{"v":1,"permits":-9}`} {
		key := lockPath(t) + "//permits/3-stranger"
		if _, err := outside(t).Put(soon(t), key, value); err != nil {
			t.Fatal(err)
		}
		p.try(t, 1, second.ErrLocked)
		if all, err := p.Contenders(soon(t)); err != nil || len(all) != 1 || all[0].Permits != 3 || all[0].Of != 3 {
			t.Errorf("with %s there are %+v, %v", value, all, err)
		}
		removeKey(t, key)
	}
	p.take(t, 3)
}

func TestAnotherNumberIsNamed(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	for _, name := range []string{"12-a", "a-3", "30-a", "2-x/3-y"} {
		key := lockPath(t) + "//permits/" + name
		if _, err := outside(t).Put(soon(t), key, ""); err != nil {
			t.Fatal(err)
		}
		number := refOf(key).Permits
		for _, take := range []func(context.Context, int) ([]second.Permit, error){p.acquire, p.TryAcquire} {
			_, err := take(soon(t), 1)
			wantErr(t, err, second.ErrPermits)
			if want := fmt.Sprintf("%s is one for some of %d, not of 3", key, number); !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		removeKey(t, key)
	}
	p.take(t, 1)
}

func TestAPartIsNotGivenUpByAKeyThatSomebodyElseHasWritten(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	taken := p.take(t, 3)
	if _, err := outside(t).Put(soon(t), left(t, lockPath(t))[0], "mine", clientv3.WithIgnoreLease()); err != nil {
		t.Fatal(err)
	}
	if err := p.Semaphore.Release(taken[:1]); err == nil || !strings.Contains(err.Error(), "somebody else has written to") {
		t.Errorf("released: %v", err)
	}
	p.give(t, taken[1:]...)
}

func TestLockAndSemaphoreOfAPathAreTwoQueues(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	taken := p.of(t, 3).take(t, 3)
	held := mustAcquire(t, q.at(t, lockPath(t)))
	_, err := p.at(t, lockPath(t)).TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	locked, err := p.at(t, lockPath(t)).Contenders(soon(t))
	limited, refusal := q.of(t, 3).Contenders(soon(t))
	if err != nil || refusal != nil || len(locked) != 1 || len(limited) != 1 || locked[0].Of != 0 || limited[0].Permits != 3 {
		t.Errorf("%+v, %v, have the lock, and %+v, %v, permits", locked, err, limited, refusal)
	}
	waits := q.of(t, 3).waits(t, 1)
	mustRelease(t, held)
	p.of(t, 3).give(t, taken...)
	waits()
	held = mustAcquire(t, p.at(t, lockPath(t)))
	mustRelease(t, held)
}

func TestViewsOfThoseWhoWantPermits(t *testing.T) {
	t.Parallel()
	var places []place
	var refs []queue.Ref
	for i, weight := range []int{2, 2, 3, 1} {
		ref := queue.Ref{Path: "/x", ID: string(rune('a' + i)), Token: int64(i + 1), Permits: 5}
		p := place{key: keyOf(ref)}
		p.Token, p.Permits, p.Of = ref.Token, weight, 5
		places, refs = append(places, p), append(refs, ref)
	}
	nearest := places[2].Contender
	nearest.Permits = 0
	for i, want := range []queue.View{
		{Has: true, Behind: true, Waiting: 2, Free: 5},
		{Has: true, Behind: true, Waiting: 2, Free: 3},
		{Behind: true, Waiting: 1, Free: 1},
		{Ahead: 1, Nearest: nearest, Waiting: 1, Free: -2},
	} {
		want.ID, want.Known, want.Token, want.At = refs[i].ID, true, refs[i].Token, 7
		if v := viewOf(refs[i], 7, places); v != want {
			t.Errorf("%d: %+v, want %+v", i, v, want)
		}
	}
}
