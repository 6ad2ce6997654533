package tier_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A lone store gives permits to everybody, and they end when a test says so.
type lone struct {
	second.Tier // has none of the rest
	life        context.Context
	errAt       func() error // what its permits say
}

func (l *lone) Semaphore(string, int, second.Options) (second.Semaphore, error) {
	return loneSemaphore{lone: l}, nil
}
func (l *lone) Err() error            { return nil }
func (l *lone) Now() time.Duration    { return time.Hour }
func (l *lone) Done() <-chan struct{} { return nil }
func (l *lone) Close() error          { return nil }

type loneSemaphore struct {
	second.Semaphore
	lone *lone
}

func (s loneSemaphore) TryAcquire(context.Context, int) ([]second.Permit, error) {
	return []second.Permit{lonePermit{lone: s.lone}}, nil
}
func (s loneSemaphore) Release([]second.Permit) error { return nil }
func (s loneSemaphore) Most() int                     { return 1 }
func (s loneSemaphore) Equal(second.Semaphore) bool   { return true }

type lonePermit struct {
	second.Permit
	lone *lone
}

func (p lonePermit) Context() context.Context  { return p.lone.life }
func (p lonePermit) ErrAt(time.Duration) error { return p.lone.errAt() }

// alone runs f with a permit of a lone store, and what ends it.
func alone(t *testing.T, f func(t *testing.T, store *lone, one *tier.Permits, lose context.CancelCauseFunc)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &lone{errAt: func() error { return nil }}
		var lose context.CancelCauseFunc
		store.life, lose = context.WithCancelCause(context.Background())
		locks, err := tier.New(store)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		one, err := locks.Semaphore(pool, 1).TryAcquire(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		f(t, store, one, lose)
		one.Release()
	})
}

// Whoever asks while the permits are given up, and lost right after, hears of no loss.
func TestErrOfPermitsThatAreReleasedMeanwhile(t *testing.T) {
	alone(t, func(t *testing.T, store *lone, one *tier.Permits, _ context.CancelCauseFunc) {
		store.errAt = func() error {
			store.errAt = func() error { return tier.ErrLost }
			if err := one.Release(); err != nil {
				t.Errorf("Release: %v", err)
			}
			return tier.ErrLost
		}
		if err := one.Err(); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("Err: %v, want ErrReleased", err)
		}
	})
}

// A lookout is a context that is told right when one that is derived from it has ended.
type lookout struct {
	context.Context
	ended func()
}

func (l lookout) Done() <-chan struct{} { return make(chan struct{}) }

func (l lookout) AfterFunc(func()) (stop func() bool) {
	return func() bool {
		l.ended()
		return true
	}
}

// Where a context says that the permits are lost they say so themselves, and a release at that moment changes no cause.
func TestReleaseOfPermitsAtTheMomentOfTheirLoss(t *testing.T) {
	alone(t, func(t *testing.T, store *lone, one *tier.Permits, lose context.CancelCauseFunc) {
		loss := second.Lost(second.ByDeletion, "deleted")
		store.errAt = func() error { return context.Cause(store.life) }
		released := make(chan error, 2)
		watch := lookout{t.Context(), func() {
			select {
			case <-one.Lost():
			default:
				t.Error("a context has ended, and Lost is open")
			}
			go func() { released <- one.Release() }()
			for range 1000 { // it may wait for a mutex, which no bubble waits for
				runtime.Gosched()
			}
		}}
		works := []context.Context{one.Context(watch), one.Context(watch)}
		lose(loss)
		<-released
		<-released
		for _, work := range works {
			if cause := context.Cause(work); !errors.Is(cause, tier.ErrLost) {
				t.Errorf("the context ended with %v, want the loss", cause)
			}
		}
	})
}

// What was handed on is lost by its new owner alone.
func TestPermitsThatWereHandedOnAreLostByTheirNewOwner(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, _ := dial(t, srv, "")
		s := locks.Semaphore(pool, 1)
		one := take(t, s, 1)
		next := ask(soon(t), s, 1).waits(t)
		giveBack(t, one)
		got := next.served(t)
		if got.Token() != one.Token() {
			t.Fatal("not handed on")
		}
		srv.Expire(queueOf(pool), 0)
		<-got.Lost()
		synctest.Wait()
		select {
		case <-one.Lost():
			t.Error("lost by whoever had released it")
		default:
		}
		if err := got.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}
