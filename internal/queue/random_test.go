package queue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
)

var (
	schedules = flag.Int("schedules", 200, "random schedules to play")
	firstSeed = flag.Uint64("seed", 0, "of the first; 0: another one each time")
)

// TestRandomSchedules runs processes that acquire, wait, leave, requeue, share and release at random. Commands are late, lost, refused, or
// executed twice. In every other schedule, processes are also cut off, the server stops, and sessions end. Half of the schedules also use
// permits, if their store has them. The schedules alternate between all kinds of stores.
func TestRandomSchedules(t *testing.T) {
	seed := *firstSeed
	if seed == 0 {
		seed = rand.Uint64() >> 16
	}
	grants := 0
	for n := range uint64(*schedules) {
		if !t.Run(fmt.Sprint("seed ", seed+n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { grants += playSchedule(t, seed+n) })
		}) {
			t.Fatalf("go test ./internal/queue -run TestRandomSchedules -schedules 1 -seed %d", seed+n)
		}
	}
	t.Logf("%d schedules from seed %d, %d grants", *schedules, seed, grants)
}

// A schedule is one run. It checks exclusion and order, and that tokens grow. A lock may be lost only after an injected fault, and never at
// the moment of the grant. At the end, nothing may be left in the queue.
type schedule struct {
	*testing.T
	server    *memory.Server
	path      string // of the queue
	processes []*memory.Process
	rough     bool // the schedule also injects faults with strike and blow

	mu     sync.Mutex // guards the fields below
	dice   *rand.Rand
	held   map[*grant]bool
	tokens oracle.Tokens
	taken  map[second.Permit]portion
	grants int
	blows  map[*memory.Process]bool // processes whose session or contender a fault has removed; they may learn of their loss too late
}

type grant struct {
	second.Grant
	process *memory.Process
	number  int
}

// turn returns the grant in the form that the oracle checks.
func (g *grant) turn() oracle.Turn {
	return oracle.Turn{Process: g.number, Weight: oracle.Weight(g.Shared()), Token: g.Token()}
}

// A portion is a set of permits that one acquisition took together.
type portion struct {
	process *memory.Process
	n       int
}

const lease = 3 * time.Second

func playSchedule(t *testing.T, seed uint64) (grants int) {
	s := &schedule{
		T: t, server: memory.NewServer(), rough: seed%2 == 1, dice: rand.New(rand.NewPCG(seed, 0)),
		held: make(map[*grant]bool), taken: make(map[second.Permit]portion), blows: make(map[*memory.Process]bool),
	}
	kind := seed / 4 % 4
	s.server.OwnTTL, s.server.Apart = kind == 2, kind == 3
	if kind%2 == 1 {
		s.server.As = []func(*memory.Process, queue.Store) queue.Store{1: asFollower, 3: asApart}[kind]
	}
	for i := range 3 {
		s.processes = append(s.processes, s.server.Dial(fmt.Sprint("p", i), lease, nil))
	}
	synctest.Wait()
	s.server.Script(s.fault)
	var work sync.WaitGroup
	live := s.work
	s.path = "/l"
	if seed%4 < 2 && kind != 3 { // the store of kind 3, in which each contender has its own session, has no permits
		live, s.path = s.workWithPermits, "permits of /l"
	}
	for i := range 6 {
		work.Go(func() { live(s.processes[i%3]) })
	}
	if s.rough {
		work.Go(s.strike)
	}
	work.Wait()
	s.server.Script(nil)
	time.Sleep(3 * lease) // waits until late commands are executed, and until audits have found the contenders of these commands
	synctest.Wait()
	need.Empty(s, "left in the queue", s.server.Queue(s.path))
	for i, p := range s.processes {
		need.Equal(s, fmt.Sprintf("kept by process %d", i), p.Left(), 0)
		p.Close()
	}
	return s.grants
}

// roll returns a random number below n.
func (s *schedule) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dice.IntN(n)
}

func (s *schedule) chance(percent int) bool { return s.roll(100) < percent }

func (s *schedule) upTo(d time.Duration) time.Duration {
	return time.Duration(s.roll(int(d/time.Microsecond))) * time.Microsecond
}

// fault chooses the fault of a command. Commands about sessions have no fault here, because only blow and strike end sessions.
func (s *schedule) fault(_ string, c queue.Command) (f memory.Fault) {
	f.Before, f.After = s.upTo(2*time.Millisecond), s.upTo(2*time.Millisecond)
	if c.Op == queue.Beat || c.Op == queue.Open {
		return f
	}
	switch s.roll(30) {
	case 0:
		f.Never = true
	case 1:
		f.Lost = true
	case 2:
		f.Lost, f.Again = true, s.upTo(lease)
	case 3:
		f.Before = s.upTo(lease)
	case 4:
		f.After = s.upTo(lease)
	case 5:
		f.Refused = queue.Failed
	case 6:
		switch c.Op {
		case queue.Leave, queue.Drop, queue.Weigh: // a contender whose removal is refused would stay until its session ends
		default:
			f.Refused = queue.Denied
		}
	}
	return f
}

