package trace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

const ttl = 9 * time.Second

// The function run returns the trace of three processes that use a mutex, a reader/writer lock and permits on a store that answers late.
// With faults, some requests are never answered, and processes are cut off from time to time.
func run(t *testing.T, seed uint64, long time.Duration, faults bool) (events []Event) {
	synctest.Test(t, func(t *testing.T) {
		begin, random := time.Now(), rand.New(rand.NewPCG(seed, 0))
		now := func() clock.Instant { return clock.Instant(time.Since(begin) + time.Hour) }
		var mu sync.Mutex // guards events and random
		add := func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			e.At = now()
			events = append(events, e)
		}
		server := memory.NewServer()
		server.Script(func(_ string, c queue.Command) memory.Fault {
			mu.Lock()
			defer mu.Unlock()
			f := memory.Fault{Before: time.Duration(random.IntN(5)) * time.Millisecond, After: time.Duration(random.IntN(5)) * time.Millisecond}
			f.Lost = faults && c.Op != queue.Open && random.IntN(40) == 0
			return f
		})
		ctx := need.Within(t, long)
		defer time.Sleep(time.Second) // so that abandoned commands can still reach the store
		var work sync.WaitGroup
		for i := range 3 {
			name := fmt.Sprint(i + 1)
			p := server.Dial(name, ttl, func(r queue.Record) { add(eventOf(name, 0, r)) })
			locks := tier.New(p.Tier, tier.WithHandOff(15*time.Millisecond))
			defer locks.Close()
			use(ctx, &work, locks, func(e Event) {
				e.Process = name
				add(e)
			})
			work.Go(func() {
				for faults && ctx.Err() == nil {
					time.Sleep(time.Duration(10+i) * time.Second)
					heal := p.Cut()
					time.Sleep(time.Duration(i+1) * ttl / 2)
					heal()
				}
			})
		}
		work.Wait()
	})
	return events
}

