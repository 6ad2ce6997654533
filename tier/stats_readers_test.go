package tier_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// The time of several that read counts once.
func TestHoldTimeOfReaders(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		var holds []*tier.Hold
		for range 3 {
			holds = append(holds, acquire(t, mu.Reader()))
		}
		for i, hold := range holds {
			time.Sleep(time.Second)
			release(t, hold)
			want := time.Duration(i+1) * time.Second
			if got := tier.RegistryOf(mu).Stats().HoldTime; got < want || got > want+100*time.Millisecond {
				t.Errorf("after %d releases: %v held in all, want %v", i+1, got, want)
			}
		}
	})
}
