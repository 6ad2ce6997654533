package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

func TestMain(m *testing.M) {
	if twin.Role() != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestHolderThatIsNotHeardOrStoppedKnowsFirst(t *testing.T) {
	var stdout, stderr strings.Builder
	code := run([]string{"-store", "redis", "-fault", "mute,halted", "-trials", "1"}, &stdout, &stderr)
	if code == exitUnavailable {
		childtest.Check(t, redisserver.ErrNotFound)
	}
	need.Equal(t, "the exit of one that says "+stderr.String(), code, exitPass)
	need.Has(t, "it", stdout.String(), "partition: 2 trials, 0 breaches")
}
