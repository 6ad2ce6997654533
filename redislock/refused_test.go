package redislock

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/waittest"
)

// A server that has no free memory still serves renewals, because these need no more memory. Only Refusal shows the problem.
func TestServerWithoutMemoryIsToldOf(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{})
	locks := registry(t, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	waittest.RefusalTold(t, locks, func() (heal func()) {
		asks(t, s, "CONFIG SET maxmemory 1")
		return func() { asks(t, s, "CONFIG SET maxmemory 0") }
	}, "OOM")
}
