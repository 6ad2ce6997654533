package etcdlock

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A semaphore is the semaphore of the test, as one process uses it.
type semaphore struct {
	second.Semaphore
	*process
}

func (p *process) of(t *testing.T, permits int) semaphore {
	t.Helper()
	s := need.Get(p.Semaphore(lockPath(t), permits, second.Options{}))(t)
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
	need.Must(t, fmt.Sprintf("%d permits, %v; want %d", len(taken), err, k), err == nil && len(taken) == k)
	return taken
}

// try takes k permits. If refusal is not nil, it checks that this fails with the error refusal.
func (s semaphore) try(t *testing.T, k int, refusal error) []second.Permit {
	t.Helper()
	taken, err := s.TryAcquire(soon(t), k)
	wantErr(t, err, refusal)
	return taken
}

func (s semaphore) give(t *testing.T, taken ...second.Permit) {
	t.Helper()
	need.OK(t, s.Semaphore.Release(taken))
}

// waits starts an acquisition and returns when it is in the queue.
func (s semaphore) waits(t *testing.T, k int) (granted func() []second.Permit) {
	t.Helper()
	ctx, taken, before := soon(t), make(chan []second.Permit, 1), len(left(t))
	go func() {
		defer close(taken)
		got, err := s.acquire(ctx, k)
		need.WantErr(t, "Acquire", err, nil)
		taken <- got
	}()
	t.Cleanup(func() { <-taken })
	eventually(t, "a key in the queue", func() bool { return len(left(t)) > before })
	return func() []second.Permit { return <-taken }
}

func TestWhatPermitsCost(t *testing.T) {
	p, q := start(t).of(t, 5), start(t).of(t, 5)
	var a, b []second.Permit
	p.costs(t, "to acquire", 1, 1, func() { a = p.take(t, 3) })
	q.costs(t, "to acquire beside others", 1, 1, func() { b = q.take(t, 1) })
	q.costs(t, "a try in vain", 1, 0, func() { q.try(t, 2, second.ErrLocked) })
	var c []second.Permit
	q.costs(t, "a try beside others", 2, 1, func() { c = q.try(t, 1, nil) })
	q.give(t, c...)
	p.costs(t, "to give a part", 1, 1, func() { p.give(t, a[0]) })
	r := start(t).of(t, 5)
	granted := r.waits(t, 4)
	eventually(t, "a look", func() bool { return r.calls.count("Range") > 0 })
	r.costs(t, "to be given some", 0, 1, func() {
		p.costs(t, "to give all", 1, 1, func() { p.give(t, a[1:]...) })
		c = granted()
	})
	q.give(t, b...)
	r.give(t, c...)
	q.costs(t, "a try alone", 1, 1, func() { c = q.try(t, 5, nil) })
	q.store.written.Clear()
	q.costs(t, "to give one permit when the queue is not known", 2, 1, func() { q.give(t, c[0]) })
	q.costs(t, "to give another", 1, 1, func() { q.give(t, c[1]) })
	p.try(t, 2, nil)
}

func TestTryThatIsOvertakenTakesNothing(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 3), start(t).of(t, 3)
	p.take(t, 1)
	q.calls.once("Txn", 2, func(one call) error {
		p.take(t, 2)
		return one.send(one)
	})
	q.try(t, 1, second.ErrLocked)
	need.Len(t, "the keys of the holders of permits", left(t), 2)
	need.Equal(t, "tries that found the permits taken", q.count(queue.Try, queue.Locked), 1)
}

// The permits of a contender never increase, even if its requests are executed in another order than they were sent in.
func TestLateRequestTakesNothingBack(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]func(p semaphore) (rest []second.Permit){
		"weigh again": func(p semaphore) []second.Permit {
			taken := p.take(t, 3)
			_, deliver := p.calls.delay(t, "Txn")
			p.give(t, taken[0])
			p.give(t, taken[1])
			deliver()
			return taken[2:]
		},
		"weigh behind the next": func(p semaphore) []second.Permit {
			taken, done := p.take(t, 3), make(chan struct{})
			sent := make(chan struct{})
			next := p.calls.once("Txn", 2, func(one call) error { return one.send(one) })
			p.calls.once("Txn", 1, func(one call) error {
				close(sent)
				<-next
				return one.send(one)
			})
			go func() {
				defer close(done)
				p.give(t, taken[0])
			}()
			<-sent
			p.give(t, taken[1])
			<-done
			return taken[2:]
		},
		"enter": func(p semaphore) []second.Permit {
			_, deliver := p.calls.delay(t, "Txn")
			taken := p.take(t, 3) // the second request of the acquisition takes them
			p.give(t, taken[:2]...)
			deliver()
			return taken[2:]
		},
	} {
		p, q := start(t).of(t, 3), start(t).of(t, 3)
		rest := late(p)
		_, o := stored(t, left(t)[0])
		need.Equal(t, what+": permits that it has", o.Permits, 1)
		q.give(t, q.try(t, 2, nil)...)
		p.give(t, rest...)
	}
}

