package explore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A writer that becomes a reader lets readers of other processes in, but no writer, whatever happens to its request.
func TestReadersAndWriters(t *testing.T) { runAll(t, readerScenarios) }

// shareBudget is how long readers wait behind a writer that has become a reader in its own process.
const shareBudget = 10 * time.Millisecond

var sharing = role{tier: []tier.Option{tier.WithHandOff(shareBudget)}}

func (p *actor) read() *turn {
	return p.startWith(p.scene.Context(), p.locks.RWMutex(lockPath).Reader(), nil)
}
func (p *actor) write() *turn {
	return p.startWith(p.scene.Context(), p.locks.RWMutex(lockPath).Writer(), nil)
}

// readsOn acquires the lock for reading within a writer's hold, and releases the writer's hold.
func (u *turn) readsOn() *turn {
	u.actor.scene.Helper()
	reader := u.actor.startWith(u.actor.scene.Context(), u.actor.locks.RWMutex(lockPath).Reader(), u).granted(0)
	u.end()
	return reader
}

// The method queued checks that an acquisition waits, and returns once its node is in the queue.
func (u *turn) queued() *turn {
	u.actor.scene.Helper()
	u.waits()
	return u
}

// A fate is a fault that happens to a request. With the request, p shares its node with the reader behind it.
type fate struct {
	at     zktest.Direction
	do     zktest.Action
	before func(s *scene, p *actor)
}

var fates = map[string]fate{
	"nothing":              {at: zktest.Request, do: zktest.Pass},
	"not applied":          {at: zktest.Request, do: zktest.Cut},
	"reply lost":           {at: zktest.Reply, do: zktest.Cut},
	"refused":              {at: zktest.Request, do: zktest.Throttled},
	"late":                 {at: zktest.Request, do: zktest.Delay(time.Second)},
	"answered late":        {at: zktest.Reply, do: zktest.Delay(time.Second)},
	"partition before":     {at: zktest.Request, do: zktest.Drop, before: partitionFor(time.Second)},
	"partition after":      {at: zktest.Reply, do: zktest.Drop, before: partitionFor(time.Second)},
	"lost with the lease":  {at: zktest.Reply, do: zktest.Drop, before: partitionFor(2 * sessionTimeout)},
	"expired before":       {at: zktest.Request, do: zktest.Drop, before: expireNow},
	"expired after":        {at: zktest.Reply, do: zktest.Drop, before: expireNow},
	"closed meanwhile":     {at: zktest.Reply, do: zktest.Delay(time.Second), before: closeNow},
	"held up by a server":  {at: zktest.Request, do: zktest.Pass, before: isolateNow(time.Second)},
	"held up for too long": {at: zktest.Request, do: zktest.Pass, before: isolateNow(2 * sessionTimeout)},
}

func partitionFor(d time.Duration) func(*scene, *actor) {
	return func(_ *scene, p *actor) {
		p.unplug()
		time.AfterFunc(d, p.plug)
	}
}

func isolateNow(d time.Duration) func(*scene, *actor) {
	return func(s *scene, p *actor) {
		m := s.srv.Member(p.servers[0])
		m.Isolate()
		time.AfterFunc(d, m.Rejoin)
	}
}

func expireNow(s *scene, p *actor) {
	for _, sess := range s.srv.Sessions() {
		if p.uses(sess.Member) {
			s.srv.Expire(sess.ID)
		}
	}
}

func closeNow(s *scene, p *actor) { s.background.Go(func() { p.locks.Close() }) }

// armShare makes the next request meet its fate that replaces p's node at path by the node of a reader.
func (f fate) armShare(s *scene, p *actor, path string) *fault.Armed {
	return p.arm(fault.Fault{Op: "multi", At: f.at, Do: f.do, Times: 1,
		About: func(frame *zktest.Frame) bool { return frame.First == "delete" && frame.Path == path },
		Before: func(*zktest.Frame) {
			if f.before != nil {
				f.before(s, p)
			}
		}})
}

// The method hit waits until a fault strikes.
func (s *scene) hit(f *fault.Armed) {
	s.Helper()
	waittest.Ended(s, "the fault strikes", f.Hit)
}

