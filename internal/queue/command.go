// Package queue implements the life of a contender in a store that keeps queues. A contender enters a queue, waits, gets the lock, shares
// it, enters again at the tail, and leaves or loses its place. The package also opens and renews the sessions of the contenders. It is
// the second tier of every store but ZooKeeper.
//
// A [Store] translates commands into the language of its server, delivers the server's notifications, and classifies its errors. Commands
// and answers are values, so that tests can record and replay them.
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
	// Do executes a command in one round trip. It returns when the answer arrives or ctx ends. A Beat that takes several round trips may
	// wait [Tier.Patience] for each of them. Do does not repeat a request that may have been executed.
	Do(ctx context.Context, c Command) Answer
	// Name returns a name for a contender that is about to enter under a session. No other contender of this process has that name, whether
	// it is in a queue or a late command may still create it.
	Name(session string) string
	// Close returns when all goroutines of the store have ended. It is called after the last command. Calls of Do whose ctx has ended may
	// still be about to return.
	Close()
}

// A Follower is a store that reports the state of a contender only between Follow and Unfollow. Stores that are not Followers always report
// it. A Follower may use a name again once the contender with that name is known to be removed. Each of its notifications therefore has the
// Token of the Ref, even if it says that the contender is missing. A late notification is then not taken for one about the next contender
// of that name.
type Follower interface {
	// Follow makes the store call [Tier.Tell] with the state of a contender, and again after each change, until Unfollow. Both methods return
	// at once, and may call Tell.
	Follow(Ref)
	Unfollow(Ref)
}

// A Ref is what a store needs in order to find a contender.
type Ref struct {
	Path  string
	ID    string
	Reads bool  // it entered as a reader
	Token int64 // 0 while it is not known

	// Permits is the total number of permits of a semaphore. It is 0 for a lock; a lock and a semaphore at the same path have separate
	// queues. A contender has its permits if its weight plus the weights of all contenders ahead is at most the number in the store. That
	// number was set by a Resize. Without a Resize, it is the number with which the present contenders entered. An Enter or a Try with
	// another number is Denied, even if the permits are taken and it would otherwise be Locked. The answer has [second.ErrTooManyPermits]
	// and the right number.
	Permits int
}

// A Command is one request to a store.
type Command struct {
	Op      Op
	Session string
	Ref                   // the contender; with List and Ask, only the Path and Permits of the queue
	Writes  bool          // the contender is the writer of a reader/writer lock, and no mutex
	Weight  int           // how many permits the contender wants
	Linger  time.Duration // part of the description of the contender; see [second.Options.MayLinger]
	Old     Ref           // the contender that an Enter removes; if its ID is empty, the Enter removes none
	Among   []Ref
	// Unsettled, with Leave and with an Enter that removes Old, says that a write under the contender that leaves may still take effect.
	Unsettled bool
	Data      []byte // with Save: the value to store; nil removes the stored value
	Turn      int64  // with Save: how many Saves the contender has sent, this one included
}

// An Op is the kind of a command. A store answers an unknown Op with Denied and [errors.ErrUnsupported]. Several places list all Ops. To
// add one, search for Weigh in the Go code, and for 'weigh' in the scripts, and look at stress/internal/trace.
type Op string

const (
	Open    Op = "open"    // open a session
	Beat    Op = "beat"    // renew a session, and the contenders Among
	Audit   Op = "audit"   // list the contenders that queue under a session
	Drop    Op = "drop"    // delete orphaned contenders (Among) from their queues; skip a queue that another transaction has locked
	Goodbye Op = "goodbye" // end a session, and remove the contenders Among
	Enter   Op = "enter"   // append the contender to the queue, and remove Old
	Try     Op = "try"     // append the contender to the queue if it gets the lock at once
	Look    Op = "look"    // read the state of the contender
	Share   Op = "share"   // make the contender a reader
	Weigh   Op = "weigh"   // reduce the permits that the contender wants or has to Weight
	Leave   Op = "leave"   // remove the contender; if Session is empty, it may be one of any process
	List    Op = "list"    // read the queue
	Ask     Op = "ask"     // ask the holders to give the lock up
	Save    Op = "save"    // store Data beside the lock, unless a later Turn of the holder was stored; Gone if it does not have the lock
	Load    Op = "load"    // read the value that was saved beside the lock
	Resize  Op = "resize"  // set the number of permits at the path to that of the Ref; holders keep their permits
)