// strike injects faults that end sessions and connections.
func (s *schedule) strike() {
	for range 3 {
		time.Sleep(s.upTo(lease))
		p := s.processes[s.roll(3)]
		switch s.roll(4) {
		case 0:
			heal := p.Cut()
			time.Sleep(s.upTo(3 * lease / 2))
			heal()
		case 1:
			thaw := s.server.Freeze()
			time.Sleep(s.upTo(3 * lease / 2))
			thaw()
		case 2:
			s.blow((*memory.Server).Expire)
		case 3:
			s.blow((*memory.Server).Remove)
		}
	}
}

// blow calls f with a random contender in a queue.
func (s *schedule) blow(f func(s *memory.Server, path string, i int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list := s.server.Queue(s.path); len(list) > 0 {
		i := s.dice.IntN(len(list))
		for _, p := range s.processes {
			if fmt.Sprintf("p%d", slices.Index(s.processes, p)) == list[i].Label {
				s.blows[p] = true
			}
		}
		f(s.server, s.path, i)
	}
}

// work is the loop of one goroutine that takes locks.
func (s *schedule) work(p *memory.Process) {
	for range 6 {
		time.Sleep(s.upTo(100 * time.Millisecond))
		mode := []second.Mode{second.Exclusive, second.Writing, second.Reading}[s.roll(3)]
		l := need.Get(p.Claim("/l", second.Options{Mode: mode}))(s)
		for g := s.ask(p, l.Acquire); g != nil; {
			g = s.turn(p, l, g)
		}
	}
}

// ask tries to get a grant, with a context that may end at any time.
func (s *schedule) ask(p *memory.Process, acquire func(context.Context, *second.Wait) (second.Grant, error)) *grant {
	ctx, cancel := context.WithTimeout(s.Context(), 10*lease)
	if s.chance(40) {
		ctx, cancel = context.WithTimeout(s.Context(), s.upTo(200*time.Millisecond))
	}
	defer cancel()
	deadline, _ := ctx.Deadline()
	g, err := acquire(ctx, new(second.Wait))
	need.AtMost(s, "a call went on after its end for", time.Since(deadline), lease/3)
	if err != nil {
		return nil
	}
	return s.granted(&grant{Grant: g, process: p})
}

// granted checks a grant that the store has just made.
func (s *schedule) granted(g *grant) *grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants++
	if err := g.Err(); err != nil && !s.rough {
		s.Errorf("handed out lost: %v", err)
	} else if err != nil || s.blows[g.process] {
		return g
	}
	l := oracle.Lock{Room: oracle.Everybody, Tokens: s.tokens}
	for h := range s.held {
		if h.Err() == nil && !s.blows[h.process] {
			l.Inside = append(l.Inside, h.turn())
		}
	}
	g.number = s.grants
	l, wrong := l.Enter(g.turn())
	if wrong != nil {
		s.Error(wrong)
	}
	s.served(g.Token(), func(c second.Contender) bool { return !(c.Shared && g.Shared()) })
	s.held[g], s.tokens = true, l.Tokens
	return g
}

// served checks that the grant with this token was not made while contenders with lower tokens wait.
func (s *schedule) served(token int64, waits func(second.Contender) bool) {
	var waiting []oracle.Waiter
	for _, c := range s.server.Queue(s.path) {
		if waits(c) {
			waiting = append(waiting, oracle.Waiter{Name: c.ID, Came: c.Token})
		}
	}
	if err := oracle.Served(oracle.Waiter{Name: fmt.Sprint("token ", token), Came: token}, waiting); err != nil {
		s.Error(err)
	}
}

// turn holds the lock for a while. If it requeues, it returns the new grant.
func (s *schedule) turn(p *memory.Process, l second.Claim, g *grant) *grant {
	time.Sleep(s.upTo(50 * time.Millisecond))
	switch s.roll(5) {
	case 0:
		g.Contended().For()
	case 1:
		l.Revoke(s.Context())
	case 2:
		ctx, cancel := context.WithTimeout(s.Context(), s.upTo(20*time.Millisecond))
		go func() {
			defer cancel()
			g.Share(ctx)
		}()
		time.Sleep(s.upTo(50 * time.Millisecond))
	}
	if s.chance(5) {
		time.Sleep(s.upTo(2 * lease))
	}
	if !s.rough && g.Err() != nil {
		s.Errorf("lost without a blow: %v", g.Err())
	}
	s.mu.Lock()
	delete(s.held, g)
	s.mu.Unlock()
	if s.chance(30) {
		return s.ask(p, func(ctx context.Context, w *second.Wait) (second.Grant, error) { return l.Requeue(ctx, g.Grant, w) })
	}
	if err := g.Release(); err != nil && !s.rough || err != nil && !errors.Is(err, second.ErrLost) {
		s.Errorf("Release: %v", err)
	}
	return nil
}

