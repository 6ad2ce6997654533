package gooselock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/gooselock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var _ lock.Locker = (*gooselock.Locker)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time with the locks of two processes.
func bubble(t *testing.T, f func(t *testing.T, server *zktest.Server, one, other *tier.Registry)) {
	locktest.Bubble(t, func(t *testing.T, server *zktest.Server) {
		f(t, server, locktest.Dial(t, server), locktest.Dial(t, server))
	})
}

func TestOneAtATimeInAllProcessesAndInEach(t *testing.T) {
	bubble(t, func(t *testing.T, _ *zktest.Server, one, other *tier.Registry) {
		first := gooselock.New(one.Mutex("/migrations"))
		need.OK(t, first.Lock(t.Context(), nil))
		for who, second := range map[string]*gooselock.Locker{
			"another process": gooselock.New(other.Mutex("/migrations")), "the same locker": first,
			"the same process": gooselock.New(one.Mutex("/migrations")),
		} {
			wait, cancel := context.WithTimeout(t.Context(), time.Minute)
			locktest.WantErr(t, who, second.Lock(wait, nil), context.DeadlineExceeded)
			cancel()
		}
		locktest.WantErr(t, "Unlock", first.Unlock(t.Context(), nil), nil)
		second := gooselock.New(other.Mutex("/migrations"))
		locktest.WantErr(t, "the lock once it is free", errors.Join(second.Lock(t.Context(), nil), second.Unlock(t.Context(), nil)), nil)
	})
}

// The context of the program's start may carry a hold of the same lock. Migrations must not join that hold.
func TestAHoldOfTheCallerIsNoPermissionToMigrate(t *testing.T) {
	bubble(t, func(t *testing.T, _ *zktest.Server, one, _ *tier.Registry) {
		hold := need.Get(one.Mutex("/migrations").Acquire(t.Context()))(t)
		defer hold.Release()
		wait, cancel := context.WithTimeout(hold.Context(t.Context()), time.Minute)
		defer cancel()
		need.WantErr(t, "Lock beside another one", gooselock.New(one.Mutex("/migrations")).Lock(wait, nil), context.DeadlineExceeded)
	})
}

func TestUnlockTellsOfALoss(t *testing.T) {
	bubble(t, func(t *testing.T, server *zktest.Server, one, _ *tier.Registry) {
		locker := gooselock.New(one.Mutex("/migrations"))
		need.OK(t, locker.Lock(t.Context(), nil))
		server.Freeze()
		time.Sleep(time.Minute)
		server.Unfreeze()
		locktest.WantErr(t, "after a loss", locker.Unlock(t.Context(), nil), tier.ErrLost)
		need.WantMention(t, locker.Unlock(t.Context(), nil), "without a lock")
	})
}
