package tier

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// An RWMutex is a reader/writer lock: any number of goroutines and processes may read at the same
// time, and one writes alone. However many goroutines of a process read, or wait to, the process is
// one contender in the store. It is safe for concurrent use.
//
// Within a process it is phase-fair. Whoever comes waits behind those who wait; when the turn comes
// it is that of one writer, or of all readers up to the next writer. A reader joins those inside if
// nobody waits in this process, and no other process has waited for longer than the hand-off budget
// ([WithHandOff]): then those inside come to an end, and the lock goes on. So readers that overlap
// without end keep no writer out: in the store it waits, for each process ahead, for the budget and
// what was begun by then. If a writer is among those who wait in a process, the process
// queues as a writer for all of them.
//
// The lock can be entered again like a [Mutex], in both modes, with two rules. A writer may become
// a reader: acquire to read with the context of the hold to write, then release the latter. That
// sends nothing; the process still has the lock as a writer, and lets its own readers in. When
// readers of another process are next and have waited for the budget (for two if somebody waits
// here, too), they are let in as well. The context of the hold to write ends with its release, so what
// is read under needs one of its own: read.Context(ctx), with a ctx that does not come from the writer's.
// DoRead within Do is no downgrade: until Do returns, the lock is held to write.
//
// A reader cannot become the writer: to acquire to write with the context of a hold to read is
// [ErrUpgrade], at once. With any other context the call waits until all readers have left, and so for
// itself if it is one of them.
//
// A Mutex of the same path is another lock, which excludes this one, also within a process. In
// ZooKeeper the contenders are those of Curator's InterProcessReadWriteLock; README says who excludes
// whom.
//
// The token of a writer is never lower than that of anybody who had the lock before, nor higher than
// that of anybody who has it after; to another process it differs. Among readers that overlap, tokens
// say nothing. So a resource is safe from those who do not know yet that they lost the lock if it
// refuses a write whose token is lower than the highest it has seen, and a read whose token is
// lower than the highest it has seen of a writer.
type RWMutex struct{ writer, reader *Mutex }

// RWMutex returns the reader/writer lock at path. Options are as with [Registry.Mutex], and errors
// are reported likewise.
func (r *Registry) RWMutex(path string, opts ...MutexOption) *RWMutex {
	return &RWMutex{r.mutex(path, second.Writing, opts), r.mutex(path, second.Reading, opts)}
}

// Writer returns the side of the lock that writes, for what takes a [Mutex].
func (m *RWMutex) Writer() *Mutex { return m.writer }

// Reader returns the side of the lock that reads.
func (m *RWMutex) Reader() *Mutex { return m.reader }

// Path returns the path of the lock.
func (m *RWMutex) Path() string { return m.writer.path }

// Acquire waits until the lock is held to write; see [Mutex.Acquire].
func (m *RWMutex) Acquire(ctx context.Context) (*Hold, error) { return m.writer.Acquire(ctx) }

// TryAcquire is Acquire without waiting for others; see [Mutex.TryAcquire].
func (m *RWMutex) TryAcquire(ctx context.Context) (*Hold, error) { return m.writer.TryAcquire(ctx) }

// AcquireRead waits until the lock is held to read; see [Mutex.Acquire].
func (m *RWMutex) AcquireRead(ctx context.Context) (*Hold, error) { return m.reader.Acquire(ctx) }

// TryAcquireRead is AcquireRead without waiting for others: it returns [ErrLocked] if somebody
// has the lock to write, or waits for that; or reads after it wrote, as long as no reader of another
// process has waited for the budget. Within a process it also does while readers are inside whom nobody
// may join any more: another process has waited for the budget, or one of them was told that the lock is
// wanted elsewhere ([Hold.Contested], [Hold.Revoked]).
func (m *RWMutex) TryAcquireRead(ctx context.Context) (*Hold, error) {
	return m.reader.TryAcquire(ctx)
}

// Do calls f while it holds the lock to write; see [Mutex.Do].
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.writer.Do(ctx, f)
}

// DoRead calls f while it holds the lock to read; see [Mutex.Do].
func (m *RWMutex) DoRead(ctx context.Context, f func(ctx context.Context) error) error {
	return m.reader.Do(ctx, f)
}

// Contenders returns the queue of processes; see [Mutex.Contenders].
func (m *RWMutex) Contenders(ctx context.Context) ([]Contender, error) {
	return m.writer.Contenders(ctx)
}

// Revoke asks all who have the lock for it; see [Mutex.Revoke].
func (m *RWMutex) Revoke(ctx context.Context) error { return m.writer.Revoke(ctx) }
