package tier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// A grant that lingered once, was shared since and lingers again is let go in time, and for others.
func TestSharedGrantThatLingersIsLetGo(t *testing.T) { // I10
	for name, wanted := range map[string]bool{"at the limit": false, "when a writer comes": true} {
		t.Run(name, func(t *testing.T) {
			rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
				a, b := process(tier.WithLinger(time.Minute)), process()
				release(t, acquire(t, a.Writer()))
				read := acquire(t, a.Reader()) // under the node that lingered
				other := start(soon(t), b.Reader()).granted(t)
				synctest.Wait() // a knows
				release(t, other)
				release(t, read)
				if nodes := s.Queue("/locks/a"); len(nodes) != 1 {
					t.Errorf("nodes %v after the releases, want one that lingers", nodes)
				}
				if wanted {
					release(t, start(soon(t), b.Writer()).granted(t))
					return
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
					t.Errorf("nodes %v after twice the limit, want none", nodes)
				}
			})
		})
	}
}
