package pglock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// In a grace period, holders and waiters that still have rows keep their places, and their sessions are renewed. New contenders get no lock
// yet, and the list of the queue shows that.
func TestWhoHadSomethingBeforeIsNotInGracePeriod(t *testing.T) {
	t.Parallel()
	_, url, outside := alone(t)
	begin := func() *tier.Registry { return tier.New(tables.start(t, url, tier.WithLeaseTTL(4*ttl))) } // long, to observe the grace period
	holder, other := begin(), begin()
	held := need.Get(holder.Semaphore(lockPath(t), 5).Acquire(soon(t), 2))(t)
	exec(t, outside, tables.forget)
	permits, taken := other.Semaphore(lockPath(t), 5), make(chan *tier.Permits, 1)
	go func() {
		p, err := permits.Acquire(soon(t), 1)
		need.WantErr(t, "Acquire", err, nil)
		taken <- p
	}()
	eventually(t, "a waiter that gets no permit yet", func() bool {
		q, err := permits.Contenders(soon(t))
		return err == nil && len(q) == 2 && q[0].Permits == 2 && !q[0].InGracePeriod && q[1].Permits == 0 && q[1].InGracePeriod
	})
	later := <-taken
	q := need.Get(permits.Contenders(soon(t)))(t)
	need.That(t, fmt.Sprintf("after the grace period: %+v", q), len(q) == 2 && q[1].Permits == 1 && !q[1].InGracePeriod)
	mustRelease(t, held)
	mustRelease(t, later)
}

// A server that was restarted or promoted before its first lock counts as one that has granted locks. Only the first process can declare
// that it is new.
func TestNewServerHasNoGracePeriod(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		_, url, outside := alone(t)
		exec(t, outside, advisories.forget)
		first := f.start(t, url, WithNewServer(), tier.WithLeaseTTL(time.Minute)) // without the option, the grace period would last a minute
		hold := first.holds(t)
		f.start(t, url) // a process that does not declare the server new
		mustRelease(t, hold)
		for _, other := range flavours { // the record counts for both kinds of locks
			wantErr(t, need.ErrOf(other.begin(t, url, WithNewServer()).at(t, lockPath(t)).Acquire(soon(t))), errUsed)
		}
		exec(t, outside, f.forget)
		next := f.start(t, url).at(t, lockPath(t))
		eventually(t, "the grace period of the next promotion", func() bool {
			_, err := next.TryAcquire(soon(t))
			return errors.As(err, new(*second.GracePeriodError))
		})
	})
}

// A server is not new if another process has already written a record, or if it was promoted after the schema was created. The record of
// the process itself does not count, because a request whose answer was lost is repeated.
func TestServerWithARecordIsNotNew(t *testing.T) {
	t.Parallel()
	_, _, outside := alone(t)
	conn := need.Get(outside.Acquire(soon(t)))(t)
	defer conn.Release()
	declare := func(f *firstUse, want error) {
		t.Helper()
		wantErr(t, f.declare(soon(t), conn.Conn(), 1000), want)
	}
	for _, sql := range []string{
		tables.forget,
		"SELECT tierlock.open(gen_random_uuid()::text, 1000, 'host', 1, '')",
		"SELECT tierlock.open(gen_random_uuid()::text, 1000, 'host', 1, ''); UPDATE tierlock.grace_period SET longest_ms = 0",
		"SELECT tierlock.quiet_ms('advisory', 1000)",
	} {
		const asNew = "DELETE FROM tierlock.session; UPDATE tierlock.grace_period SET longest_ms = 0," +
			"life = tierlock.life(locks), since = 'epoch'"
		exec(t, outside, asNew)
		f := newFirstUse()
		for range 2 {
			declare(f, nil)
			f.taken.Store(false)
		}
		declare(newFirstUse(), errUsed)
		exec(t, outside, asNew+";"+sql)
		declare(newFirstUse(), errUsed)
	}
}
