package zklock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zktest"
)

const limits = "/limits/x"

// semaphore returns one of two permits.
func (p process) semaphore(t *testing.T) second.Semaphore {
	t.Helper()
	s, err := p.Tier().Semaphore(limits, 2, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takers returns what takes permits, and says how many as take does.
func takers(t *testing.T, p process, take func(free int) int) (acquire func() ([]second.Permit, error), release func([]second.Permit) error) {
	t.Helper()
	s := p.semaphore(t)
	return func() ([]second.Permit, error) { return s.Acquire(t.Context(), &second.Demand{Take: take}) }, s.Release
}

// Whoever has the turn is stopped while it decides how many to take, until the lease is over.
func TestTurnWhoseLeaseRanOutTakesNothing(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var first string
		acquire, release := takers(t, p, func(int) int {
			if first == "" {
				first = s.Children(limits + "/locks")[0]
				time.Sleep(lease)
				synctest.Wait()
			}
			return 2
		})
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				if c.Kind == zktest.Created && strings.HasPrefix(c.Path, limits+"/leases/") {
					t.Errorf("%s was taken without a lease", c.Path)
				}
			}
		})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpSync { // else the lease is renewed
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		done := make(chan struct{})
		var permits []second.Permit
		go func() {
			defer close(done)
			var err error
			if permits, err = acquire(); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(lease + time.Second)
		synctest.Wait()
		if queue := s.Children(limits + "/locks"); len(queue) != 1 || queue[0] == first {
			t.Errorf("the queue is %v, want another turn in the place of %s", queue, first)
		}
		s.OnChange(nil)
		s.Intercept(nil)
		<-done
		if err := release(permits); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}
