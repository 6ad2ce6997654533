package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// advise starts a process that uses advisory locks. Its TTL is so long that no lease ends during the test.
func advise(t *testing.T, url string) *process {
	t.Helper()
	return advisories.start(t, url, tier.WithLeaseTTL(unhurried))
}

// contended returns a holder of the test's lock, and a waiter behind it.
func contended(t *testing.T, url string) (holder, waiter *process, c *queue.Contender, w *wait) {
	t.Helper()
	holder, waiter = advise(t, url), advise(t, url)
	c = holder.mustAcquire(t)
	return holder, waiter, c, waiter.waits(t)
}

// seen counts the sessions that have the test's lock if granted is true, and otherwise the sessions that wait for it.
func seen(t *testing.T, q querier, granted bool) int {
	t.Helper()
	return ask[int](t, q, "SELECT count(*) FROM pg_locks WHERE granted = $2 AND "+ofLock, advisoryKey(lockPath(t)), granted)
}

// A notification tells the holder at once that another process waits. The periodic read of the queue would come only after 15 s.
func TestAdvisoryHolderIsToldAtOnce(t *testing.T) {
	t.Parallel()
	holder, waiter, c, w := contended(t, sharedURL(t))
	within(t, 5*time.Second, "the holder hears of a waiter", c.Contended().Raised)
	mustRelease(t, c)
	c = w.Must(t)
	for range 2 { // once for the first waiter, and once for the next one
		w = holder.waits(t)
		endSession(t, contenders(t, waiter.at(t, lockPath(t)))[0].ID)
		knows(t, c, 5*time.Second)
		a := c.Store().Do(soon(t), queue.Command{Op: queue.Leave, Ref: c.Ref()})
		if a.Outcome != queue.Done || a.Removed != queue.Missing { // without this, Release would return nil in spite of the loss
			t.Errorf("%+v, want that it was missing", a)
		}
		wantErr(t, c.Release(), second.ErrLost)
		mustRelease(t, w.Must(t))
		c = waiter.mustAcquire(t)
	}
	mustRelease(t, c)
}

// endSession ends one of the server's processes, as an operator would.
func endSession(t *testing.T, pid string) {
	t.Helper()
	exec(t, outside(t), "SELECT pg_terminate_backend($1::text::int)", pid)
	eventually(t, "the session is over", func() bool {
		return ask[int](t, outside(t), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::text::int", pid) == 0
	})
}

// A connection can break without a message to the client. The client then must not wait forever for an answer, and queues again.
func TestWaiterWhoseSessionIsGoneQueuesAgain(t *testing.T) {
	t.Parallel()
	holder, waiter := advise(t, sharedURL(t)), advisories.start(t, sharedURL(t))
	c, queue := holder.mustAcquire(t), holder.at(t, lockPath(t))
	w := waiter.waits(t)
	pid := contenders(t, queue)[1].ID
	waiter.network.mute("\x00lock")
	endSession(t, pid)
	eventually(t, "it waits again", func() bool {
		all := contenders(t, queue)
		return len(all) == 2 && all[1].ID != pid
	})
	mustRelease(t, c)
	mustRelease(t, w.Must(t))
}

// A server process that waits for a lock reads nothing from its client. Without client_connection_check_interval, it would wait on after
// the death of the client.
func TestWaiterWhoseClientIsGoneLeavesTheQueue(t *testing.T) {
	t.Parallel()
	c := advise(t, sharedURL(t)).mustAcquire(t)
	gone := advisories.start(t, sharedURL(t))
	gone.waits(t)
	gone.network.close() // a process that is killed does not cancel its wait either
	within(t, ttl, "no session waits", func() bool { return seen(t, outside(t), false) == 0 })
	mustRelease(t, c)
}

// The last statement of prepare finds out whether the server would end an idle session in time. If it would not, the session is refused.
func TestSessionThatWouldNotEndIsRefused(t *testing.T) {
	t.Parallel()
	pool := poolAt(t, sharedURL(t), func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET idle_session_timeout = 0")
			return err
		}
	})
	_, err := NewAdvisory(soon(t), pool)
	wantErr(t, err, errNoLease)
	need.That(t, fmt.Sprintf("not at once: %v", err), !errors.Is(err, context.DeadlineExceeded))
}

func TestAdvisoryLockOfAnotherProgramExcludes(t *testing.T) {
	t.Parallel()
	claim := advise(t, sharedURL(t)).at(t, lockPath(t))
	other := begun(t, outside(t))
	const take = `SELECT pg_advisory_xact_lock(
		('x' || left(encode(sha256(convert_to('tierlock:' || $1::text, 'UTF8')), 'hex'), 16))::bit(64)::bigint)::text`
	ask[any](t, other, take, lockPath(t))
	wantErr(t, need.ErrOf(claim.TryAcquire(soon(t))), second.ErrLocked)
	wantErr(t, claim.Revoke(soon(t)), errors.ErrUnsupported)
	all := contenders(t, claim)
	need.Len(t, "contenders", all, 1)
	need.Equal(t, "the process that has it", all[0].ID, strconv.Itoa(int(other.Conn().PgConn().PID())))
}

// After a cancelled wait, the connection of the wait can be used again.
func TestCancelledWaiterKeepsItsSession(t *testing.T) {
	t.Parallel()
	holder, waiter := advise(t, sharedURL(t)), advise(t, sharedURL(t))
	c, queue := holder.mustAcquire(t), holder.at(t, lockPath(t))
	var pids []string
	for range 3 {
		w := waiter.waits(t)
		pids = append(pids, contenders(t, queue)[1].ID)
		w.Cancel()
		<-w.Done
		wantErr(t, w.Err, context.Canceled)
		eventually(t, "no session waits", func() bool { return seen(t, outside(t), false) == 0 })
	}
	slices.Sort(pids)
	need.AtMost(t, "sessions of three waits", len(slices.Compact(pids)), 2)
	mustRelease(t, c)
}

// A session may get the lock just before its statement is cancelled. It then has the lock, which leave has to release.
func TestWaitThatIsCancelledOnceItIsGrantedLeavesNothing(t *testing.T) {
	t.Parallel()
	_, url, pool := alone(t)
	_, _, c, w := contended(t, url)
	numbers := begun(t, pool) // this open transaction keeps all sessions from drawing a token
	need.Get(numbers.Exec(soon(t), "ALTER SEQUENCE tierlock.token CACHE 1"))(t)
	mustRelease(t, c)
	eventually(t, "the next one is granted the lock, and draws its token", func() bool {
		return seen(t, pool, true) == 1 && seen(t, pool, false) == 0
	})
	w.Cancel()
	<-w.Done
	wantErr(t, w.Err, context.Canceled)
	eventually(t, "no session has the lock", func() bool { return seen(t, pool, true) == 0 })
}
