package tier_test

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A writer that gives up does not leave readers waiting as a writer for those that read.
func TestReadersDoNotQueueForAWriterThatHasGivenUp(t *testing.T) { // I6
	rwMetered(t, func(t *testing.T, s *zktest.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b, c := process(), process(), process()
		inside := acquire(t, b.Reader())
		ctx, cancel := context.WithCancel(soon(t))
		writer := start(ctx, a.Writer()).blocked(t)
		here := start(soon(t), a.Reader()).blocked(t)
		there := start(soon(t), c.Reader()).blocked(t)
		cancel()
		<-writer.done
		release(t, here.granted(t))
		release(t, there.granted(t))
		release(t, inside)
	})
}
