package tier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A grant that lingered before and was shared since does not linger again: whoever watched it while it
// did has left, when it was contested.
func TestSharedGrantDoesNotLinger(t *testing.T) { // I10
	rwMetered(t, func(t *testing.T, s *zktest.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithLinger(time.Minute)), process()
		release(t, acquire(t, a.Writer()))
		read := acquire(t, a.Reader()) // under the node that lingered
		other := start(soon(t), b.Reader()).granted(t)
		synctest.Wait() // a knows
		release(t, other)
		release(t, read)
		if nodes := s.Children("/locks/a"); len(nodes) != 0 {
			t.Errorf("nodes %v after the releases, want none", nodes)
		}
	})
}
