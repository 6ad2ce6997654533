package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/tiertest"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zktest"
)

// promisesFile is where docs/promises.md has its table from.
const promisesFile = "../docs/promises/zookeeper.md"

// inBubble has each promise tested with a server of its own, in virtual time.
func inBubble(t *testing.T, test func(*testing.T, tiertest.Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, modelHarness(t, zktest.Start(t))) })
}

func TestTier(t *testing.T) {
	tiertest.Run(t, inBubble).Record(t, "ZooKeeper", promisesFile)
}

func TestTierOnARealServer(t *testing.T) {
	e := zkservertest.StartEnsemble(t, 3, zkserver.Config{TickTime: 500 * time.Millisecond, NoSync: true})
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, serverHarness(t, e))
	}).Record(t, "ZooKeeper", promisesFile)
}
