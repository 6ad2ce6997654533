// Package queue is the life of a contender in a store that keeps queues: session after session it enters, waits, has the
// lock, enters again at the tail, shares it, loses it or leaves. It is the second tier of every store but ZooKeeper.
//
// A [Store] says how a command is spelled in its language, how it tells news, and what its errors mean. Commands and
// answers are values, so that they can be written down and replayed.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Store executes commands. Its methods may be called concurrently.
type Store interface {
	// Do executes a command, in one round trip, and returns once it is answered, or at the end of ctx at the latest; a Beat
	// that takes several may wait for each of them as long as that is worth. It does not repeat what may have been executed.
	Do(ctx context.Context, c Command) Answer
	// Name returns one for a contender that is yet to enter under a session. No other of the process has it, nor any in the queue, nor one
	// that may still enter.
	Name(session string) string
	// Close leaves no goroutine. It follows the last command, but for those of callers whose ctx has ended: they may be about to return.
	Close()
}

// A Follower is a store that reports the state of a contender only between Follow and its end. Other stores always report it. Its names may
// be used again, from when a contender is known to be removed; so all that it tells has the Token of the Ref, also of one that is missing.
type Follower interface {
	// Follow has the store tell, by [Tier.Tell], how a contender stands and each change, until Unfollow. Both return at once, and
	// may call Tell.
	Follow(Ref)
	Unfollow(Ref)
}

// A Ref is what a store has to know to find a contender.
type Ref struct {
	Path  string
	ID    string
	Reads bool  // it entered as a reader
	Token int64 // 0 as long as it is not known

	// Permits is the number of permits that the program gave, and 0 for a lock, which is another queue. A contender has its permits
	// if its weight and the weights of all ahead are no more than the number in the store. That is the number set by a Resize,
	// and otherwise the one with which the present contenders entered. An Enter or a Try with another number is Denied with
	// [second.ErrTooManyPermits] and the right number, even if it would be Locked.
	Permits int
}

// A Command is one request to a store.
type Command struct {
	Op      Op
	Session string
	Ref                   // the contender; of List and Ask the queue alone: Path and Permits
	Weight  int           // how many permits it wants
	Linger  time.Duration // what it says of itself
	Old     Ref           // the contender that an Enter removes, none if it has no ID
	Among   []Ref
}

// An Op says what a command asks for. A store denies one that it does not know, with [errors.ErrUnsupported]. Who makes a new one finds
// those who list them by the use of Weigh, also as 'weigh' in a script, and in package trace of stress.
type Op string

const (
	Open    Op = "open"    // a session
	Beat    Op = "beat"    // renew a session, with those Among
	Audit   Op = "audit"   // who queues under a session
	Drop    Op = "drop"    // delete orphaned contenders (Among) from their queues, except in a queue that is locked
	Goodbye Op = "goodbye" // end a session, with those Among
	Enter   Op = "enter"   // queue behind all others, and remove Old
	Try     Op = "try"     // queue if the lock is free
	Look    Op = "look"    // how does it stand
	Share   Op = "share"   // it reads from now on
	Weigh   Op = "weigh"   // it wants no more than Weight permits, or has none above that, from now on
	Leave   Op = "leave"   // remove it; without a Session it may be that of any process
	List    Op = "list"    // the queue
	Ask     Op = "ask"     // ask those that have the lock to give it up
	Resize  Op = "resize"  // there are as many permits at the path as the Ref says, from now on; those that have some keep them
)

// An Outcome is what became of a command.
type Outcome int

const (
	Unknown Outcome = iota // it may have been executed, or may yet be
	Done                   // executed
	Failed                 // not executed, and worth another try
	Denied                 // not executed, and never will be as things stand
	Locked                 // of a Try: the lock is taken
	Gone                   // not executed: an Enter has not found the contender that it was to remove
	Expired                // not executed: there is no such session any more
)

// An Answer is what a store says to a command.
type Answer struct {
	Outcome Outcome
	Err     error // why it is not Done, without the package and the path, which are put before it
	Away    error // why the store cannot be reached, or does not serve, also if it is ctx that has ended; nil if it does
	Begun   bool  // what was Denied may have been executed in part

	View          View    // of Enter, Try, Look, Share and Weigh
	Permits       int     // of an Enter or a Try that is Denied because it has another number: how many there are
	Views         []View  // of Beat: the state of contenders in Among without notifications; applied before the session counts as renewed
	Removed       Removal // of Leave, and by Enter of Old
	InGracePeriod bool    // of Try: Locked, as the store grants nothing

	Name string        // of the session, by Open
	TTL  time.Duration // by Open
	// By Beat: the store may have gone back in time. What it has answered before may be undone, and contenders of ours may be in queues,
	// unknown to us. An audit tells.
	Doubt   bool
	Present []Ref              // by Audit
	Queue   []second.Contender // by List; of permits with Of, and with Permits those that have some
}

// refusal is why a command has to be sent again, nil if it has not to.
func (a Answer) refusal() error {
	switch {
	case a.Outcome != Failed && a.Outcome != Unknown:
		return nil
	case a.Err == nil:
		return second.Unavailable(cmp.Or(a.Away, errNoReason))
	case a.Outcome == Unknown && a.Away != nil:
		return second.Unavailable(fmt.Errorf("no answer: %w", a.Err))
	}
	return second.Unavailable(a.Err)
}

var errNoReason = errors.New("not executed, for an unknown reason")

// A Removal is what became of a contender that was to be removed.
type Removal int

const (
	Removed Removal = iota // or it cannot be told whether it was there
	Missing                // it was not there
	Kept                   // it may still be there
)

// A View is how a contender stands: an answer, or news.
type View struct {
	ID    string
	Known bool  // it queues
	Token int64 // of its place; 0 where that has none before it has the lock
	// The order of views, by the store, above 0: its clock, a revision, or when it was asked.
	At int64
	// Sent is when the store was asked, by the clock of [Tier.Now], and 0 of what was told unasked. The answer to a command gets it
	// from the tier.
	Sent time.Duration
	Err  error // if known, why it cannot be told how it stands; if not, why it cannot stay, or has lost the lock

	Has     bool // the lock
	Reads   bool
	Asked   bool             // to give the lock up
	Behind  bool             // another contender waits because of it
	Reader  bool             // the one right behind reads
	Of      int              // permits that there are, 0 for a lock
	Free    int              // permits that no contender ahead wants, if it does not have its own; 0 or less if any contender waits ahead
	Waiting int              // others who wait for permits
	Ahead   int              // how many keep the lock from it; of permits, how many wait before it
	Nearest second.Contender // of those, the one right ahead

	Again         time.Duration // after which to look again while it waits; 0 if it will be told. Of a holder a Beat tells
	Yield         time.Duration // after this time the holder leaves the lock for a moment to those who are in no queue; 0 if there are none
	InGracePeriod bool          // it does not have the lock as the store grants nothing
}

// A Record is a command that was sent, or its answer, or news.
type Record struct {
	Number       int64         // of the command in this process; 0: the answer has news
	Sent         bool          // it has no answer yet
	Begun, Ended time.Duration // by the clock of [Tier.Now]
	Command      Command
	Answer       Answer
}