// An Outcome says what happened to a command: whether it was executed, and if not, why.
type Outcome int

const (
	Unknown Outcome = iota // it may have been executed, or may be executed later
	Done                   // executed
	Failed                 // not executed; the command can be sent again
	Denied                 // not executed; sending the command again would not help
	Locked                 // a Try was not executed, because the lock is taken
	Gone                   // not executed, because a contender was not found: the one to change, or the Old one of an Enter
	Expired                // not executed, because the session has ended
)

// An Answer is what a store says to a command.
type Answer struct {
	Outcome Outcome
	Err     error // why the Outcome is not Done; the caller adds the package and the path
	Away    error // why the store cannot be reached or serves no request; also set if ctx has ended; nil if the store has answered
	Begun   bool  // a command that was Denied may have been executed in part

	View          View    // by Enter, Try, Look, Share, Weigh: the state of the contender
	Permits       int     // by an Enter or a Try that is Denied because of its number of permits: the number in the store
	Views         []View  // by Beat: states of contenders in Among that get no notifications; applied before the lease is extended
	Removed       Removal // by Leave: whether the contender was removed; by Enter: whether Old was removed
	InGracePeriod bool    // by Try: the Outcome is Locked only because the store is in a grace period

	Name string        // by Open: the name of the session
	TTL  time.Duration // by Open: the TTL of the session
	// By Beat: the store may have been set back to an earlier state. Effects of earlier commands may be undone, and a queue may have
	// contenders of this process that the process does not know. The caller runs an audit to find them.
	Doubt   bool
	Present []Ref              // by Audit: the contenders
	Queue   []second.Contender // by List; in a queue for permits, all have Of, and only those with their permits have Permits
	Value   *second.Value      // by Load; nil if nothing was saved
}

// refusal returns why a command has to be sent again. It returns nil if the answer is final.
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

// A Removal is the result of a command that removes a contender.
type Removal int

const (
	Removed Removal = iota // the contender is not in the queue; it was removed, or it is unknown whether it was there
	Missing                // the contender was not in the queue
	Kept                   // the contender may still be in the queue
)

// A View is the state of a contender, from an answer or a notification. The method takes of [Contender] has a table of what a view means.
type View struct {
	ID    string
	Known bool  // the contender is in the queue
	Token int64 // the token of its place; some stores assign it with the grant, and it is 0 before
	// At orders the views of a contender. It is greater than 0: a time on the store's clock, a revision, or the time of the request.
	At int64
	// Sent is when the request was sent, on the clock of [Tier.Now]. It is 0 in a notification, because no request caused the notification.
	// In answers to commands, the tier sets it.
	Sent time.Duration
	// Err, if Known is true, is why the state of the contender cannot be read. If Known is false, it is why the contender cannot stay, or has
	// lost the lock.
	Err error

	Has     bool // the contender has the lock, or its permits
	Reads   bool
	Asked   bool             // a process has asked the contender to give the lock up
	Behind  bool             // another contender waits because of this one
	Reader  bool             // the next contender behind is a reader
	Of      int              // the total number of permits; 0 for a lock
	Free    int              // for a waiter: Of less what all contenders ahead want or have; 0 or less if one of them waits
	Waiting int              // how many other contenders wait for permits
	Ahead   int              // how many contenders ahead block this one; for permits, how many wait ahead of it
	Nearest second.Contender // the last of the contenders that Ahead counts

	Again         time.Duration // how long a waiter waits before it looks again; 0 if the store will notify it
	Yield         time.Duration // how long the holder may keep the lock from programs that do not use the queue; 0 if none wait
	InGracePeriod bool          // the contender does not have the lock only because the store is in a grace period
}

// A Record is a command that was sent, its answer, or a notification.
type Record struct {
	Number       int64         // the number of the command in this process; 0 for a notification, which is in Answer
	Sent         bool          // the command was just sent, and has no answer yet
	Begun, Ended time.Duration // times on the clock of [Tier.Now]
	Command      Command
	Answer       Answer
}
