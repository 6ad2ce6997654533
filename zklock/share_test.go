package zklock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Several acquisitions of one client share the watches. One of its frames meets a fault.
func TestThoseOfOneClientHearOfEachOtherWhereverTheConnectionFails(t *testing.T) {
	faults := map[string]zktest.Action{"cut": zktest.Cut, "throttled": zktest.Error(throttled)}
	for name, fault := range faults {
		for kind, opts := range map[string][]zklock.Option{"plain": nil, "bridged": {zklock.WithKazoo()}} {
			for at, more := 1, true; more; at++ {
				t.Run(fmt.Sprintf("%s %s %d", kind, name, at), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = share(t, s, at, fault, opts...) })
				})
			}
		}
	}
}

func share(t *testing.T, s *zktest.Server, at int, fault zktest.Action, opts ...zklock.Option) bool {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-")
	foreign := path + "/" + s.Children(path)[0]
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session != p.session || f.Op == zktest.OpPing || f.Op == zktest.OpConnect {
			return zktest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if frames++; frames == at && (fault != zktest.Error(throttled) || f.Stage == zktest.Request) {
			return fault
		}
		return zktest.Pass
	})
	var waiters []*request
	for range 4 {
		r := &request{done: make(chan struct{})}
		waiters = append(waiters, r)
		go func() {
			defer close(r.done)
			r.node, r.err = p.lock.Acquire(t.Context())
		}()
	}
	time.Sleep(timeout / 10)
	mu.Lock()
	struck := frames >= at
	frames = at // none from now on
	mu.Unlock()
	time.Sleep(timeout/2 - timeout/10 - 100*time.Millisecond) // no heartbeat and no look at the queue is near
	if err := others.Delete(foreign, -1); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		synctest.Wait()
		var granted []*zklock.Node
		for i, r := range waiters {
			select {
			case <-r.done:
				if r.err != nil {
					t.Fatal(r.err)
				}
				granted = append(granted, r.node)
				waiters[i] = &request{done: make(chan struct{})}
			default:
			}
		}
		if len(granted) != 1 {
			t.Fatalf("%d granted at a time", len(granted))
		}
		granted[0].Release()
	}
	return struck
}
