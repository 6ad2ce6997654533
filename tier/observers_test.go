package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// Metrics and traces observe the same locks.
func TestAllObserversAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		first, second := new(diary), new(diary)
		o := second.observer()
		o.WaitingAfter = 100 * time.Millisecond
		locks := observed(t, s, first.observer(), tier.WithObserver(tier.Observer{}), tier.WithObserver(o))
		mu := locks.Mutex("/locks/a")
		synctest.Wait() // the connection is told by a goroutine of its own
		hold, err := mu.Acquire(caller(t, "A"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(caller(t, "B"), time.Second/2)
		defer cancel()
		<-start(ctx, mu).done
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		synctest.Wait()
		hold.Release()
		want := []string{"connected", "A acquired found after 0s", "B waits 100ms ahead 0 here true", "B failed after 500ms"}
		for _, d := range []*diary{first, second} {
			synctest.Wait()
			d.mu.Lock()
			if len(d.lines) < len(want)+2 {
				t.Fatalf("told: %q", d.lines)
			}
			d.lines, d.ats = d.lines[:len(want)], nil
			d.mu.Unlock()
			d.want(t, want...)
		}
	})
}
