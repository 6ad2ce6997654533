package zklock_test

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Several acquisitions of one client share the watches. One of its frames meets a fault.
func TestThoseOfOneClientHearOfEachOtherWhereverTheConnectionFails(t *testing.T) {
	everyMishap(t, "", share)
}

func share(t *testing.T, s *zktest.Server, m mishap, opts ...zklock.Option) (happened bool) {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-")
	foreign := path + "/" + s.Children(path)[0]
	over := m.befall(s, p)
	var waiters []*request
	for range 4 {
		r := &request{done: make(chan struct{})}
		waiters = append(waiters, r)
		go func() {
			defer close(r.done)
			r.node, r.err = p.lock.Acquire(t.Context())
		}()
	}
	happened = over()
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
	return happened
}
