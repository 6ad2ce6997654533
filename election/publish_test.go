package election_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A feed records what an observer receives. Each element is the label of a leader. If the leader has published data, "=" and the data
// follow.
type feed struct{ words []string }

func follow(t *testing.T, locks *tier.Registry) *feed {
	t.Helper()
	f, ended := new(feed), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		for leader, err := range election.New(locks, path).Observe(ctx) {
			need.OK(t, err)
			word := leader.Label
			if leader.Published != nil {
				word += "=" + string(leader.Published)
			}
			f.words = append(f.words, word)
			clear(leader.Published) // shows whether the observer has kept a copy of its own
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return f
}

// has checks everything that the observer has received so far. Before that, it waits for one poll.
func (f *feed) has(t *testing.T, words ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	need.Equal(t, "observed", strings.Join(f.words, " "), strings.Join(words, " "))
}

func TestObserverGetsWhatTheLeaderPublishes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		publish := func(e *election.Election, data string) {
			t.Helper()
			need.OK(t, e.Publish(t.Context(), []byte(data)))
		}
		f := follow(t, registry(t, s, "observer"))
		a := start(t, s, new(diary), "a")[0]
		f.has(t, "a")
		publish(a.Election, "1")
		f.has(t, "a", "a=1")
		publish(a.Election, "1")
		time.Sleep(time.Minute)
		f.has(t, "a", "a=1")
		publish(a.Election, "2")
		publish(a.Election, "3")
		f.has(t, "a", "a=1", "a=3")
		follow(t, registry(t, s, "late")).has(t, "a=3")
		publish(a.Election, "")
		f.has(t, "a", "a=1", "a=3", "a=")
	})
}

func TestWhatAFormerLeaderPublishedIsNotItsSuccessors(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p := start(t, s, new(diary), "a", "b")
		need.OK(t, p[0].Publish(t.Context(), []byte("1")))
		f := follow(t, registry(t, s, "observer"))
		f.has(t, "a=1")
		p[0].reign <- election.ErrStop
		f.has(t, "a=1", "b")
		late := follow(t, registry(t, s, "late"))
		late.has(t, "b")
		time.Sleep(time.Minute)
		f.has(t, "a=1", "b")
		need.OK(t, p[1].Publish(t.Context(), []byte("1")))
		f.has(t, "a=1", "b", "b=1")
		late.has(t, "b", "b=1")
	})
}

// A warped store is a store whose queues a test can change.
type warped struct {
	queue.Store
	warp *atomic.Pointer[func([]second.Contender) []second.Contender]
}

func (w warped) Do(ctx context.Context, c queue.Command) queue.Answer {
	a := w.Store.Do(ctx, c)
	if f := w.warp.Load(); f != nil && c.Op == queue.List {
		a.Queue = (*f)(a.Queue)
	}
	return a
}

// warp returns a function that changes what the store shows of its queues from then on. warp has to be called before processes connect.
func warp(s *memory.Server) (show func(f func([]second.Contender) []second.Contender)) {
	w := new(atomic.Pointer[func([]second.Contender) []second.Contender])
	s.As = func(_ *memory.Process, inner queue.Store) queue.Store { return warped{inner, w} }
	return func(f func([]second.Contender) []second.Contender) { w.Store(&f) }
}

// A server that lags behind may show an earlier leader, although a Load is linearizable. The value then must not be reported as that
// leader's.
func TestValueIsTheLeadersEvenIfTheQueueIsOld(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		show := warp(s)
		p := start(t, s, new(diary), "a", "b")
		need.OK(t, p[0].Publish(t.Context(), []byte("1")))
		f := follow(t, registry(t, s, "observer"))
		f.has(t, "a=1")
		old := s.Queue(path)
		p[0].reign <- election.ErrStop
		f.has(t, "a=1", "b")

		show(func([]second.Contender) []second.Contender { return old })
		time.Sleep(time.Minute)
		f.has(t, "a=1", "b")
		need.OK(t, p[1].Publish(t.Context(), []byte("2")))
		late := follow(t, registry(t, s, "late"))
		late.has(t, "a")
		f.has(t, "a=1", "b")

		show(func(all []second.Contender) []second.Contender { return all })
		f.has(t, "a=1", "b", "b=2")
		late.has(t, "a", "b=2")
	})
}

// counted counts the requests of a process from now on.
func counted(s *memory.Server, label string) (count func(queue.Op) int) {
	var mu sync.Mutex // guards the variable below
	sent := make(map[queue.Op]int)
	s.Script(func(process string, c queue.Command) (f memory.Fault) {
		mu.Lock()
		defer mu.Unlock()
		if process == label {
			sent[c.Op]++
		}
		return f
	})
	return func(op queue.Op) int {
		mu.Lock()
		defer mu.Unlock()
		return sent[op]
	}
}

func TestPollCostsTwoRequestsAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		show := warp(s)
		f := follow(t, registry(t, s, "observer"))
		time.Sleep(500 * time.Millisecond) // each minute below begins and ends between two polls
		costs := func(what, label string, loads int) {
			t.Helper()
			sent := counted(s, label)
			time.Sleep(time.Minute)
			need.Equal(t, "looks at the queue, "+what, sent(queue.List), 60)
			need.Equal(t, "loads, "+what, sent(queue.Load), loads)
			need.Equal(t, "saves, "+what, sent(queue.Save), 0)
		}
		costs("without a leader", "observer", 0)
		a := start(t, s, new(diary), "a")[0]
		costs("with a leader that has published nothing", "observer", 60)
		need.OK(t, a.Publish(t.Context(), []byte("1")))
		costs("with a leader that has published something", "observer", 60)
		f.has(t, "a", "a=1")
		show(func(all []second.Contender) []second.Contender { // shows what a user without permissions would see
			all[0].Token = 0
			return all
		})
		time.Sleep(time.Second)
		costs("when the token of the leader is hidden", "observer", 0)
		time.Sleep(500 * time.Millisecond)
		hidden := follow(t, registry(t, s, "hidden"))
		time.Sleep(500 * time.Millisecond)
		costs("when the token of the leader was never shown", "hidden", 0)
		f.has(t, "a", "a=1")
		hidden.has(t, "a")
	})
}

func TestObserverThatMayNotLoadGetsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		start(t, s, new(diary), "a")
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Load {
				f.Refused = queue.Denied
			}
			return f
		})
		o := observe(t, election.New(registry(t, s, "observer"), path))
		<-o.ended
		need.WantMention(t, o.err, path, "load refused")
	})
}

func TestOnlyTheLeaderPublishes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d, ctx := new(diary), t.Context()
		locks, link := dial(t, s, "a")
		a := candidateOf(t, locks, d, "a")
		err := a.Publish(ctx, []byte("early"))
		need.WantErr(t, "Publish before Run", err, election.ErrNotLeader)
		need.Equal(t, "Publish before Run", err.Error(), "election: publish at /elections/a: not the leader")
		a.run()
		b := start(t, s, d, "b")[0]
		need.WantErr(t, "Publish of a candidate", b.Publish(ctx, nil), election.ErrNotLeader)
		need.OK(t, a.Publish(ctx, make([]byte, 16<<10)))
		need.OK(t, a.Publish(ctx, []byte("1")))
		need.WantMention(t, a.Publish(ctx, make([]byte, 16<<10+1)), "16385 bytes are more than the limit of 16384")

		heal := link.Cut()
		time.Sleep(sessionTimeout)
		b.leads(a)
		need.WantErr(t, "Publish after the loss", a.Publish(ctx, []byte("late")), election.ErrNotLeader)
		heal()
		time.Sleep(time.Minute)
		need.WantErr(t, "Publish of a former leader", a.Publish(ctx, []byte("late")), election.ErrNotLeader)
		need.Equal(t, "value", string(need.Get(locks.Mutex(path).Load(ctx))(t).Data), "1")
	})
}

// If the context of the leading function has ended, Publish fails, even though the lock is still held.
func TestLeaderThatIsToStopPublishesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a := election.New(registry(t, s, "a"), path)
		ctx, cancel := context.WithCancel(t.Context())
		err := a.Run(ctx, func(context.Context, int64) error {
			cancel()
			need.WantErr(t, "Publish", a.Publish(t.Context(), nil), election.ErrNotLeader, context.Canceled)
			return election.ErrStop
		})
		need.WantErr(t, "Run", err, nil)
	})
}

func TestPublishTellsALossFromAnAmbiguousResult(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a := start(t, s, new(diary), "a")[0]
		saves := func(fault memory.Fault) {
			s.Script(func(_ string, c queue.Command) memory.Fault {
				if c.Op == queue.Save {
					return fault
				}
				return memory.Fault{}
			})
		}
		f := follow(t, registry(t, s, "observer"))
		f.has(t, "a")
		saves(memory.Fault{Lost: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := a.Publish(ctx, []byte("1"))
		need.WantErr(t, "Publish whose answer was lost", err, tier.ErrUnknown, context.DeadlineExceeded)
		need.That(t, "it leads no more: "+err.Error(), !errors.Is(err, election.ErrNotLeader))
		f.has(t, "a", "a=1")
		saves(memory.Fault{})
		time.Sleep(time.Minute) // the request is repeated, and answered

		saves(memory.Fault{Before: time.Second})
		time.AfterFunc(500*time.Millisecond, func() { s.Expire(path, 0) })
		err = a.Publish(t.Context(), []byte("2"))
		need.WantErr(t, "Publish without an answer at the loss", err, election.ErrNotLeader, tier.ErrLost, tier.ErrUnknown)
		time.Sleep(time.Minute) // it leads again
		f.has(t, "a", "a=1", "a")

		saves(memory.Fault{Refused: queue.Gone})
		err = a.Publish(t.Context(), []byte("3"))
		need.WantErr(t, "Publish after a loss that only the store knew of", err, election.ErrNotLeader, tier.ErrLost)
		need.That(t, "ambiguous: "+err.Error(), !errors.Is(err, tier.ErrUnknown))
	})
}

func TestPublishDuringTheResignationIsThatOfNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a := start(t, s, new(diary), "a")[0]
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Save {
				f.Refused = queue.Failed
			}
			return f
		})
		time.AfterFunc(time.Second, func() { a.reign <- election.ErrStop })
		err := a.Publish(t.Context(), []byte("1"))
		need.WantErr(t, "Publish", err, election.ErrNotLeader, tier.ErrReleased)
	})
}