// use makes three goroutines of a process acquire each lock again and again, and records the state of some holds.
func use(ctx context.Context, work *sync.WaitGroup, locks *tier.Registry, record func(Event)) {
	write, either, permits := locks.Mutex("/mutex"), locks.RWMutex("/rw"), locks.Semaphore("/permits", 2)
	for range 3 {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if h, err := write.Acquire(ctx); err == nil {
					record(Event{Kind: Got, Hold: &Hold{"/mutex", h.Token()}})
					time.Sleep(20 * time.Millisecond)
					if h.Err() == nil {
						record(Event{Kind: Valid, Hold: &Hold{"/mutex", h.Token()}})
					}
					h.Release()
				}
				side := either.Reader()
				if n%3 == 0 {
					side = either.Writer()
				}
				if h, err := side.Acquire(ctx); err == nil {
					record(Event{Kind: Got, Hold: &Hold{"/rw", h.Token()}})
					time.Sleep(5 * time.Millisecond)
					h.Release()
				}
				if h, err := permits.Acquire(ctx, 1+n%2); err == nil {
					time.Sleep(20 * time.Millisecond)
					h.Release()
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// Later events determine most outcomes. The checker therefore has to look at few states.
func TestWhatAStoreDidIsPossible(t *testing.T) {
	for seed := range uint64(3) {
		events := run(t, seed, time.Minute, true)
		looked, err := check(events, Rules{}, 1<<9, surplus) // starting at surplus leaves eight states for each event
		if looked -= surplus; err != nil || len(events) < 1000 || looked > 8*len(events) {
			t.Errorf("seed %d: %v, %d events, %d states", seed, err, len(events), looked)
		}
	}
}

func TestWhatWasLeftOutExplainsMore(t *testing.T) {
	events := run(t, 0, time.Minute, true)
	need.WantErr(t, "check with few states at first", need.ErrOf(check(events, Rules{}, 0, 0)), nil)
}

// A forger changes a trace so that no store can have produced it. It changes no event before the one with the index at.
type forger struct {
	name  string
	forge func(events []Event, at int) (forged []Event, ok bool)
	want  string // a pattern that the error matches: what was forged, or what it contradicts
}

// sentFor returns the command that an event answers. It returns nil if the event is no answer.
func sentFor(events []Event, e Event) *Command {
	for _, s := range events {
		if e.Kind == Answered && s.Kind == Sent && s.Process == e.Process && s.Number == e.Number {
			return s.Command
		}
	}
	return nil
}

// has(e, id) reports whether an event shows that a contender is the holder.
func has(e Event, id string) bool {
	var views []View
	switch e.Kind {
	case News:
		views = append(views, *e.News)
	case Answered:
		views = append(e.Answer.Views, e.Answer.View)
	}
	return slices.ContainsFunc(views, func(v View) bool { return v.Has && v.ID == id })
}

// The function answers returns a forger of answers to commands with one of the operations ops. f changes one answer and reports whether
// it has changed it.
func answers(f func(o *Command, a *Answer) bool, ops ...queue.Op) func([]Event, int) ([]Event, bool) {
	return func(events []Event, at int) ([]Event, bool) {
		c := sentFor(events, events[at])
		if c == nil || !slices.Contains(ops, c.Op) {
			return nil, false
		}
		a := *events[at].Answer
		events[at].Answer = &a
		return events, f(c, &a)
	}
}

var forgers = []forger{
	{"a grant too early", answers(func(o *Command, a *Answer) bool {
		early := o.Old != nil && a.View.Ahead == 2 // the contender that had the lock queues again, behind both others
		a.View.Has, a.View.Ahead, a.View.Nearest = true, 0, ""
		return early
	}, queue.Enter), "has the lock|waits with token|is not there"},
	{"a wait for nobody", answers(func(_ *Command, a *Answer) bool {
		has := a.View.Has
		a.View.Has, a.View.Ahead, a.View.Nearest = false, 1, "nobody.1"
		return has
	}, queue.Enter), "has the lock|waits with token|is not there"},
	{"more ahead than there are", answers(func(_ *Command, a *Answer) bool {
		a.View.Ahead += 5
		return a.View.Known && !a.View.Has
	}, queue.Enter), "has the lock|waits with token|is not there"},
	{"permits that others have", answers(func(o *Command, a *Answer) bool {
		waits := o.Permits > 0 && a.View.Known && !a.View.Has
		a.View.Has, a.View.Free, a.View.Ahead, a.View.Nearest = true, 0, 0, ""
		return waits
	}, queue.Enter), "^process . at .*permits of /permits: .*permits"},
	{"a wait for permits that are free", answers(func(o *Command, a *Answer) bool {
		has := o.Permits > 0 && a.View.Has
		a.View.Has, a.View.Ahead, a.View.Nearest = false, 1, "nobody.1"
		return has
	}, queue.Enter), "permits of /permits: "},
	{"more permits free than there are", answers(func(o *Command, a *Answer) bool {
		a.View.Free = 1
		return o.Permits > 0 && a.View.Ahead > 0
	}, queue.Enter), "permits of /permits: "},
	{"permits given back that nobody had", answers(func(o *Command, a *Answer) bool {
		done := o.Permits > 0 && a.Outcome == queue.Done && a.Removed == queue.Removed
		a.Removed = queue.Missing
		return done
	}, queue.Leave), "permits of /permits: .*(leave: done|is not there|has the lock|waits with token)"},
	{"a token twice", func(events []Event, at int) ([]Event, bool) {
		for i := range at {
			e, f := &events[at], events[i]
			if e.Kind == Answered && f.Kind == Answered && e.Answer.View.Has && f.Answer.View.Has && e.Answer.View.ID != f.Answer.View.ID {
				a := *e.Answer
				a.View.Token, e.Answer = f.Answer.View.Token, &a
				return events, true
			}
		}
		return nil, false
	}, "token"},
	{"a token that goes back", answers(func(o *Command, a *Answer) bool {
		a.View.Token /= 2
		return o.Path == "/mutex" && a.View.Known
	}, queue.Enter), "token"},
	{"answers exchanged", func(events []Event, at int) ([]Event, bool) {
		for i := range at {
			e, f := &events[at], &events[i]
			if e.Kind == Answered && f.Kind == Answered && e.Answer.View.Known && f.Answer.View.Known && e.Answer.View.ID != f.Answer.View.ID {
				e.Answer, f.Answer = f.Answer, e.Answer
				return events, true
			}
		}
		return nil, false
	}, "event"},
	{"an answer to nothing", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		e.Number = 1 << 40
		return slices.Insert(events, at, e), e.Kind == Answered
	}, "was not sent"},
	{"a contender that vanishes", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		if e.Kind != Answered || !e.Answer.View.Has {
			return nil, false
		}
		gone := View{ID: e.Answer.View.ID, Token: e.Answer.View.Token}
		return slices.Insert(events, at+1, Event{At: e.At, Process: e.Process, Kind: News, News: &gone}), true
	}, "is not there"},
	{"news of a lock that another has", func(events []Event, at int) ([]Event, bool) {
		for i := at; i > 0 && events[at].Kind == Got; i-- {
			e := events[i]
			c := sentFor(events, e)
			if c == nil || e.Process == events[at].Process || c.Op != queue.Enter || c.Path != "/mutex" {
				continue
			}
			v := e.Answer.View
			waits := v.Ahead > 0 && !slices.ContainsFunc(events[i:at], func(e Event) bool { return has(e, v.ID) })
			v.Has, v.Ahead, v.Nearest = true, 0, ""
			return slices.Insert(events, at+1, Event{At: events[at].At, Process: e.Process, Kind: News, News: &v}), waits
		}
		return nil, false
	}, "news: "},
	{"news for another process", func(events []Event, at int) ([]Event, bool) {
		events[at].Process = "9"
		return events, events[at].Kind == News
	}, "which is of process"},
	{"removed, and not found", answers(func(_ *Command, a *Answer) bool {
		a.Removed = queue.Missing
		return a.Outcome == queue.Done
	}, queue.Leave), "leave: done|is not there|has the lock|waits with token"},
	{"a requeue that finds nobody", answers(func(o *Command, a *Answer) bool {
		done := o.Old != nil && a.Outcome == queue.Done
		*a = Answer{Outcome: queue.Gone}
		return done
	}, queue.Enter), "enter: gone|has the lock|waits with token|is not there"},
	{"a session that ends too early", answers(func(_ *Command, a *Answer) bool {
		done := a.Outcome == queue.Done
		*a = Answer{Outcome: queue.Expired}
		return done
	}, queue.Beat), "before it can be"},
	{"a command after its session", func(events []Event, at int) ([]Event, bool) {
		over := events[at]
		if over.Kind != Answered || over.Answer.Outcome != queue.Expired {
			return nil, false
		}
		c := *sentFor(events, over)
		c.Op, c.Ref = queue.Enter, Ref{Path: "/mutex", ID: "late.1"}
		const late = 1 << 40
		answer := Answer{Outcome: queue.Done, View: View{ID: "late.1", Known: true, Token: late, Ahead: 1}}
		return slices.Insert(events, at+1,
			Event{At: over.At.Add(time.Second), Process: over.Process, Kind: Sent, Number: late, Command: &c},
			Event{At: over.At.Add(2 * time.Second), Process: over.Process, Kind: Answered, Number: late, Answer: &answer}), true
	}, "which was over"},
	{"a hold that the store has not reported", func(events []Event, at int) ([]Event, bool) {
		e := events[at]
		e.Hold = &Hold{"/mutex", 1 << 40}
		return slices.Insert(events, at, e), e.Kind == Got
	}, "was not told so"},
	{"a loss that is told late", func(events []Event, at int) ([]Event, bool) {
		events[at].At = events[len(events)-1].At.Add(2 * ttl)
		return events, events[at].Kind == Valid
	}, "after the end of its lease"},
}

func TestWhatNoStoreCanHaveDoneIsFound(t *testing.T) {
	calm, faults := run(t, 1, 4*time.Second, false), run(t, 1, 30*time.Second, true)
	for _, f := range forgers {
		events := calm
		if strings.Contains(f.name, "session") {
			events = faults
		}
		f.isRefused(t, events, Rules{})
	}
}

// isRefused forges the trace at two places, one of them early. It checks that both forgeries are refused.
func (f forger) isRefused(t *testing.T, events []Event, rules Rules) {
	t.Run(f.name, func(t *testing.T) {
		tried, room := 0, []Event(nil) // room is the space for the forged trace
		for at := len(events) / 4; at < len(events) && tried < 2; at++ {
			room = append(room[:0], events...)
			forged, ok := f.forge(room, at)
			if !ok {
				continue
			}
			tried++
			if _, err := Check(forged, rules); err == nil || !regexp.MustCompile(f.want).MatchString(err.Error()) {
				t.Errorf("at event %d of %d: got %v, want an error like %q", at, len(events), err, f.want)
			}
		}
		need.That(t, "there is nothing to forge", tried != 0)
	})
}

// If the order of execution is unknown, a contender's token must exceed only the tokens that were reported before the contender entered.
func TestTokenIsHigherThanThoseThatWereToldBefore(t *testing.T) {
	for _, c := range []struct {
		enters clock.Instant // when another contender enters, which has the lower token
		want   string
	}{{10 * clock.Instant(time.Second), ""}, {40 * clock.Instant(time.Second), "token 6"}} {
		reader := func(process, id string, sent, answered clock.Instant, v View) []Event {
			v.ID, v.Known, v.Reads = id, true, true
			return []Event{
				{At: sent, Process: process, Kind: Sent, Number: 1, Command: &Command{Op: queue.Enter, Ref: Ref{Path: "/rw", ID: id, Reads: true}}},
				{At: answered, Process: process, Kind: Answered, Number: 1, Answer: &Answer{Outcome: queue.Done, View: v}},
			}
		}
		second := clock.Instant(time.Second)
		look, has := Ref{Path: "/rw", ID: "1", Reads: true}, View{ID: "1", Known: true, Reads: true, Has: true, Token: 6}
		events := append(reader("a", "1", c.enters, 50*second, View{}), reader("b", "1", 20*second, 30*second, View{Has: true, Token: 7})...)
		events = append(events,
			Event{At: 60 * second, Process: "a", Kind: Sent, Number: 2, Command: &Command{Op: queue.Look, Ref: look}},
			Event{At: 70 * second, Process: "a", Kind: Answered, Number: 2, Answer: &Answer{Outcome: queue.Done, View: has}})
		_, err := Check(events, Rules{Brittle: true, Unordered: true})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("entered at %v: got %v, want an error with %q", c.enters, err, c.want)
		}
	}
}

