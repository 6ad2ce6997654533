package etcdlock

import (
	"errors"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
)

func TestSemaphoreIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := start(t).Semaphore("/a", 3, second.Options{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
