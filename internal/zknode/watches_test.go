package zknode_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A permanent path is never deleted, and a lock may be held for days. A watch that a waiter has set must therefore be removed when it is no
// longer needed.
func TestWatchesEndSoonAfterTheirNeed(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(t *testing.T, p, q process, path string)
		want  int // number of watches for each path
	}{
		"a waiter leaves a lock that stays held, whose holder watches its own node": {func(t *testing.T, p, q process, path string) {
			p.acquireAt(t, path)
			ctx, leave := context.WithCancel(t.Context())
			waiting := submit(func() (*zknode.Node, error) { return lockAt(t, q.Client, path).Acquire(ctx) })
			leave()
			waiting.failed(t)
		}, 1},
		"permits are free again": {func(t *testing.T, p, q process, path string) {
			sem := func(p process) second.Semaphore {
				return need.Get(zknode.Tier(p.Client).Semaphore(path, 1, second.Options{}))(t)
			}
			all, mine := &second.Demand{Take: func(free int) int { return free }}, sem(p)
			held := need.Get(mine.Acquire(t.Context(), all))(t)
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			defer leave()
			wantErr(t, "Acquire", need.ErrOf(sem(q).Acquire(ctx, all)), context.DeadlineExceeded)
			need.OK(t, mine.Release(held))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				const paths = 20
				p, q, conn := start(t, s), start(t, s), raw(t, s)
				put(t, conn, 0, "/locks")
				for i := range paths {
					path := fmt.Sprintf("/locks/x%d", i)
					put(t, conn, 0, path)
					c.leave(t, p, q, path)
				}
				time.Sleep(2 * timeout)
				need.Equal(t, "watches", s.Watches(), paths*c.want)
			})
		})
	}
}
