// Package tiertest is the suite that every second tier has to pass: what [second.Tier] promises, each promise a test.
//
// A tier's own tests bring a [Harness], which makes processes and troubles them, and call [Run]. What is promised is
// judged by what several processes saw and by a look from outside, never by the word of the tier alone. At the end Run
// logs the table of promises, which [Table.Record] keeps in a file.
//
// # What to bring
//
// Dial and Left are needed in any case. For whatever else is nil, the promises that need it are reported as not
// available. The store can be used by all tests, since each has a lock path of its own. A test that troubles the whole store,
// counts writes or counts goroutines runs while no other does.
//
// The same suite runs in virtual time, in a bubble of testing/synctest, if the harness and all it talks to are made
// there. Only then are short times judged exactly. On a machine that has other things to do, processes have leases that
// do not run out meanwhile, but for those that are to lose one, and what is judged is what comes before what.
package tiertest

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// With runs test with a harness, until whose end everything belongs to t: in a bubble, if time is to be virtual.
type With func(t *testing.T, test func(*testing.T, Harness))

// A Harness is a store, and what can be done to it.
type Harness struct {
	// Lease is for how long the store keeps what a silent process has: a session timeout, a time to live. It is the
	// lease of processes whose end is waited for, a few seconds at most. The store may take as long again, since a server
	// that takes over may begin anew.
	Lease time.Duration
	// Virtual says that time is: then no machine is slow, and all processes have that lease.
	Virtual bool
	// Gate has the promises of the gate tested in real time, too. They follow from those of the tier, so one store is enough.
	Gate bool
	// Unpromised are the promises that the tier does not make, by the names of their tests, and why. The suite shows that
	// they are not kept.
	Unpromised map[string]string
	// Dial starts a process with that lease: a tier with a connection of its own. The suite closes it.
	Dial func(testing.TB, time.Duration) *Process
	// Left is how many contenders there are for the lock at path, seen from outside the library, by a read that sees all
	// writes before it. It may be anything below zero while the store does not answer.
	Left func(path string) int
	// LeftPermits is Left for the semaphore at path: one for each that waits, and at least one for each that has permits. It is
	// not needed of a tier whose Semaphore wraps [errors.ErrUnsupported].
	LeftPermits func(path string) int

	// Writes is how many durable writes the processes of this harness have made, without those that keep their sessions.
	Writes func() int64
	// Remove deletes the i-th contender at path, from 0 for the holder, as an operator would.
	Remove func(path string, i int)
	// Freeze stops the store, which keeps connections and answers nobody, until thaw.
	Freeze func() (thaw func())
	// Failover has another server take over, and returns when it serves.
	Failover func()
	// Forgets says that the server that takes over may not know all that the one before has granted.
	Forgets bool
	// Restart ends the store and starts it on the same data, and returns when it serves.
	Restart func()
}

// A Process is the tier of one process, and what can be done to that process alone.
type Process struct {
	second.Tier

	// Cut keeps everything from getting through between the process and the store, and tells neither, until heal.
	Cut func() (heal func())
	// Kill ends the process, which says nothing to the store any more. The tier is closed when it returns.
	Kill func()
	// Messages has hook see each message to the process before that does: the answer to a request that was executed, or
	// an event; none of those that keep a session. One for which hook returns true is lost, as the transport loses
	// messages: with its connection, if that is a stream. The hook may be called concurrently, and may wait. Nil ends it.
	Messages func(hook func() (lose bool))
	// Blind does to the process what a stop does: no timer tells it of the end of the lease of a grant. Only who looks
	// at the clock knows.
	Blind func(second.Grant)
	// Sleep has the machine of the process, as the clock of a grant's lease sees it, sleep for so long. It needs Blind.
	Sleep func(second.Grant, time.Duration)
}
