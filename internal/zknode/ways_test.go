package zknode_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
)

// A node that was created twice was deleted in between, together with its path. The first node is gone. The second one counts, because it
// must not be left behind.
func TestOfANodeThatIsMadeTwiceTheSecondCounts(t *testing.T) {
	made := func(name string) link.Answer { return link.Answer{Created: []string{name}} }
	lost := link.Answer{Err: zk.ErrConnectionClosed}
	for want, answers := range map[string][]link.Answer{
		"first":  {made("first"), {Err: zk.ErrNodeExists}},
		"second": {made("first"), made("second")},
		"third":  {{Err: zk.ErrNoNode}, made("second"), made("third")},
		"sole":   {made("sole"), lost},
	} {
		need.List(t, "the node that counts", zknode.Taken(answers...).Created, want)
	}
}
