package explore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// A Scope says what the processes of an exploration do.
type Scope struct {
	Processes int
	Calls     []Call // of each process, one for each of its goroutines
	Others    []Call // likewise of all but the first process, if those do something else
	Turns     int    // of each goroutine; 0 is 1
	Seam      bool   // over a scripted second tier, each call of which is one step; neither: over the store in memory
	ZooKeeper bool   // over a ZooKeeper in memory, each frame of which is one step
	Attached  bool   // likewise, over a connection that the client library has made
	Strict    bool   // nothing is handed on, but by rounds
	Rounds    bool
	Linger    time.Duration
	MaxWait   time.Duration
	Permits   int           // that there are; 0 is 2
	Traced    bool          // holds that are forgotten are to be found
	Early     bool          // calls may begin before there is a session
	Slow      time.Duration // the answer to a renewal takes so long
	Long      bool          // many steps, and many faults

	// The following faults are possible.
	Refuse bool          // the store refuses a command
	Partly bool          // likewise, and executes it all the same
	Late   bool          // a command is executed late, and not answered
	Renew  bool          // the renewals of a process are lost until its lease is over, or two of them are refused
	Lost   bool          // a request, an answer or news is lost; on ZooKeeper a connection, with all that is on its way there
	Cancel bool          // a wait ends
	Expire bool          // a session ends
	Cut    bool          // a process is cut off for longer than the store keeps its session
	Close  bool          // a registry is closed
	Stop   bool          // a registry is shut down
	Anew   bool          // the store grants nothing for a while
	Deaf   bool          // a process gets no notifications any more, and knows that
	Ask    bool          // a process asks for the lock
	Remove bool          // an operator removes a contender
	Clock  time.Duration // so much time passes

	// Of a ZooKeeper alone.
	Tick    time.Duration // of the ensemble; without one the leader hears of each request at once
	Bridged bool          // every other process makes the nodes of kazoo as well
	Hole    bool          // a frame is lost, and later its connection
	Mute    bool          // nothing gets through in one direction
	Still   bool          // the ensemble or a server stands still
	Away    bool          // a server refuses connections
	Lag     bool          // a server falls behind the leader
	Restart bool          // a process ends, and another one begins in its place
	Split   bool          // a server loses its leader, for good or but for a moment
	Forge   bool          // a process gets the answer that its session has expired, although it has not
	Wear    bool          // the numbers of nodes come to where they have to begin anew

	seed   seed   // a fault of the store or of the world, that a judge is to find; for tests of these
	ignore string // a judge that is not asked
}

// A Call is a way to acquire something that is released later.
type Call string

const (
	Lock      Call = "lock"
	Try       Call = "try"
	Nested    Call = "nested"          // and enters again
	Outer     Call = "outermost first" // and enters again, and releases what it had first
	Write     Call = "write"
	Read      Call = "read"
	Downgrade Call = "downgrade" // writes, and then reads
	Upgrade   Call = "upgrade"   // reads, and is refused to write
	One       Call = "one"       // permit
	Two       Call = "two"
	Three     Call = "three"  // where there are so many
	Both      Call = "both"   // of two locks
	Second    Call = "second" // lock
	Third     Call = "third"
	Guarded   Call = "guarded" // and writes under the lock, which the release does not wait for
	Yield     Call = "yield"   // and listens to Contended and RevokeRequested
	Lead      Call = "lead"    // is elected
	Do        Call = "do"      // does its work in a function
	Apart     Call = "apart"   // and tries to enter without its hold
	Named     Call = "named"   // lock, at the path of a name
	Wrong     Call = "wrong"   // asks for what cannot be
	Open      Call = "open"    // writes, and asks the store itself to let readers in
)

// A seed is a defect that is put in to test the checks.
type seed struct {
	store  func(queue.Store) queue.Store // as a process sees it
	mute   bool                          // there are no news
	deaf   bool                          // the end of a wait is not reported
	remove int                           // the contender at that place in the queue, from 1, is removed, and no check knows of it
	late   time.Duration                 // a grant reports less time since another contender has waited
	hasty  bool                          // a grant says that no write is under way
	silent bool                          // a release is not reported to observers
	loose  bool                          // the context of a hold does not end
	quiet  bool                          // nothing is logged
	terse  bool                          // an error is but its cause
	keeps  bool                          // a process has a lock in the end
	renews bool                          // renewals get through that are said to be lost
	blind  bool                          // no process looks for waiters
	opens  bool                          // who lets readers in goes on when it has nothing any more
}

