// Package queue implements the life of a contender in a store that keeps queues: session after session it enters, waits, has the lock,
// enters again at the tail, shares it, loses it or leaves. It is the second tier of every store but ZooKeeper.
//
// A [Store] translates commands into its own language, delivers its notifications, and says what its errors mean. Commands and answers
// are values, so that they can be written down and replayed.
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
	// Do executes a command in one round trip, and returns once it is answered, at the end of ctx at the latest. A Beat that takes several
	// round trips may wait [Tier.Patience] for each of them. Do does not repeat what may have been executed.
	Do(ctx context.Context, c Command) Answer
	// Name returns a name for a contender that is about to enter under a session. No other contender of this process has that name, none in
	// the queue, and none that may still enter.
	Name(session string) string
	// Close returns when the store has no goroutine left. It is called after the last command. Only commands of callers whose ctx has ended
	// may still be about to return.
	Close()
}

// A Follower is a store that reports the state of a contender only between Follow and its end. Other stores always report it. Such a
// store may use a name again once a contender is known to be removed. Each of its notifications therefore has the Token of the Ref, also
// one that says that the contender is missing.
type Follower interface {
	// Follow makes the store report, through [Tier.Tell], the state of a contender and each change of it, until Unfollow. Both return at
	// once, and may call Tell.
	Follow(Ref)
	Unfollow(Ref)
}

// A Ref is what a store needs in order to find a contender.
type Ref struct {
	Path  string
	ID    string
	Reads bool  // it entered as a reader
	Token int64 // 0 as long as it is not known

	// Permits is the number of permits that the program gave. It is 0 for a lock, which has a queue of its own at the same path. A contender
	// has its permits if its weight and the weights of all ahead are no more than the number in the store. That is the number set by a
	// Resize, and otherwise the one with which the present contenders entered. An Enter or a Try with another number is Denied with
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
	Data    []byte // of Save: what to keep, nil for nothing
	Turn    int64  // of Save: its number among those of the contender
}

// An Op says what a command asks for. A store denies one that it does not know, with [errors.ErrUnsupported]. Whoever adds an Op finds
// all places that list them by searching for Weigh, for 'weigh' in scripts, and in stress/internal/trace.
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
	Save    Op = "save"    // keep Data beside the lock, unless a higher Turn of the contender is there; Gone if it does not have the lock
	Load    Op = "load"    // what was saved beside the lock
	Resize  Op = "resize"  // there are as many permits at the path as the Ref says, from now on; those that have some keep them
)

// An Outcome says what happened to a command: whether it was executed, and if not, why.
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
	// By Beat: the store may have gone back in time. Effects of earlier commands may be undone, and the queues may have contenders of ours
	// that this process does not know. The caller runs an audit to find them.
	Doubt   bool
	Present []Ref              // by Audit
	Queue   []second.Contender // by List; of permits with Of, and with Permits those that have some
	Value   *second.Value      // by Load, nil if nothing was saved
}

// refusal returns why a command has to be sent again, and nil if it need not be.
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

// A Removal says whether a contender that was to be removed was found and removed.
type Removal int

const (
	Removed Removal = iota // or it cannot be told whether it was there
	Missing                // it was not there
	Kept                   // it may still be there
)

// A View is the state of a contender, from an answer or a notification.
type View struct {
	ID    string
	Known bool  // it queues
	Token int64 // of its place; 0 where that has none before it has the lock
	// At orders views as the store sees them. At is above 0: the store's clock, a revision, or the time of the request.
	At int64
	// Sent is when the request was sent, on the clock of [Tier.Now]. It is 0 for a notification, which no request caused. The tier sets it
	// in answers to commands.
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

// A Record is a command that was sent, its answer, or a notification.
type Record struct {
	Number       int64         // of the command in this process; 0: the answer has news
	Sent         bool          // it has no answer yet
	Begun, Ended time.Duration // by the clock of [Tier.Now]
	Command      Command
	Answer       Answer
}