var readerScenarios = []scenario{
	// Without the guard, a writer behind a shared node does not wait for the other readers that share it.
	{"writer_behind_a_node_that_is_shared_waits_for_its_readers", each(fates, func(s *scene, f fate) {
		p, q, r := s.join(sharing), s.join(role{}), s.join(role{})
		writer := p.write().granted(0)
		reader := q.read().queued()
		next := r.write().queued()
		share := f.armShare(s, p, s.created[0])
		inside := writer.readsOn()
		reader.granted(bound)
		synctest.Wait()
		need.Equal(s, "times that the fault struck", share.Struck(), 1)
		next.waits()
		reader.end()
		if synctest.Wait(); inside.hold.Err() == nil {
			next.waits()
		}
		inside.end()
		next.granted(bound)
	})},

	// Without the guard, the process gives its node up before it knows the result of the lost request. It then deletes only one of the two
	// names.
	{"readers_leave_while_the_node_is_being_shared", each(fates, func(s *scene, f fate) {
		p, q, r := s.join(sharing), s.join(role{}), s.join(role{})
		writer := p.write().granted(0)
		reader := q.read().queued()
		next := r.write().queued()
		share := f.armShare(s, p, s.created[0])
		inside := writer.readsOn()
		s.hit(share)
		inside.end()
		reader.granted(bound).end()
		next.granted(bound)
	})},

	// Without the guard, Share does not check that the reader behind the node still exists.
	{"reader_gives_up_in_the_middle_of_a_share", each(map[string]bool{"before": true, "after": false},
		func(s *scene, before bool) {
			p, q, r := s.join(sharing), s.join(role{}), s.join(role{})
			writer := p.write().granted(0)
			reader := q.read().queued()
			next := r.write().queued()
			f := fate{at: zktest.Reply, do: zktest.Delay(time.Second), before: func(*scene, *actor) { reader.cancel() }}
			if before {
				f.at = zktest.Request
			}
			share := f.armShare(s, p, s.created[0])
			inside := writer.readsOn()
			s.hit(share)
			reader.end() // gives up, although the reader may have got the lock at this very instant
			time.Sleep(2 * time.Second)
			next.waits()
			shared := slices.ContainsFunc(s.srv.Children(lockPath), func(name string) bool { return strings.Contains(name, "__READ__") })
			need.Equal(s, fmt.Sprintf("shared, in the queue %v", s.srv.Children(lockPath)), shared, !before)
			inside.end()
			next.granted(0)
		})},

	// Without the guard, a shared grant gets a second budget.
	{"writer_behind_a_shared_node_waits_for_one_budget", play(func(s *scene) {
		const budget, section, overlap = 100 * time.Millisecond, 14 * time.Millisecond, 5 * time.Millisecond
		p := s.join(role{tier: []tier.Option{tier.WithHandOff(budget)}})
		q, r := s.join(role{}), s.join(role{})
		inside := p.write().granted(0).readsOn()
		reader := q.read().queued()
		next := r.write().queued()
		begin := time.Now()
		stream, stop := context.WithCancel(s.Context())
		defer stop()
		s.background.Go(func() { // these readers of p overlap, so that p always has one
			for stream.Err() == nil {
				u := p.startWith(stream, p.locks.RWMutex(lockPath).Reader(), nil)
				time.Sleep(overlap)
				inside.end()
				inside = u
				time.Sleep(section - 2*overlap)
			}
			inside.end()
		})
		reader.granted(budget).end()
		next.granted(bound)
		need.AtMost(s, "the writer waited for", time.Since(begin), budget+2*section)
		stop()
		next.end()
	})},

	// Without the guard, the deletion of a Curator writer counts as its end, although it may have left a reader with the same number.
	{"CURATOR-621_writer_and_reader_of_one_number", each(map[string]int{
		"ours came before": 0, "ours came between": 1, "ours came after": 2,
	}, func(s *scene, comes int) {
		const writing = lockPath + "/_c_01234567-89ab-4def-8123-456789abcdef-__WRIT__"
		const reading = lockPath + "/_c_11234567-89ab-4def-8123-456789abcdef-__READ__"
		p, q := s.join(role{}), s.join(role{})
		var waiter *turn
		var number string
		for i, step := range []func(){
			func() {
				path, err := s.admin().Create(writing, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
				s.must(err)
				number = strings.TrimPrefix(path, writing)
			},
			func() {
				_, err := s.admin().Create(reading+number, nil, 0, zk.WorldACL(zk.PermAll))
				s.must(err)
			},
			func() { s.must(s.admin().Delete(writing+number, -1)) },
		} {
			step()
			if i == comes {
				waiter = p.write().queued()
			}
			if waiter != nil {
				waiter.waits()
			}
		}
		beside := q.startWith(s.in(time.Second), q.locks.RWMutex(lockPath).Reader(), nil).queued() // in the queue behind our writer
		s.must(s.admin().Delete(reading+number, -1))
		waiter.granted(0).end()
		beside.granted(0)
	})},
}