// all returns the calls of all processes.
func (s Scope) all() []Call { return slices.Concat(s.Calls, s.Others) }

func (s Scope) any(of func(Call) bool) bool {
	return slices.ContainsFunc(s.Calls, of) || slices.ContainsFunc(s.Others, of)
}

func (s Scope) calls(c Call) bool { return slices.Contains(s.Calls, c) || slices.Contains(s.Others, c) }

func (s Scope) permits() int { return cmp.Or(s.Permits, 2) }

// ofMutex returns the options of a mutex; the others are those of the registry.
func (s Scope) ofMutex() []tier.Option {
	return []tier.Option{tier.WithLinger(s.Linger), tier.WithMaxWait(s.MaxWait)}
}

// Drawn returns a random scope for a long schedule, and how many steps of that are random.
func Drawn(seed uint64) (s Scope, steps int) {
	random := rand.New(rand.NewPCG(seed, 0))
	odds := func(one, of int) bool { return random.IntN(of) < one }
	s.Long = true
	switch n := random.IntN(10); {
	case n < 5:
		s.ZooKeeper = true
	case n < 7:
		s.Seam = true
	}
	s.Processes = 2 + random.IntN(4)
	s.Turns = 2 + random.IntN(6)
	mutexes := []Call{Lock, Lock, Try, Nested, Guarded, Yield, Do, Apart, Outer}
	calls := mutexes
	switch n := random.IntN(12); {
	case n < 5:
		calls = []Call{Read, Read, Read, Write, Downgrade, Upgrade}
	case n == 5:
		calls = []Call{Both, Both, Lock, Try}
	case n == 6 && !s.ZooKeeper:
		calls = []Call{Lead, Lock}
	}
	if several := !slices.Contains(calls, Both); several && odds(1, 2) { // requests leave together
		calls = append(calls, Second, Third)
	}
	if odds(1, 3) {
		calls = append(calls, One, Two)
	}
	draw := func(calls []Call) (drawn []Call) {
		for range 1 + random.IntN(4) {
			drawn = append(drawn, calls[random.IntN(len(calls))])
		}
		return drawn
	}
	s.Calls = draw(calls)
	switch random.IntN(4) {
	case 0, 1:
		s.Others = draw(calls)
	case 2: // a mutex of some is a reader/writer lock of others
		if slices.Contains(calls, Read) {
			s.Others = draw(mutexes)
		}
	}
	s.Strict, s.Rounds = odds(1, 4), odds(1, 6)
	if odds(1, 3) {
		s.Linger = []time.Duration{50 * time.Millisecond, time.Second}[random.IntN(2)]
	}
	if odds(1, 4) {
		s.MaxWait = []time.Duration{30 * time.Millisecond, time.Second, lease}[random.IntN(3)]
	}
	s.Clock = []time.Duration{time.Millisecond, budget, time.Second, lease / 3}[random.IntN(4)]
	if odds(1, 4) { // what is always there hides what happens without it
		return s, 100 + random.IntN(200)
	}
	faults := []*bool{&s.Cancel, &s.Expire, &s.Close, &s.Stop, &s.Ask}
	switch {
	case s.ZooKeeper:
		s.Tick = []time.Duration{0, lease / 12, lease / 6, lease/4 - 100*time.Millisecond}[random.IntN(4)]
		s.Bridged = odds(1, 2)
		faults = append(faults, &s.Lost, &s.Cut, &s.Remove, &s.Refuse, &s.Hole, &s.Mute, &s.Still, &s.Away, &s.Lag, &s.Split, &s.Forge, &s.Wear,
			&s.Restart)
	case s.Seam:
		faults = append(faults, &s.Remove)
	default:
		faults = append(faults, &s.Lost, &s.Cut, &s.Refuse, &s.Partly, &s.Late, &s.Renew, &s.Anew, &s.Deaf)
	}
	for _, fault := range faults {
		*fault = odds(2, 5)
	}
	if !s.ZooKeeper && !s.Seam && !s.Expire && odds(1, 2) { // an early end of a session shows in such an answer
		s.Slow = time.Second
	}
	if odds(1, 2) {
		s.Permits = 3
	}
	if s.calls(Both) { // which have no token that tells what was taken from them
		s.Remove = false
	}
	return s, 100 + random.IntN(300)
}