// A command without an answer counts as executed when other processes see its effect, even if its name was used before.
func TestCommandWithoutAnAnswerIsSeenByItsEffect(t *testing.T) {
	var events []Event
	add := adding(&events)
	x, y := Ref{Path: "/mutex", ID: "x"}, Ref{Path: "/mutex", ID: "y"}
	add("a", 1, Command{Op: queue.Open}, &Answer{Outcome: queue.Done, Session: "s", TTL: time.Hour})
	add("a", 2, Command{Op: queue.Enter, Session: "s", Ref: x},
		&Answer{Outcome: queue.Done, View: View{ID: "x", Known: true, Has: true, Token: 1}})
	add("a", 3, Command{Op: queue.Leave, Session: "s", Ref: Ref{Path: "/mutex", ID: "x", Token: 1}}, &Answer{Outcome: queue.Done})
	add("b", 1, Command{Op: queue.Enter, Ref: y}, &Answer{Outcome: queue.Done, View: View{ID: "y", Known: true, Has: true, Token: 2}})
	add("a", 4, Command{Op: queue.Enter, Session: "s", Ref: x}, nil)
	add("b", 2, Command{Op: queue.Look, Ref: y}, &Answer{Outcome: queue.Done, View: View{ID: "y", Known: true, Has: true, Token: 2}})
	behind := View{ID: "y", Known: true, Has: true, Behind: true, Token: 2}
	events = append(events, Event{At: clock.Instant(time.Minute), Process: "b", Kind: News, News: &behind})
	need.WantErr(t, "Check", need.ErrOf(Check(events, Rules{})), nil)
}

