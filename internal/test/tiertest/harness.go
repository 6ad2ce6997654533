// Package tiertest is the suite that every second tier has to pass: each promise of [second.Tier] is a test.
//
// A tier's own tests implement a [Harness], which starts processes and injects faults, and call [Run]. A promise is checked by what
// several processes see, and by reads from outside of the library, never by the answers of one tier alone. At the end Run logs the table
// of promises, which [Table.Record] writes to a file.
//
// # What to bring
//
// Dial and Left are always required. If another function is nil, the promises that need it are reported as not available. All tests use
// the same store, since each has a lock path of its own. A test that disturbs the whole store, counts writes or counts goroutines runs
// alone.
//
// The same suite runs in virtual time, in a bubble of testing/synctest, if the harness and all that it uses are created there. Only then
// are short times checked exactly. In real time, the machine may be busy. Processes that are not to lose their lease therefore have a
// long one, and the tests check the order of events.
package tiertest

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// With runs test with a harness. Everything belongs to t until test returns. If time is to be virtual, it does so in a bubble.
type With func(t *testing.T, test func(*testing.T, Harness))

// A Harness is a store, and the ways to disturb it.
type Harness struct {
	// Lease is how long the store keeps the contenders of a silent process: a session timeout, or a time to live. It is the lease of
	// processes whose expiry a test waits for, and should be a few seconds at most. The store may take twice as long, since a server that
	// takes over may start counting again.
	Lease time.Duration
	// Virtual says that time is virtual: no machine is slow then, and all processes have that lease.
	Virtual bool
	// Gate makes the suite test the promises of the gate in real time, too. The gate's promises follow from those of the tier, so it is
	// enough to set this for one store.
	Gate bool
	// Unpromised are promises that the tier does not make, by the names of their tests, with the reasons. The suite shows that these
	// promises are broken.
	Unpromised map[string]string
	// Dial starts a process with that lease: a tier with a connection of its own. The suite closes it.
	Dial func(testing.TB, time.Duration) *Process
	// Left returns how many contenders the lock at path has, by a read outside of the library that sees all earlier writes. While the store
	// does not answer, it returns a negative number.
	Left func(path string) int
	// LeftPermits is Left for the semaphore at path: it counts one for each waiter, and at least one for each holder of permits. A tier
	// whose Semaphore wraps [errors.ErrUnsupported] does not need it.
	LeftPermits func(path string) int

	// Writes returns how many durable writes the processes of this harness have made, without those that keep their sessions.
	Writes func() int64
	// Remove deletes the i-th contender at path, from 0 for the holder, as an operator would.
	Remove func(path string, i int)
	// Freeze stops the store until thaw: connections stay open, but get no answers.
	Freeze func() (thaw func())
	// Failover makes another server take over, and returns when it serves requests.
	Failover func()
	// Forgets says that the server that takes over may not know all earlier grants.
	Forgets bool
	// Restart stops the store and starts it on the same data, and returns when it serves requests.
	Restart func()
}

// A Process is the tier of one process, and the ways to disturb that process alone.
type Process struct {
	second.Tier

	// Cut blocks all traffic between the process and the store, without an error on either side, until heal.
	Cut func() (heal func())
	// Kill ends the process without a message to the store. The tier is closed when it returns.
	Kill func()
	// Messages calls hook for each message to the process before the process gets it: an answer to a request that was executed, or an event.
	// Messages leaves out messages that keep a session. If hook returns true, the message is lost as its transport would lose it: together
	// with its connection, if that is a stream. The hook may be called concurrently, and may block. A nil hook ends this.
	Messages func(hook func() (lose bool))
	// Blind has the effect of a stopped process: no timer reports the end of the lease of a grant. Only a caller that checks the clock sees
	// the end of the lease.
	Blind func(second.Grant)
	// Sleep makes the machine of the process sleep for a time, as the clock of a grant's lease sees it. Sleep requires Blind.
	Sleep func(second.Grant, time.Duration)
}
