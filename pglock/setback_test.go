package pglock

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/tier"
)

const restartTokens = "ALTER SEQUENCE tierlock.token RESTART"

// The sequence of tokens may be set back: by an operator who restarts it, or by logical replication, which copies rows but not sequences.
// Tokens must still follow the order.
func TestSequenceThatIsSetBackKeepsTheOrder(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := migrated(t, url)
	p, q := tables.start(t, url, tier.WithLeaseTTL(unhurried)), tables.start(t, url, tier.WithLeaseTTL(unhurried))
	mustRelease(t, p.mustAcquire(t))
	held := p.mustAcquire(t)
	exec(t, pool, restartTokens)
	_, err := q.at(t, lockPath(t)).TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	w := q.waits(t)
	mustRelease(t, held)
	next := w.Must(t)
	need.AtLeast(t, "the token of the waiter", next.Token(), held.Token()+1)
	exec(t, pool, restartTokens)
	again := need.Get(q.at(t, lockPath(t)).Requeue(soon(t), next))(t)
	need.AtLeast(t, "the token after a requeue", again.Token(), next.Token()+1)
	mustRelease(t, again)
}

// The server records the token at which reads of a queue start. If the sequence is set back, a new contender could get a lower token, and
// reads would skip it.
func TestSequenceThatIsSetBackHidesNoContender(t *testing.T) {
	t.Parallel()
	pool := migrated(t, database(t))
	session := opened(t, pool)
	const noted = "SELECT coalesce(max(token), 0) FROM tierlock.floor WHERE path = '/q'"
	eventually(t, "a note of where the queue begins", func() bool {
		id := newID()
		entered(t, pool, "/q", id, session)
		exec(t, pool, "SELECT tierlock.leave('/q', $1)", id)
		return ask[int](t, pool, noted) > 0
	})
	before := ask[int](t, pool, noted)
	exec(t, pool, restartTokens)
	first, second := newID(), newID()
	need.That(t, "the first is first", entered(t, pool, "/q", first, session))
	need.That(t, "the second is first, too", !entered(t, pool, "/q", second, session))
	const least = "SELECT min(token) FROM tierlock.contender"
	need.AtLeast(t, "the token", ask[int](t, pool, least), before+1)
	need.AtLeast(t, "the token, compared with the one that is recorded now", ask[int](t, pool, least), ask[int](t, pool, noted))
}

// A volume is set back to the same snapshot twice, and the server is started on it. Each time, the newest writes are missing.
func TestServerThatIsSetBackGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	s, url, _ := alone(t)
	for range 2 {
		holder := tables.start(t, url)
		held := holder.mustAcquire(t)
		heal := holder.network.sever()
		need.OK(t, s.Restart(t.Context()))
		exec(t, poolAt(t, url), "DELETE FROM tierlock.contender; DELETE FROM tierlock.session; "+restartTokens)
		next := tables.start(t, url)
		granted := func(g second.Grant, how string) {
			need.WantErr(t, "the holder, as "+how+" is granted the lock,", held.Err(), second.ErrLost)
			need.AtLeast(t, "the token of "+how, g.Token(), held.Token()+1)
			mustRelease(t, g)
		}
		if g, err := next.at(t, lockPath(t)).TryAcquire(soon(t)); err == nil {
			granted(g, "a try")
		}
		granted(next.mustAcquire(t), "who waits")
		heal()
	}
}

// A holder whose row the server still has keeps the lock over a restart, and can hand it off.
func TestHolderKeepsItsLockOverAStartOfTheServer(t *testing.T) {
	t.Parallel()
	s, url, _ := alone(t)
	holder := tables.start(t, url, tier.WithLeaseTTL(unhurried))
	held := holder.mustAcquire(t)
	need.OK(t, s.Restart(t.Context()))
	eventually(t, "the holder is connected again", func() bool { return holder.Err() == nil })
	need.OK(t, held.Err())
	mustRelease(t, held)
}

// Monitoring tools may reset the statistics of the server. That must not start a grace period.
func TestStatisticsThatAreResetChangeNothing(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		s, url, _ := alone(t)
		f.start(t, url)
		exec(t, poolAt(t, pgserver.URL(s.Addr())), `SELECT pg_stat_reset(), pg_stat_reset_shared('bgwriter'), pg_stat_reset_shared('archiver'),
			pg_stat_reset_shared('wal'), pg_stat_reset_slru(NULL)`)
		g, err := f.start(t, url).at(t, lockPath(t)).TryAcquire(soon(t))
		need.OK(t, err)
		mustRelease(t, g)
	})
}

func TestSemaphoreOfManyPermits(t *testing.T) {
	t.Parallel()
	const many = int(min(int64(1)<<40, math.MaxInt))
	locks := tier.New(start(t, tier.WithLeaseTTL(unhurried)))
	permits := need.Get(locks.Semaphore(lockPath(t), many).Acquire(soon(t), 2))(t)
	q := need.Get(locks.Semaphore(lockPath(t), many).Contenders(soon(t)))(t)
	need.That(t, fmt.Sprintf("%+v", q), len(q) == 1 && q[0].Permits == 2 && q[0].Of == many)
	mustRelease(t, permits)
}