// adding returns a function that adds a command to a trace. If the command has an answer, the function adds the answer a second later.
func adding(events *[]Event) func(process string, number int64, c Command, a *Answer) {
	return func(process string, number int64, c Command, a *Answer) {
		at := clock.Instant(len(*events)+1) * clock.Instant(time.Second)
		*events = append(*events, Event{At: at, Process: process, Number: number, Kind: Sent, Command: &c})
		if a != nil {
			*events = append(*events, Event{At: at.Add(time.Second), Process: process, Number: number, Kind: Answered, Answer: a})
		}
	}
}

// A repeated command may be executed a second time when the first contender has already left, because a server may be paused with the
// command.
func TestEnterThatWasRepeatedMayBeExecutedLate(t *testing.T) {
	var events []Event
	add := adding(&events)
	x, y := Ref{Path: "/mutex", ID: "x"}, Ref{Path: "/mutex", ID: "y"}
	has := func(id string, token int64) *Answer {
		return &Answer{Outcome: queue.Done, View: View{ID: id, Known: true, Has: true, Token: token}}
	}
	add("a", 1, Command{Op: queue.Open}, &Answer{Outcome: queue.Done, Session: "s", TTL: time.Hour})
	add("a", 2, Command{Op: queue.Enter, Session: "s", Ref: x}, nil)
	add("a", 3, Command{Op: queue.Enter, Session: "s", Ref: x}, has("x", 1))
	add("a", 4, Command{Op: queue.Leave, Session: "s", Ref: Ref{Path: "/mutex", ID: "x", Token: 1}}, &Answer{Outcome: queue.Done})
	add("b", 1, Command{Op: queue.Enter, Ref: y}, has("y", 2))
	behind := View{ID: "y", Known: true, Has: true, Behind: true, Token: 2}
	events = append(events, Event{At: clock.Instant(time.Minute), Process: "b", Kind: News, News: &behind})
	need.WantErr(t, "Check", need.ErrOf(Check(events, Rules{})), nil)
}

