//go:build !race

package zknode_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// leaseless lists the promises that only a connection made by this package can keep: the reason, and the names of the tests.
var leaseless = map[string]string{
	"no lease covers holds":                                          "loss-cut loss-readers loss-frozen hold-lost permits-cut permits-frozen",
	"permits are handed on only under a lease":                       "permits-hand-off",
	"the session of the connection keeps locks until it ends":        "share-ends left-close close permits-bounds permits-close",
	"only the program that made the connection learns of its events": "connection",
}

// Over a connection that the program has made, all other promises hold. This test does not run with the race detector: if such a connection
// has watches and reconnects, the client library reads its newest zxid without synchronization.
func TestTierOverAConnectionMadeElsewhere(t *testing.T) {
	unpromised := maps.Clone(curators)
	for why, names := range leaseless {
		for name := range strings.FieldsSeq(names) {
			unpromised[name] = why
		}
	}
	tiertest.Run(t, inBubble(true, unpromised))
}
