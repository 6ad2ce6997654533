package tier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// twoProcesses runs a test with the registries of two processes, in virtual time.
func twoProcesses(t *testing.T, test func(t *testing.T, server *memlock.Server, a, b *tier.Registry)) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		a, b := need.Get(server.Connect())(t), need.Get(server.Connect())(t)
		defer a.Close()
		defer b.Close()
		test(t, server, a, b)
	})
}

func TestOnlyAHolderThatMayWriteSaves(t *testing.T) {
	twoProcesses(t, func(t *testing.T, _ *memlock.Server, a, b *tier.Registry) {
		ctx, rw := t.Context(), a.RWMutex("/rw")
		writer := need.Get(rw.Acquire(ctx))(t)
		need.OK(t, writer.Save(ctx, []byte("written")))
		reader := need.Get(rw.RAcquire(writer.Context(ctx)))(t)
		need.WantMention(t, reader.Save(ctx, []byte("read")), "/rw", "a read hold cannot save")
		need.OK(t, writer.Save(ctx, []byte("written again")))
		need.OK(t, writer.Release())
		need.WantErr(t, "Save after the downgrade", writer.Save(ctx, []byte("late")), tier.ErrReleased)
		need.WantMention(t, reader.Save(ctx, []byte("downgraded")), "a read hold cannot save")
		need.WantMention(t, reader.Forget(ctx), "a read hold cannot save")
		need.OK(t, reader.Release())
		v := need.Get(b.Mutex("/rw").Load(ctx))(t)
		need.Equal(t, "value", string(v.Data), "written again")
		need.Equal(t, "token", v.Token, writer.Token())

		var none *tier.Hold
		need.WantErr(t, "Save of no hold", none.Save(ctx, nil), tier.ErrReleased)
		need.WantErr(t, "Load", need.ErrOf(a.Mutex("/other").Load(ctx)), tier.ErrNoValue)
	})
}

func TestValueThatIsTooLargeIsRefused(t *testing.T) {
	twoProcesses(t, func(t *testing.T, _ *memlock.Server, a, _ *tier.Registry) {
		hold := need.Get(a.Mutex("/a").Acquire(t.Context()))(t)
		need.OK(t, hold.Save(t.Context(), make([]byte, 16<<10)))
		need.WantMention(t, hold.Save(t.Context(), make([]byte, 16<<10+1)), "/a", "16385 bytes are more than the limit of 16384")
		need.OK(t, hold.Release())
	})
}

// When Save or Load has returned, the caller may change its slices, even if the write is repeated later.
func TestSaveAndLoadKeepNoSliceOfTheCaller(t *testing.T) {
	twoProcesses(t, func(t *testing.T, server *memlock.Server, a, _ *tier.Registry) {
		mu := a.Mutex("/a")
		hold := need.Get(mu.Acquire(t.Context()))(t)
		resume := server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		data := []byte("before")
		need.WantErr(t, "Save", hold.Save(ctx, data), tier.ErrUnknown)
		copy(data, "AFTER!")
		resume()
		synctest.Wait()
		v := need.Get(mu.Load(t.Context()))(t)
		need.Equal(t, "value", string(v.Data), "before")
		copy(v.Data, "AFTER!")
		need.Equal(t, "value", string(need.Get(mu.Load(t.Context()))(t).Data), "before")
		need.OK(t, hold.Release())
	})
}

// After an unanswered Save, the lock is handed off to another goroutine of the process only when the write cannot take effect any more.
func TestLockIsNotHandedOffWhileASaveIsUnanswered(t *testing.T) {
	twoProcesses(t, func(t *testing.T, server *memlock.Server, a, _ *tier.Registry) {
		mu := a.Mutex("/a", tier.WithLinger(time.Hour))
		hold := need.Get(mu.Acquire(t.Context()))(t)
		server.LoseAnswers(a, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := hold.Save(ctx, []byte("first"))
		need.That(t, "Save: "+err.Error(), errors.Is(err, tier.ErrUnknown) && strings.Contains(err.Error(), "/a"))
		token := hold.Token()
		need.OK(t, hold.Release())
		next := need.Get(mu.Acquire(t.Context()))(t)
		need.That(t, "the same grant went on", next.Token() > token)
		need.OK(t, next.Release())
	})
}