// After a fail-over, answers may show that data was lost, even after the new server has said that it grants nothing. They may not show it
// any more when the grace period of the server is over.
func TestWhatAFailOverHasLostIsSeenInItsGracePeriod(t *testing.T) {
	x, y := Ref{Path: "/mutex", ID: "x"}, Ref{Path: "/other", ID: "y"}
	for _, lasts := range []bool{true, false} {
		var events []Event
		add := adding(&events)
		nothing := func() {
			add("b", int64(len(events)+1), Command{Op: queue.Try, Ref: y}, &Answer{Outcome: queue.Locked, InGracePeriod: true})
		}
		add("a", 1, Command{Op: queue.Open}, &Answer{Outcome: queue.Done, Session: "s", TTL: time.Hour})
		add("a", 2, Command{Op: queue.Enter, Session: "s", Ref: x},
			&Answer{Outcome: queue.Done, View: View{ID: "x", Known: true, Has: true, Token: 1}})
		nothing()
		add("a", 3, Command{Op: queue.Look, Session: "s", Ref: x}, &Answer{Outcome: queue.Done, View: View{ID: "x"}})
		if lasts {
			nothing()
		}
		for i := range events {
			events[i].At /= 10 // all events happen within the time in which a server may have lost its data
		}
		_, err := Check(events, Rules{Forgets: true})
		need.That(t, fmt.Sprintf("the grace period lasts, %t: got %v", lasts, err), (err == nil) == lasts)
	}
}

// In its grace period, a new primary may notify a holder that another process waits. The old primary had granted the lock to that
// holder.
func TestNewsInAGracePeriodOfWhoWaitsBehind(t *testing.T) {
	var events []Event
	add := adding(&events)
	x, y := Ref{Path: "/mutex", ID: "x"}, Ref{Path: "/mutex", ID: "y"}
	add("a", 1, Command{Op: queue.Enter, Ref: x}, &Answer{Outcome: queue.Done, View: View{ID: "x", Known: true, Has: true, Token: 1}})
	add("b", 1, Command{Op: queue.Enter, Ref: y},
		&Answer{Outcome: queue.Done, View: View{ID: "y", Known: true, Token: 2, Ahead: 1, Nearest: "x", InGracePeriod: true}})
	news := View{ID: "x", Known: true, Token: 1, Behind: true, InGracePeriod: true}
	events = append(events, Event{At: clock.Instant(time.Minute), Process: "a", Kind: News, News: &news})
	need.WantErr(t, "Check", need.ErrOf(Check(events, Rules{})), nil)
}

