package main

import (
	"os"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestHolderThatIsNotHeardOrStoppedKnowsFirst(t *testing.T) {
	var stdout, stderr strings.Builder
	code := run([]string{"-store", "redis", "-fault", "mute,halted", "-trials", "1"}, &stdout, &stderr)
	if code == exitUnavailable {
		redisservertest.Check(t, redisserver.ErrNotFound)
	}
	if code != exitPass || !strings.Contains(stdout.String(), "partition: 2 trials, 0 breaches") {
		t.Errorf("got exit %d\n%s%s", code, stdout.String(), stderr.String())
	}
}
