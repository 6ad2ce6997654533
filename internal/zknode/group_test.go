package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The function crowd starts a process that has used several locks before, two of them with the same path. If the process now makes several
// requests at the same time, it sends them in groups.
func crowd(t *testing.T, s *zktest.Server) (p process, locks []*zknode.Lock) {
	t.Helper()
	p = start(t, s)
	for i := range 6 {
		locks = append(locks, lockAt(t, p.Client, fmt.Sprintf("/locks/%d", i)))
	}
	locks = append(locks, lockAt(t, p.Client, "/locks/0"))
	for _, l := range locks {
		acquire(t, l).Release() // from now on, the client knows that the path exists
	}
	return p, locks
}

func inCrowd(t *testing.T, f func(t *testing.T, s *zktest.Server, p process, locks []*zknode.Lock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: 10 * time.Millisecond})
		p, locks := crowd(t, s)
		f(t, s, p, locks)
	})
}

// useAll acquires all locks at the same time, and does so twice. It checks that no path is held by two of them.
func useAll(t *testing.T, locks []*zknode.Lock, released func(error) bool) {
	t.Helper()
	var mu sync.Mutex // guards the fields below
	held, tokens := map[string]bool{}, map[string]int64{}
	var all sync.WaitGroup
	for _, l := range locks {
		all.Go(func() {
			for range 2 {
				n, err := l.Acquire(t.Context())
				if err != nil {
					t.Errorf("%s: %v", l.Path(), err)
					return
				}
				mu.Lock()
				need.That(t, l.Path()+": held by another one", n.Err() != nil || !held[l.Path()])
				need.That(t, l.Path()+": the token does not grow", n.Err() != nil || n.Token() > tokens[l.Path()])
				held[l.Path()], tokens[l.Path()] = true, n.Token()
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				held[l.Path()] = false
				mu.Unlock()
				if err := n.Release(); !released(err) {
					t.Errorf("%s: Release: %v", l.Path(), err)
				}
			}
		})
	}
	all.Wait()
}

func wantNothingLeft(t *testing.T, s *zktest.Server, p process, locks []*zknode.Lock) {
	t.Helper()
	s.Intercept(nil)
	time.Sleep(3 * timeout)
	synctest.Wait()
	for _, l := range locks {
		need.Empty(t, l.Path()+": left", s.Children(l.Path()))
	}
	need.Equal(t, "nodes still to be deleted", p.Reaping(), 0)
}

// A frame of a group may be lost, delayed or refused. Each contender still finds out its own outcome, and two contenders for the same path
// get different tokens.
func TestWhateverBecomesOfAFrameOfAGroup(t *testing.T) { // I8
	groups := map[string]int{}
	for name, row := range map[string]struct {
		dirs     []zktest.Direction
		strike   func(s *zktest.Server, session int64) zktest.Action
		released func(error) bool
	}{
		"lost": {[]zktest.Direction{zktest.Request, zktest.Reply}, func(*zktest.Server, int64) zktest.Action { return zktest.Cut },
			func(err error) bool { return err == nil }},
		"refused": {[]zktest.Direction{zktest.Request}, func(*zktest.Server, int64) zktest.Action { return zktest.Throttled },
			func(err error) bool { return err == nil }},
		"the session ends": {[]zktest.Direction{zktest.Request, zktest.Reply}, func(s *zktest.Server, session int64) zktest.Action {
			s.Expire(session)
			return zktest.Cut
		}, func(err error) bool { return err == nil || errors.Is(err, second.ErrLost) }},
	} {
		for _, dir := range row.dirs {
			for nth, struck := 1, true; struck; nth++ {
				t.Run(fmt.Sprintf("%s/%v %d", name, dir, nth), func(t *testing.T) {
					inCrowd(t, func(t *testing.T, s *zktest.Server, p process, locks []*zknode.Lock) {
						at := strike(s, nth, func(f *zktest.Frame) bool { return f.Dir == dir && sent(p.session)(f) && !heartbeat(f) },
							func(*zktest.Frame) zktest.Action { return row.strike(s, p.session) })
						useAll(t, locks, row.released)
						struck = at() != ""
						op, _, _ := strings.Cut(at(), " ")
						groups[op]++
						wantNothingLeft(t, s, p, locks)
					})
				})
			}
		}
	}
	for _, op := range []string{"multi", "setWatches", "multiRead"} {
		need.AtLeast(t, "frames of groups that are "+op, groups[op], 1)
	}
}

func TestCallerWhoLeavesBeforeItsGroupDoesCreatesNothing(t *testing.T) {
	inCrowd(t, func(t *testing.T, s *zktest.Server, p process, locks []*zknode.Lock) {
		_, before, _ := s.Get(locks[1].Path())
		first := submit(func() (*zknode.Node, error) { return locks[0].Acquire(t.Context()) })
		ctx := within(t, 2*time.Millisecond)
		left := submit(func() (*zknode.Node, error) { return locks[1].Acquire(ctx) })
		left.await(t)
		first.await(t)
		wantErr(t, "Acquire of the caller that leaves", left.err, context.DeadlineExceeded)
		wantErr(t, "Acquire", first.err, nil)
		first.node.Release()
		_, after, _ := s.Get(locks[1].Path())
		need.Equal(t, "the stat", after, before)
		wantNothingLeft(t, s, p, locks)
	})
}