// A process that is killed before it gets its answer may have permits until its lease ends, although no other process has seen its
// contender.
func TestPermitsOfWhoWasKilledBeforeTheAnswer(t *testing.T) {
	var events []Event
	add := adding(&events)
	ref := func(id string) Ref { return Ref{Path: "/permits", ID: id, Permits: 3} }
	for _, process := range []string{"a", "b", "c"} {
		add(process, 1, Command{Op: queue.Open}, &Answer{Outcome: queue.Done, Session: "s", TTL: time.Minute})
	}
	add("a", 2, Command{Op: queue.Enter, Session: "s", Ref: ref("x"), Weight: 2}, nil)
	add("b", 2, Command{Op: queue.Enter, Session: "s", Ref: ref("w"), Weight: 1},
		&Answer{Outcome: queue.Done, View: View{ID: "w", Known: true, Token: 1, Has: true}})
	add("b", 3, Command{Op: queue.Leave, Session: "s", Ref: ref("w")}, &Answer{Outcome: queue.Done})
	add("b", 4, Command{Op: queue.Enter, Session: "s", Ref: ref("y"), Weight: 2},
		&Answer{Outcome: queue.Done, View: View{ID: "y", Known: true, Token: 2, Free: 1}})
	add("c", 2, Command{Op: queue.Enter, Session: "s", Ref: ref("z"), Weight: 3},
		&Answer{Outcome: queue.Done, View: View{ID: "z", Known: true, Token: 3, Free: -1, Ahead: 1, Nearest: "y"}})
	need.WantErr(t, "Check", need.ErrOf(Check(events, Rules{OwnTTL: true})), nil)
}

// The contender of an unanswered command may still have an effect for some time after the end of its lease, even if no view names it.
func TestStoreMayBeLateToEndALease(t *testing.T) {
	for later, may := range map[time.Duration]bool{2 * time.Minute: true, 4 * time.Minute: false} {
		var events []Event
		add := adding(&events)
		v := View{ID: "x", Known: true, Token: 1, Has: true}
		add("b", 1, Command{Op: queue.Open}, &Answer{Outcome: queue.Done, Session: "s", TTL: time.Minute})
		add("a", 1, Command{Op: queue.Enter, Ref: Ref{Path: "/a", ID: "x"}}, &Answer{Outcome: queue.Done, View: v})
		add("b", 2, Command{Op: queue.Enter, Session: "s", Ref: Ref{Path: "/a", ID: "y"}}, nil)
		for i := range 2 {
			v.Behind = i > 0
			events = append(events, Event{At: clock.Instant(later).Add(time.Duration(i)), Process: "a", Kind: News, News: new(v)})
		}
		need.Equal(t, later.String(), need.ErrOf(Check(events, Rules{})) == nil, may)
	}
}

// A release without an answer may be executed at any time. Its contender counts as present until a view shows that it has left.
func TestPermitsThatMayHaveBeenGivenBackMakeFewStates(t *testing.T) {
	const holders = 20
	var events []Event
	add := func(number int64, kind Kind, c *Command, a *Answer) {
		at := clock.Instant(len(events)+1) * clock.Instant(time.Second)
		events = append(events, Event{At: at, Process: "a", Number: number, Kind: kind, Command: c, Answer: a})
	}
	for i := range int64(holders + 1) {
		r := Ref{Path: "/permits", ID: fmt.Sprint("x", i), Permits: holders}
		v := View{ID: r.ID, Known: true, Token: i + 1, Has: i < holders}
		add(2*i+1, Sent, &Command{Op: queue.Enter, Ref: r, Weight: 1}, nil)
		add(2*i+1, Answered, nil, &Answer{Outcome: queue.Done, View: v})
	}
	for i := range int64(holders) {
		add(100+i, Sent, &Command{Op: queue.Leave, Ref: Ref{Path: "/permits", ID: fmt.Sprint("x", i), Permits: holders}}, nil)
	}
	last := Ref{Path: "/permits", ID: fmt.Sprint("x", holders), Permits: holders}
	look := func(number int64, has bool) {
		add(number, Sent, &Command{Op: queue.Look, Ref: last}, nil)
		v := View{ID: last.ID, Known: true, Token: holders + 1, Has: has}
		add(number, Answered, nil, &Answer{Outcome: queue.Done, View: v})
	}
	look(200, false)
	look(201, true)
	looked, err := check(events, Rules{OwnTTL: true}, 1<<9, 0)
	need.That(t, fmt.Sprintf("got %v, %d states for %d events", err, looked, len(events)), err == nil && looked <= 64*len(events))
}

