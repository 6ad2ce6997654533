// Package tiertest is the suite that every second tier has to pass. Each promise of [second.Tier] is a test.
//
// A tier's own tests implement a [Harness], which starts processes and injects faults, and call [Run]. The suite checks a promise by what
// several processes see, and by reads from outside the library. It never relies on the answers of one tier alone. At the end, Run logs the
// table of promises. [Table.Record] writes that table to a file.
//
// # What to bring
//
// Dial and Left are always required. If another function is nil, the promises that need it are reported as not available. All tests use the
// same store, and each test has a lock path of its own. A test that disturbs the whole store, or counts writes or goroutines, runs alone.
//
// The same suite runs in virtual time if the harness, and everything that it uses, is created in a bubble of testing/synctest. The suite
// checks short times exactly only in virtual time. In real time, the machine may be busy. Therefore tests check the order of events there.
// A test that has to keep its lease gives its processes a longer lease than Lease.
package tiertest

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// With is a function that runs test with a harness. When test returns, everything that was created for it is removed, and errors are
// reported to t. If time is to be virtual, the function runs test in a bubble.
type With func(t *testing.T, test func(*testing.T, Harness))

// A Harness is a store, and the ways to disturb it.
type Harness struct {
	// Lease is how long the store keeps the contenders of a silent process: a session timeout, or a time to live. Processes have this lease
	// if a test waits for its expiry. It should be a few seconds at most. The store may take twice as long, because a server that takes
	// over may start counting again.
	Lease time.Duration
	// Virtual says that time is virtual. No machine is slow then, and all processes have the lease Lease.
	Virtual bool
	// Gate makes the suite test the promises of the gate in real time, too. These follow from the promises of the second tier. It is
	// therefore enough to set Gate for one store.
	Gate bool
	// Unpromised lists promises that the tier does not make: the names of their tests, with the reasons. The suite checks that such a
	// promise is really broken.
	Unpromised map[string]string
	// Dial starts a process with the given lease. The process is a tier with a connection of its own, which the suite closes.
	Dial func(testing.TB, time.Duration) *Process
	// Left returns the number of contenders for the lock at path. It asks the store without using the library, and sees all earlier writes.
	// While the store does not answer, it returns a negative number.
	Left func(path string) int
	// LeftPermits is like Left, for the semaphore at path. It counts one for each waiter, and at least one for each holder of permits. A tier
	// needs no LeftPermits if its method Semaphore returns an error that wraps [errors.ErrUnsupported].
	LeftPermits func(path string) int

	// Writes returns how many durable writes the processes of this harness have made. Writes that keep sessions alive do not count.
	Writes func() int64
	// Remove deletes the contender at place i of the queue at path, as an operator would. The holder has place 0.
	Remove func(path string, i int)
	// Freeze stops the store until thaw is called. Connections stay open, but get no answers.
	Freeze func() (thaw func())
	// Failover makes another server take over, and returns when it serves requests.
	Failover func()
	// Forgets says that a server that starts or takes over may not know all earlier grants.
	Forgets bool
	// Restart stops the store and starts it on the same data, and returns when it serves requests.
	Restart func()
}

// A Process is the tier of one process, and the ways to disturb that process alone.
type Process struct {
	second.Tier

	// Cut blocks all traffic between the process and the store until heal is called. Neither side sees an error.
	Cut func() (heal func())
	// Kill ends the process without a message to the store. The tier is closed when it returns.
	Kill func()
	// Messages makes hook run before each message that the process gets. A message is an event, or the answer to a request that was
	// executed. Messages that keep a session alive do not count. If hook returns true, the message is lost as its transport would lose it:
	// on a stream, the connection is lost, too. The hook may be called concurrently, and may block. A call of Messages with a nil hook ends
	// the calls.
	Messages func(hook func() (lose bool))
	// Blind acts like a stopped process: no timer reports the end of the lease. Only a call that checks the clock notices that end.
	Blind func(second.Grant)
	// Sleep simulates that the machine of the process sleeps for a time. Only the clock of the grant's lease sees that time pass. Sleep
	// requires Blind.
	Sleep func(second.Grant, time.Duration)
}
