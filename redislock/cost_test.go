package redislock

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

var calls = regexp.MustCompile(`:calls=(\d+),`)

// callsIn returns how many commands a server executes during f, including those of its scripts.
func callsIn(t *testing.T, s *redisserver.Server, f func()) (n int) {
	t.Helper()
	asks(t, s, "CONFIG RESETSTAT")
	f()
	for _, m := range calls.FindAllStringSubmatch(need.Get(redisserver.Ask(s.Addr(), "INFO", "commandstats"))(t)[0], -1) {
		k, _ := strconv.Atoi(m[1])
		n += k
	}
	return n
}

// The number of commands in a heartbeat does not depend on how many other contenders are in the queue. It is compared with heartbeats for
// as many contenders in different queues.
func TestHeartbeatCostsNoMoreAmongManyInOneQueue(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{NoSync: true})
	p := startAt(t, []string{s.Addr()}, tier.WithLeaseTTL(long))
	const many = 300
	enter := func(weight int, of func(i int) queue.Ref) (all []queue.Ref) {
		t.Helper()
		for i := range many {
			c := of(i)
			c.ID = p.Name("")
			p.stands(t, queue.Enter, c, weight)
			all = append(all, c)
		}
		return all
	}
	round := func(all []queue.Ref) int {
		return callsIn(t, s, func() { p.does(t, queue.Command{Op: queue.Beat, Among: all}) })
	}
	locks := round(enter(0, func(i int) queue.Ref { return queue.Ref{Path: fmt.Sprint("lock", i)} }))
	at := func(path string, permits int, reads bool) func(int) queue.Ref {
		return func(int) queue.Ref { return queue.Ref{Path: path, Permits: permits, Reads: reads} }
	}
	p.stands(t, queue.Enter, p.anew("read"), 0)
	for name, all := range map[string][]queue.Ref{
		"portions":                enter(1, at("some", many, false)),
		"waiters behind portions": enter(1, at("some", many, false)),
		"waiting readers":         enter(0, at("read", 0, true)),
		"waiting writers":         enter(0, at("write", 0, false))[1:],
	} {
		need.AtMost(t, "commands for "+name+", of as many locks "+strconv.Itoa(locks), round(all), locks*3/2)
	}
}

// For a reader, the script reads only a limited number of contenders ahead of it, and takes those farther ahead for writers. If it has read
// a writer, the view names that writer.
func TestReaderSeesTheNearestAhead(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	enter := func(reads bool) (queue.Ref, queue.View) {
		t.Helper()
		c := p.anew(lockPath(t))
		c.Reads = reads
		return c, p.stands(t, queue.Enter, c, 0)
	}
	const sight = 100
	holder, _ := enter(false)
	all := []queue.Ref{holder}
	for i := range sight + 20 {
		c, v := enter(true)
		need.Equal(t, "ahead of a reader", v.Ahead, max(1, i+1-sight))
		need.Equal(t, "the nearest that writes", v.Nearest.ID, holder.ID)
		all = append(all, c)
	}
	writer, v := enter(false)
	need.Equal(t, "ahead of a writer", v.Ahead, sight+21)
	reader, v := enter(true)
	need.Equal(t, "ahead of a reader behind it", v.Ahead, 22+1)
	need.Equal(t, "the nearest that writes", v.Nearest.ID, writer.ID)
	p.leaves(t, all...)
	p.leaves(t, writer, reader)
}

// The script stores the sum of the permits that all contenders have or want. If an operator removes a contender, the script corrects that
// sum.
func TestSumOfPermitsIsTrueAgainAfterARemoval(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(long))
	a, b, c := p.taker(t, 5), p.taker(t, 5), p.taker(t, 5)
	p.stands(t, queue.Enter, a, 3)
	p.stands(t, queue.Enter, b, 1)
	need.OK(t, outside(t).ZRem(soon(t), keysOf(at(a))[1], a.ID).Err())
	need.Equal(t, "free beside one permit", p.stands(t, queue.Enter, c, 5).Free, 4)
	p.stands(t, queue.Weigh, c, 4)
	need.That(t, "the permits of a removed contender are not free", p.stands(t, queue.Look, c, 0).Has)
	p.leaves(t, b, c)
}
