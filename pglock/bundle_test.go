package pglock

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func TestTxChecksAllLocksOfABundle(t *testing.T) {
	t.Parallel()
	tab := table(t)
	waittest.Guarded{
		Write: func(g tier.Guard) error { return Tx(soon(t), g, increment(soon(t), tab)) },
		Count: func() int { return value(t, tab) },
		Break: func(path string) { exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path = $1", path) },
	}.ChecksAllLocks(t, tier.New(start(t, tier.WithLeaseTTL(unhurried))), tier.New(start(t, tier.WithLeaseTTL(unhurried))))
}

// The guard has to check each advisory lock of a bundle. Here, one key and token belong to a lock that is not held.
func TestTxChecksAllAdvisoryLocksOfABundle(t *testing.T) {
	t.Parallel()
	p, tab := advisories.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried)), table(t)
	locks := tier.New(p)
	bundle := need.Get(tier.AcquireAll(soon(t), locks.Mutex(lockPath(t)+"-a"), locks.Mutex(lockPath(t)+"-b")))(t)
	wantErr(t, Tx(soon(t), bundle, increment(soon(t), tab)), nil)
	need.Equal(t, "committed", value(t, tab), 1)
	conn := need.Get(p.pool.Acquire(soon(t)))(t)
	defer conn.Release()
	tx := need.Get(conn.Begin(soon(t)))(t)
	wantErr(t, increment(soon(t), tab)(tx), nil)
	mine := advisoryKey(lockPath(t)+"-a") + ", " + fmt.Sprint(bundle.Holds()[0].Token())
	held, err := waittest.Grant(bundle.Holds()[0]).(*queue.Contender).Store().(*advisory).commit(conn, []string{mine, "1, 1"})
	need.That(t, fmt.Sprint("the second one is not ours: ", err), refusal(err) == "TL001")
	need.Equal(t, "held", held, 1)
	need.Equal(t, "committed", value(t, tab), 1)
	need.OK(t, bundle.Release())
}