// A notification may arrive at the same time as the answer to a Leave. It is accepted, although an Enter with the same name may still be
// under way.
func TestNewsOfTheSameMomentAreHeard(t *testing.T) {
	x, second := Ref{Path: "/mutex", ID: "x"}, clock.Instant(time.Second)
	has := View{ID: "x", Known: true, Has: true, Token: 1}
	sent := func(at clock.Instant, number int64, op queue.Op) Event {
		return Event{At: at, Process: "a", Number: number, Kind: Sent, Command: &Command{Op: op, Session: "s", Ref: x}}
	}
	events := []Event{
		{At: 0, Process: "a", Number: 4, Kind: Sent, Command: &Command{Op: queue.Open}},
		{At: 1, Process: "a", Number: 4, Kind: Answered, Answer: &Answer{Outcome: queue.Done, Session: "s", TTL: time.Hour}},
		sent(second, 1, queue.Enter), sent(2*second, 2, queue.Enter),
		{At: 3 * second, Process: "a", Number: 2, Kind: Answered, Answer: &Answer{Outcome: queue.Done, View: has}},
		sent(4*second, 3, queue.Leave),
		{At: 5 * second, Process: "a", Number: 3, Kind: Answered, Answer: &Answer{Outcome: queue.Done}},
		{At: 5 * second, Process: "a", Kind: News, News: &has},
	}
	need.WantErr(t, "Check", need.ErrOf(Check(events, Rules{})), nil)
}

func TestTraceIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	w := need.Get(Create(dir, 7))(t)
	ref := queue.Ref{Path: "/a", ID: "x", Token: 3, Permits: 2}
	enter := queue.Command{Op: queue.Enter, Session: "s", Ref: ref, Old: ref, Weight: 2, Among: []queue.Ref{ref}}
	w.Record(queue.Record{Number: 1, Sent: true, Command: enter})
	view := queue.View{ID: "x", Known: true, Has: true, Token: 4}
	w.Record(queue.Record{Number: 1, Answer: queue.Answer{Outcome: queue.Done, View: view, TTL: ttl}})
	w.Record(queue.Record{Answer: queue.Answer{View: queue.View{ID: "x"}}})
	need.Get(w.file.WriteString(`{"at": 5, "proc`))(t) // the process was killed while it wrote this event
	got := need.Get(Read(dir))(t)
	for i := range got {
		need.That(t, fmt.Sprintf("event %d is before the last one", i), i == 0 || got[i].At >= got[i-1].At)
		got[i].At = 0
	}
	r := Ref{Path: "/a", ID: "x", Token: 3, Permits: 2}
	want := []Event{
		{Process: "7", Kind: Sent, Number: 1, Command: &Command{Op: queue.Enter, Session: "s", Ref: r, Weight: 2, Old: &r, Among: []Ref{r}}},
		{Process: "7", Kind: Answered, Number: 1, Answer: &Answer{Outcome: queue.Done, View: viewOf(view), TTL: ttl}},
		{Process: "7", Kind: News, News: &View{ID: "x"}},
	}
	need.That(t, fmt.Sprintf("got %+v, want %+v", got, want), reflect.DeepEqual(got, want))
	need.OK(t, os.WriteFile(filepath.Join(dir, "trace-8"), []byte("nonsense\n"), 0o666))
	need.WantMention(t, need.ErrOf(Read(dir)), "trace-8")
}