const permits = 3

// workWithPermits is the loop of one goroutine that takes permits. At the head of the queue, the goroutine may take fewer permits than it
// has asked for.
func (s *schedule) workWithPermits(p *memory.Process) {
	l, err := p.Semaphore("/l", permits, second.Options{})
	need.OK(s, err)
	for range 6 {
		time.Sleep(s.upTo(100 * time.Millisecond))
		want, least := 1+s.roll(permits), 1+s.roll(permits)
		d := &second.Demand{Want: func() int { return want }, Take: func(free int) int {
			if free < least {
				return 0
			}
			return min(want, free)
		}}
		ctx, cancel := context.WithTimeout(s.Context(), 10*lease)
		if s.chance(40) {
			ctx, cancel = context.WithTimeout(s.Context(), s.upTo(200*time.Millisecond))
		}
		var all []second.Permit
		if s.chance(20) {
			all, err = l.TryAcquire(ctx, want)
		} else {
			all, err = l.Acquire(ctx, d)
		}
		cancel()
		for err == nil && len(all) > 0 {
			s.has(p, all[0], len(all))
			time.Sleep(s.upTo(50 * time.Millisecond))
			k := 1 + s.roll(len(all))
			if loss := all[0].ErrAt(p.Now()); loss != nil && !s.rough {
				s.Errorf("lost without a blow: %v", loss)
			}
			s.has(p, all[0], len(all)-k)
			if err := l.Release(all[:k]); err != nil && !s.rough || err != nil && !errors.Is(err, second.ErrLost) {
				s.Errorf("Release: %v", err)
			}
			all = all[k:]
		}
	}
}

// schedule.has records that a process keeps n permits of a portion from now on. It checks that all processes together have no more than the
// total.
func (s *schedule) has(p *memory.Process, c second.Permit, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.taken[c]; !known {
		s.grants++
		s.served(c.Token(), func(q second.Contender) bool { return q.Permits == 0 && c.ErrAt(p.Now()) == nil })
	}
	s.taken[c] = portion{p, n}
	sum := 0
	for c, portion := range s.taken {
		if c.ErrAt(portion.process.Now()) == nil && !s.blows[portion.process] {
			sum += portion.n
		}
	}
	need.That(s, fmt.Sprintf("%d permits at a time, of %d", sum, permits), oracle.Room(permits).Fits(int64(sum)))
}

// A follower is a store that sends notifications only about contenders between Follow and Unfollow.
type follower struct {
	queue.Store
	process *memory.Process
	asked   *sync.Map // by ID
	session *atomic.Value
}

func asFollower(p *memory.Process, s queue.Store) queue.Store {
	f := follower{s, p, new(sync.Map), new(atomic.Value)}
	p.Deliver(func(m queue.Record) (lose bool) {
		_, asked := f.asked.Load(m.Answer.View.ID)
		return m.Command.Op == "" && !asked
	})
	return f
}

func (f follower) Do(ctx context.Context, c queue.Command) queue.Answer {
	f.session.Store(c.Session)
	return f.Store.Do(ctx, c)
}

func (f follower) Follow(r queue.Ref) {
	f.asked.Store(r.ID, true)
	look := queue.Command{Op: queue.Look, Session: f.session.Load().(string), Ref: r}
	f.process.Spawn(func() {
		if a := f.Store.Do(f.process.Context(), look); a.Outcome == queue.Done {
			f.process.Tell(a.View)
		}
	})
}

func (f follower) Unfollow(r queue.Ref) { f.asked.Delete(r.ID) }

// The type apart is a store in which each contender has its own session, which is bound to a connection.
type apart struct {
	queue.Store
	process *memory.Process
}

func asApart(p *memory.Process, s queue.Store) queue.Store { return apart{s, p} }

func (s apart) Do(ctx context.Context, c queue.Command) queue.Answer {
	a := s.Store.Do(ctx, c)
	if a.View.Known && (c.Op == queue.Enter || c.Op == queue.Try) {
		s.process.Spawn(func() { s.renew(c, a.View.Token) })
	}
	return a
}

// renew renews the session of a contender as long as the contender is in the queue.
func (s apart) renew(c queue.Command, token int64) {
	for queues := true; queues && retry.Pause(s.process.Context(), lease/4) == nil; {
		ctx, cancel := context.WithTimeout(s.process.Context(), s.process.Patience())
		sent := s.process.Now()
		a := s.Store.Do(ctx, queue.Command{Op: queue.Beat, Session: c.Session, Among: []queue.Ref{c.Ref}})
		cancel()
		for _, v := range a.Views {
			v.Sent, queues = sent, v.Known && v.Token == token
			s.process.Tell(v)
		}
	}
}
