package interop_test

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// keepPath makes the lock path one that stays, which kazoo counts on.
func (e *ensemble) keepPath(t *testing.T) {
	t.Helper()
	e.remove(t, e.create(t, "first", zk.FlagEphemeral))
}

// In each of these mixes everybody excludes everybody.
func TestBridgedShareOnePath(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]string{
		{"kazoo-default", "kazoo-default", "tier-kazoo", "tier-kazoo"},
		{"kazoo", "zk", "tier", "tier-kazoo"},
		{"curator", "zk", "tier", "tier-kazoo"},
	} {
		t.Run(strings.Join(kinds, "+"), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			e.keepPath(t)
			share(t, e, 3, launch(t, e, sessionTimeout, kinds...))
		})
	}
}
