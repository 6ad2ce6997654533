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
	Calls     []Call // the calls of each process, one for each of its goroutines
	Others    []Call // the calls of all processes but the first, if they differ from Calls
	Turns     int    // turns of each goroutine; 0 means 1
	// Seam uses a scripted store in which each call is one step. If neither Seam nor ZooKeeper is set, the scope uses the store in memory.
	Seam      bool
	ZooKeeper bool // use a ZooKeeper in memory, in which each frame is one step
	Attached  bool // the processes use connections that the client library has made; only with ZooKeeper
	Strict    bool // tier.WithStrictOrder: no hand-off within a process, except with Rounds
	Rounds    bool
	Linger    time.Duration
	MaxWait   time.Duration
	Permits   int           // number of permits; 0 means 2
	Traced    bool          // the registries use tier.WithLeakDetection, so log lines about holds contain stack traces
	Early     bool          // calls may begin before there is a session
	Slow      time.Duration // how long the answer to a renewal takes
	Long      bool          // many steps, and many faults

	// The following faults are possible.
	Refuse bool // the store refuses a command
	Partly bool // the store refuses a command, but executes it
	Late   bool // a command is executed late, and not answered
	Renew  bool // the renewals of a process are lost until its lease is over, or two of them are refused
	// A request, an answer or a notification is lost. On ZooKeeper a connection breaks, and everything under way on it is lost.
	Lost   bool
	Cancel bool          // the context of a waiting call ends
	Expire bool          // a session ends
	Cut    bool          // a process is cut off for longer than the store keeps its session
	Close  bool          // a registry is closed
	Stop   bool          // a registry is shut down
	Anew   bool          // the store grants nothing for a while
	Deaf   bool          // a process gets no notifications any more, and knows that
	Ask    bool          // a process asks for the lock
	Remove bool          // an operator removes a contender
	Clock  time.Duration // the amount of time that may pass in a step

	// The following fields are only for a ZooKeeper.
	Tick    time.Duration // the tick of the ensemble; 0: the leader learns of each request at once
	Bridged bool          // every other process also creates the second znodes, which are for kazoo
	Hole    bool          // a frame is lost, and later its connection
	Mute    bool          // messages of a session are blocked in one direction
	Still   bool          // the ensemble or a server answers nothing for a while
	Away    bool          // a server refuses connections
	Lag     bool          // a server falls behind the leader
	Restart bool          // a process ends, and another one begins in its place
	Split   bool          // a server loses its leader, forever or for a moment
	Forge   bool          // a process gets an answer that says that its session has expired, although it has not
	Wear    bool          // the sequence number of nodes reaches its maximum, after which the parent has to be deleted

	seed   seed   // a defect that a judge has to find; for tests of the judges
	ignore string // the name of a judge whose findings do not count
}

// A Call is a way to acquire something that is released later.
type Call string

const (
	Lock      Call = "lock"
	Try       Call = "try"
	Nested    Call = "nested"          // acquires the lock, and then acquires it again within the first hold
	Outer     Call = "outermost first" // like Nested, but releases the outer hold first
	Write     Call = "write"
	Read      Call = "read"
	Downgrade Call = "downgrade" // becomes a reader after it was a writer
	Upgrade   Call = "upgrade"   // tries to become a writer while it is a reader, which has to fail
	One       Call = "one"       // one permit
	Two       Call = "two"
	Three     Call = "three"  // only if there are three permits
	Both      Call = "both"   // acquires two locks together
	Second    Call = "second" // the second lock
	Third     Call = "third"
	Guarded   Call = "guarded" // makes a guarded write, and releases without waiting for its outcome
	Yield     Call = "yield"   // receives from Contended and RevokeRequested while it has the lock
	Lead      Call = "lead"    // wins an election
	Do        Call = "do"      // uses Mutex.Do
	Apart     Call = "apart"   // tries to acquire the lock again without its hold, which has to fail
	Named     Call = "named"   // the lock at the path that tier.Name returns for a name
	Wrong     Call = "wrong"   // makes invalid calls
	Open      Call = "open"    // as a writer, asks the store directly to let readers in
)

// A seed is a defect that a test puts in to see whether the checks find it.
type seed struct {
	store func(queue.Store) queue.Store // returns the defective store that replaces a process's store
	mute  bool                          // notifications are lost
	deaf  bool                          // the end of a call's context has no effect
	// remove is a place in the queue, counted from 1. The contender there is removed without the knowledge of the checks.
	remove int
	late   time.Duration // how much shorter than the truth a grant reports the wait of another contender
	hasty  bool          // a grant says that no write is under way
	silent bool          // a release is not reported to observers
	loose  bool          // the context of a hold does not end
	quiet  bool          // nothing is logged
	terse  bool          // an error contains only its cause
	keeps  bool          // a process still has a lock at the end
	renews bool          // renewals arrive that should be lost
	blind  bool          // no process looks for waiters
	opens  bool          // a writer does not stop letting readers in when its hold has ended
}

// Scope.all returns the calls of all processes.
func (s Scope) all() []Call { return slices.Concat(s.Calls, s.Others) }

func (s Scope) any(of func(Call) bool) bool {
	return slices.ContainsFunc(s.Calls, of) || slices.ContainsFunc(s.Others, of)
}

func (s Scope) calls(c Call) bool { return slices.Contains(s.Calls, c) || slices.Contains(s.Others, c) }

func (s Scope) permits() int { return cmp.Or(s.Permits, 2) }

// ofMutex returns the options of a mutex. All other options are options of the registry.
func (s Scope) ofMutex() []tier.Option {
	return []tier.Option{tier.WithLinger(s.Linger), tier.WithMaxWait(s.MaxWait)}
}

// Drawn returns a random scope for a long schedule, and the number of random steps in that schedule.
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
	if several := !slices.Contains(calls, Both); several && odds(1, 2) { // with several locks, requests may leave in groups
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
	case 2: // some processes use a mutex at the path where others use a reader/writer lock
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
	if odds(1, 4) { // a scope without faults, because frequent faults would hide some defects
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
	// If a session ends early, the process learns of that from the answer to a renewal. With Expire, that answer must not be slow.
	if !s.ZooKeeper && !s.Seam && !s.Expire && odds(1, 2) {
		s.Slow = time.Second
	}
	if odds(1, 2) {
		s.Permits = 3
	}
	if s.calls(Both) { // a hold of AcquireAll has no token, so the checks could not tell which contender an operator removed
		s.Remove = false
	}
	return s, 100 + random.IntN(300)
}
