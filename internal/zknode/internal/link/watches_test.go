package link

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const beat = timeout / 8

// abandon watches a number of paths, and then drops all watchers.
func abandon(t *testing.T, l *Link, paths int) {
	t.Helper()
	put(t, l.Conn, "/q")
	for i := range paths {
		path := fmt.Sprintf("/q/%d", i)
		put(t, l.Conn, path)
		w := &Watcher{Notify: func() { t.Error("notified of an abandoned watch") }}
		need.OK(t, l.Ask(l.Listing(path, w))[0].Err)
		l.Events.Ignore(path, w)
	}
}

// A watch that is needed again soon is kept, instead of being removed and set again.
func TestWatchThatIsNeededAgainIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		put(t, l.Conn, "/q")
		var removals atomic.Int32
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == wire.OpName(wire.OpRemoveWatches) {
				removals.Add(1)
			}
			return zktest.Pass
		})
		w := &Watcher{Notify: func() {}}
		for range 100 {
			need.OK(t, l.Ask(l.Listing("/q", w))[0].Err)
			l.Events.Ignore("/q", w)
			time.Sleep(beat * 9 / 10)
		}
		need.Equal(t, "removals", removals.Load(), 0)
		need.Equal(t, "watches", s.Watches(), 1)
		time.Sleep(3 * beat)
		need.Equal(t, "watches in the end", s.Watches(), 0)
		need.Equal(t, "paths that are remembered", len(l.Events.Watchers()), 0)
	})
}

// While a watch is being removed, a new watcher may need it. The watcher must read again, because its watch would be removed together with
// the unused one.
func TestWhoNeedsAWatchDuringItsRemovalLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		abandon(t, l, 1)
		removing := make(chan struct{})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == wire.OpName(wire.OpRemoveWatches) && f.Dir == zktest.Reply && f.Nth == 1 {
				close(removing)
				return zktest.Delay(beat / 2)
			}
			return zktest.Pass
		})
		select {
		case <-removing:
		case <-time.After(3 * beat):
			t.Fatal("nothing was removed")
		}
		late := newHeard()
		go l.Ask(l.Listing("/q/0", &late.Watcher))
		late.want(t, "while the removal is under way", 0, false)
		time.Sleep(beat)
		late.want(t, "when it is over", 1, false)
		need.OK(t, l.Ask(l.Listing("/q/0", &late.Watcher))[0].Err)
		time.Sleep(3 * beat)
		put(t, l.Conn, "/q/0/x")
		late.want(t, "a child that was created", 2, false)
	})
}

func TestManyWatchesAreRemovedAFewAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		abandon(t, l, mostRemoved+10)
		need.Equal(t, "watches", s.Watches(), mostRemoved+10)
		for range 30 { // the time of three heartbeats
			if s.Watches() > mostRemoved {
				time.Sleep(beat / 10)
			}
		}
		synctest.Wait()
		need.Equal(t, "watches after the first beat that removes some", s.Watches(), 10)
		time.Sleep(beat)
		synctest.Wait()
		need.Equal(t, "watches after the next one", s.Watches(), 0)
	})
}

// Servers before 3.5 close the connection when they get a request to remove a watch. The link must try that only once.
func TestServersThatCannotRemoveWatchesAreAskedToOnlyOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		l := dial(t, to(s), addr)
		var removals atomic.Int32
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == wire.OpName(wire.OpRemoveWatches) && f.Dir == zktest.Request {
				removals.Add(1)
				return zktest.Error(wire.Code(wire.CodeUnimplemented))
			}
			return zktest.Pass
		})
		abandon(t, l, 1)
		time.Sleep(4 * beat)
		w := &Watcher{Notify: func() {}}
		need.OK(t, l.Ask(l.Listing("/q", w))[0].Err)
		l.Events.Ignore("/q", w)
		time.Sleep(10 * beat)
		need.Equal(t, "removals", removals.Load(), 1)
	})
}