// A request may find another value of the key than its process knew. It then compares the numbers of permits, and never increases the
// number.
func TestWeightOnlyBecomesLess(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 5)
	taken := p.take(t, 4)
	c := taken[0].(*queue.Contender)
	weigh := func(weight int) {
		t.Helper()
		a := p.store.Do(soon(t), queue.Command{Op: queue.Weigh, Session: p.store.names.session, Ref: c.Ref(), Weight: weight})
		need.That(t, fmt.Sprintf("to weigh %d: %+v", weight, a), a.Outcome == queue.Done && a.View.Known)
	}
	for _, weight := range []int{2, 3, 2} { // the request for 3 permits comes late
		weigh(weight)
		_, o := stored(t, left(t)[0])
		need.Equal(t, "permits that it has", o.Permits, 2)
	}
	p.store.written.Clear() // forgets the value, as after a request without an answer
	weigh(3)
	_, o := stored(t, left(t)[0])
	need.Equal(t, "permits that it has", o.Permits, 2)
	p.give(t, taken...)
}

// If the value of a key does not say how many permits it stands for, the key counts as all permits.
func TestKeysOfOthersCountAsAllPermits(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	for _, value := range []string{"", "stranger", `{"v":2,"permits":1}`, `{"v":1}`, `{"v":1,"permits":9}`, `{"v":1,"permits":-9}`} {
		key := lockPath(t) + "//permits/3-stranger"
		does(t, clientv3.OpPut(key, value))
		p.try(t, 1, second.ErrLocked)
		all := need.Get(p.Contenders(soon(t)))(t)
		need.That(t, fmt.Sprintf("with %s there are %+v", value, all), len(all) == 1 && all[0].Permits == 3 && all[0].Of == 3)
		does(t, clientv3.OpDelete(key))
	}
	p.take(t, 3)
}

// The name of a key states the total number of permits. That number applies, even if another program has created the key. A key without a
// number belongs to no semaphore.
func TestAnotherNumberIsFollowed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"12-a": second.ErrLocked.Error(), "30-a": second.ErrLocked.Error(), "2-x/3-y": "<nil>",
		"a-3": "but is not an entry of the queue",
	} {
		p := start(t).of(t, 3)
		key := lockPath(t) + permitsMark + name
		does(t, clientv3.OpPut(key, ""))
		permits, err := p.TryAcquire(soon(t), 1)
		need.Has(t, name, fmt.Sprint(err), want)
		p.give(t, permits...)
		if number := refOf(key).Permits; number > 0 {
			need.Equal(t, name+": permits", p.Permits(), number)
		}
		does(t, clientv3.OpDelete(key))
	}
}

// A Resize stores the total number of permits in a key that belongs to no contender. If the value of that key is not a number, the error
// names the key.
func TestNumberThatWasSet(t *testing.T) {
	t.Parallel()
	p, q := start(t).of(t, 3), start(t).of(t, 5)
	wantErr(t, p.SetPermits(soon(t), 2), nil)
	key := numberKey(lockPath(t) + permitsMark)
	taken := q.take(t, 2)
	need.Equal(t, "permits", q.Permits(), 2)
	need.Len(t, "contenders", need.Get(q.Contenders(soon(t)))(t), 1)
	q.give(t, taken...)
	does(t, clientv3.OpPut(key, "many"))
	_, err := p.TryAcquire(soon(t), 1)
	need.WantMention(t, err, key, "but is not an entry of the queue")
	does(t, clientv3.OpDelete(key))
	other := start(t).of(t, 5)
	other.give(t, other.take(t, 5)...)
}

func TestAPartIsNotGivenUpByAKeyThatSomebodyElseHasWritten(t *testing.T) {
	t.Parallel()
	p := start(t).of(t, 3)
	taken := p.take(t, 3)
	does(t, clientv3.OpPut(left(t)[0], "mine", clientv3.WithIgnoreLease()))
	need.WantMention(t, p.Semaphore.Release(taken[:1]), "another program has written to")
	p.give(t, taken[1:]...)
}

func TestLockAndSemaphoreOfAPathAreTwoQueues(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	taken, held := p.of(t, 3).take(t, 3), acquire(t, q.mutex(t))
	locked(t, p.mutex(t))
	owners, err := p.mutex(t).Contenders(soon(t))
	takers, refusal := q.of(t, 3).Contenders(soon(t))
	need.That(t, fmt.Sprintf("%+v, %v, have the lock, and %+v, %v, permits", owners, err, takers, refusal),
		err == nil && refusal == nil && len(owners) == 1 && len(takers) == 1 && owners[0].Of == 0 && takers[0].Permits == 3)
	waits := q.of(t, 3).waits(t, 1)
	release(t, held)
	p.of(t, 3).give(t, taken...)
	waits()
	release(t, acquire(t, p.mutex(t)))
}
