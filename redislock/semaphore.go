package redislock

import (
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
)

// Semaphore is refused.
func (s *store) Semaphore(path string, _ int, _ second.Options) (second.Semaphore, error) {
	return nil, fmt.Errorf("redislock: semaphore %s: Redis has none here; ZooKeeper has: %w", path, errors.ErrUnsupported)
}
