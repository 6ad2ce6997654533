package certmagiclock_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/certmagiclock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
} = (*certmagiclock.Storage)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process returns the registry of a new process. Its locks linger by default, and the adapter has to prevent that.
func process(t *testing.T, srv *zktest.Server) *tier.Registry {
	t.Helper()
	return locktest.Dial(t, srv, tier.WithLinger(time.Hour))
}

// storage returns a new process's handle of an empty storage.
func storage(t *testing.T, srv *zktest.Server) *certmagiclock.Storage {
	return certmagiclock.New(&certmagic.FileStorage{Path: t.TempDir()}, process(t, srv), "/certmagic",
		certmagiclock.WithLogger(slog.New(slog.DiscardHandler)))
}

func TestLockWaitsForWhoeverHasIt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one, other := storage(t, srv), storage(t, srv)
		for _, second := range []*certmagiclock.Storage{one, other} { // once with a handle in the same process, and once in another process
			lock(t, one, "issue_cert_*.example.com")
			need.Equal(t, "a lock that is taken is had", need.Get(second.TryLock(t.Context(), "issue_cert_*.example.com"))(t), false)
			short, cancel := context.WithTimeout(t.Context(), time.Minute)
			locktest.WantErr(t, "Lock of a lock that is taken", second.Lock(short, "issue_cert_*.example.com"), context.DeadlineExceeded)
			cancel()
			start := time.Now()
			time.AfterFunc(time.Second, func() { unlock(t, one, "issue_cert_*.example.com") })
			lock(t, second, "issue_cert_*.example.com")
			need.AtLeast(t, "the second owner has the lock after", time.Since(start), time.Second)
			unlock(t, second, "issue_cert_*.example.com")
		}
		synctest.Wait()                                                                         // one's last Unlock is over, too
		if ok, err := one.TryLock(t.Context(), "issue_cert_*.example.com"); !ok || err != nil { // other had it last, and does not linger
			t.Errorf("TryLock of a free lock: %t, %v, want true, nil", ok, err)
		}
		unlock(t, one, "issue_cert_*.example.com")
	})
}

// The context of a caller may carry a hold of the same lock. Lock must not join that hold.
func TestLockIsNotEnteredAgain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
		hold := need.Get(locks.Mutex(tier.Name("/certmagic", "a")).Acquire(t.Context()))(t)
		defer hold.Release()
		s := certmagiclock.New(&certmagic.FileStorage{}, locks, "/certmagic")
		need.Equal(t, "a lock is had under a hold", need.Get(s.TryLock(hold.Context(t.Context()), "a"))(t), false)
		short, cancel := context.WithTimeout(hold.Context(t.Context()), time.Minute)
		defer cancel()
		locktest.WantErr(t, "Lock under a hold", s.Lock(short, "a"), context.DeadlineExceeded)
	})
}

func TestUnlockGivesTheLockUpWhateverItsContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := storage(t, srv)
		lock(t, s, "a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		locktest.WantErr(t, "Unlock", s.Unlock(ended, "a"), nil)
		other := storage(t, srv)
		lock(t, other, "a")
		unlock(t, other, "a")
	})
}

func TestWhatIsNotLockedCannotBeUnlockedOrRenewed(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		s, other := storage(t, srv), storage(t, srv)
		lock(t, other, "a")
		lock(t, s, "b")
		unlock(t, s, "b")
		for _, name := range []string{"a", "b", "c"} {
			need.That(t, "Unlock of "+name+": no error", s.Unlock(t.Context(), name) != nil)
			need.That(t, "RenewLockLease of "+name+": no error", s.RenewLockLease(t.Context(), name, time.Minute) != nil)
		}
		need.Equal(t, "an Unlock elsewhere gave the lock away", need.Get(s.TryLock(t.Context(), "a"))(t), false)
		unlock(t, other, "a")
	})
}

// CertMagic's retries call RenewLockLease, and then check whether another process has done the work. After a loss, RenewLockLease acquires
// the lock again, instead of failing each time.
func TestRenewLockLeaseTakesALostLockAgain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		s := certmagiclock.New(&certmagic.FileStorage{}, process(t, srv), "/certmagic",
			certmagiclock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		other := storage(t, srv)
		lock(t, s, "a")
		if err := s.RenewLockLease(t.Context(), "a", time.Hour); err != nil || log.Len() > 0 {
			t.Fatalf("RenewLockLease of a lock that is held: %v; logged %q", err, &log)
		}
		lose(t, srv, "a")
		need.Equal(t, "warnings in "+log.String(), strings.Count(log.String(), "level=WARN"), 1)
		lock(t, other, "a")
		short := need.Within(t, time.Minute)
		locktest.WantErr(t, "renewed while another process has the lock", s.RenewLockLease(short, "a", time.Hour), context.DeadlineExceeded)
		unlock(t, other, "a")
		locktest.WantErr(t, "RenewLockLease of a lock that is free again", s.RenewLockLease(t.Context(), "a", time.Hour), nil)
		need.Equal(t, "RenewLockLease did not take the lock", need.Get(other.TryLock(t.Context(), "a"))(t), false)
		unlock(t, s, "a")
		need.That(t, "a second Unlock: no error", s.Unlock(t.Context(), "a") != nil)
	})
}

// Unlock does not say which hold it means. If a goroutine has lost its lock, its Unlock must not release the lock of the goroutine that got
// it later.
func TestUnlockAfterALossDoesNotEndTheNextHold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		s, other := storage(t, srv), storage(t, srv)
		lock(t, s, "a")
		lose(t, srv, "a")
		go func() { lock(t, s, "a") }()
		synctest.Wait()
		short := need.Within(t, time.Minute)
		locktest.WantErr(t, "renewed while another goroutine has the lock", s.RenewLockLease(short, "a", time.Hour), context.DeadlineExceeded)
		unlock(t, s, "a") // called by the goroutine that has lost the lock
		need.Equal(t, "the lock of the other goroutine was ended", need.Get(other.TryLock(t.Context(), "a"))(t), false)
		unlock(t, s, "a")
		lock(t, other, "a")
		unlock(t, other, "a")
	})
}

func lock(t *testing.T, s *certmagiclock.Storage, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
	defer cancel()
	need.WantErr(t, "Lock of "+name, s.Lock(ctx, name), nil)
}

func unlock(t *testing.T, s *certmagiclock.Storage, name string) {
	t.Helper()
	need.WantErr(t, "Unlock of "+name, s.Unlock(t.Context(), name), nil)
}

// lose ends the session of the process that has the lock.
func lose(t *testing.T, srv *zktest.Server, name string) {
	t.Helper()
	for _, session := range srv.Sessions() {
		for _, node := range session.Ephemerals {
			if strings.HasPrefix(node, tier.Name("/certmagic", name)+"/") {
				srv.Expire(session.ID)
			}
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
}
