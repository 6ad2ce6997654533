//go:build !race

package zknode_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// leaseless are the promises that take a connection of one's own, by why.
var leaseless = map[string]string{
	"no lease covers what is held":                                   "loss-cut loss-readers loss-frozen hold-lost permits-cut permits-frozen",
	"permits are handed on only under a lease":                       "permits-hand-off",
	"the session of the connection keeps what is held until it ends": "share-ends left-close close permits-bounds permits-close",
	"only who has made the connection is told what becomes of it":    "connection",
}

// Over a connection made elsewhere nothing else is different. The race detector would stop at the client library, which reads its newest
// zxid while it is set when such a connection with watches comes back.
func TestTierOverAConnectionMadeElsewhere(t *testing.T) {
	unpromised := maps.Clone(curators)
	for why, names := range leaseless {
		for name := range strings.FieldsSeq(names) {
			unpromised[name] = why
		}
	}
	tiertest.Run(t, inBubble(true, unpromised))
}
