package redislock

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func TestEvalChecksAllLocksOfABundle(t *testing.T) {
	t.Parallel()
	locks, other := tier.New(start(t, tier.WithLeaseTTL(long)).tier), tier.New(start(t, tier.WithLeaseTTL(long)).tier)
	waittest.Guarded{
		Write: func(g tier.Guard) error {
			_, err := Eval(soon(t), g, increment, []string{counter(t)})
			return err
		},
		Count: func() int { return need.Get(outside(t).Get(soon(t), counter(t)).Int())(t) },
		Break: func(path string) { need.OK(t, outside(t).Del(soon(t), keysOf(path)...).Err()) },
	}.ChecksAllLocks(t, locks, other)
}
