package redislock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

// A server may lose its newest data in several ways, which the documentation of the package lists. Some of them restart the server or make
// it a primary again; it then grants nothing for the time of a lease. After a flush, a holder learns of its loss only with the next
// heartbeat, and other processes may get the lock before that.
func TestWaysToLoseTheNewestData(t *testing.T) {
	t.Parallel()
	restart := func(t *testing.T, s *redisserver.Server, whileDown func()) {
		s.Kill()
		whileDown()
		need.OK(t, s.Restart(soon(t)))
	}
	type way struct {
		lose    func(t *testing.T, s *redisserver.Server, files, older string)
		noticed bool
	}
	need.Each(t, map[string]way{
		"a restart with the data": {func(t *testing.T, s *redisserver.Server, _, _ string) { restart(t, s, func() {}) }, true},
		"a restart without the data": {func(t *testing.T, s *redisserver.Server, files, _ string) {
			restart(t, s, func() { need.OK(t, os.RemoveAll(files)) })
		}, true},
		"a restart from older files": {func(t *testing.T, s *redisserver.Server, files, older string) {
			restart(t, s, func() {
				need.OK(t, os.RemoveAll(files))
				need.OK(t, os.CopyFS(files, os.DirFS(older)))
			})
		}, true},
		"the data of another server": {func(t *testing.T, s *redisserver.Server, _, _ string) {
			other := childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true})
			asks(t, s, "REPLICAOF "+strings.Replace(other.Addr(), ":", " ", 1))
			eventually(t, "it follows the other one", func() bool {
				info, err := redisserver.Ask(s.Addr(), "INFO", "replication")
				return err == nil && strings.Contains(info[0], "master_link_status:up")
			})
			asks(t, s, "REPLICAOF NO ONE")
		}, true},
		"a flush": {func(t *testing.T, s *redisserver.Server, _, _ string) { asks(t, s, "FLUSHALL") }, false},
	}, func(t *testing.T, c way) {
		t.Parallel()
		s := ownServer(t, redisserver.Config{NoSync: true})
		files := filepath.Join(need.Get(redisserver.Ask(s.Addr(), "CONFIG", "GET", "dir"))(t)[1], "appendonlydir")
		older := filepath.Join(t.TempDir(), "older")
		need.OK(t, os.CopyFS(older, os.DirFS(files)))
		p := startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long))
		held := mustAcquire(t, p.at(t, "x"))
		c.lose(t, s, files, older)

		q := p // this process knows the primary, and has not learned of the flush
		if c.noticed {
			q = startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long))
		}
		v := q.stands(t, queue.Enter, q.anew("x"), 0)
		need.That(t, fmt.Sprintf("the next one: %+v", v), v.Has == !c.noticed && v.InGracePeriod == c.noticed)
		if !c.noticed {
			p.tier.Renew()
			ended(t, "the holder hears of it", held.Context().Done())
			wantErr(t, held.Err(), second.ErrLost)
		}
	})
}
