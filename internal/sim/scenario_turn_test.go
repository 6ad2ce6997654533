package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A turn is one acquisition, from the call of Acquire to the release.
type turn struct {
	acquisition
	actor *actor
	path  string
	outer *turn         // whose context it was started with
	over  chan struct{} // closed when the owner has finished its section
	ended chan struct{} // closed when the turn is over or lost

	since, until time.Time // valid when done, and ended, is closed
	number       int       // of the grant; many are of one virtual instant
}

// start calls Acquire in a goroutine of its own.
func (p *actor) start(ctx context.Context) *turn { return p.startAt(ctx, lockPath) }

func (p *actor) startAt(ctx context.Context, path string) *turn {
	return p.startWith(ctx, p.locks.Mutex(path), nil)
}

// startWith is start with a lock of the process, below a turn if outer is not nil.
func (p *actor) startWith(ctx context.Context, mu *tier.Mutex, outer *turn) *turn {
	if outer != nil {
		ctx = outer.hold.Context(ctx)
	}
	u := &turn{actor: p, path: mu.Path(), outer: outer, over: make(chan struct{}), ended: make(chan struct{})}
	p.scene.mu.Lock()
	p.scene.turns = append(p.scene.turns, u)
	p.scene.mu.Unlock()
	u.begin(ctx, mu, func() {
		u.since = time.Now()
		u.number = int(p.scene.grants.Add(1))
		go u.watch()
	})
	return u
}

func (u *turn) watch() {
	defer close(u.ended)
	select {
	case <-u.hold.Lost():
	case <-u.over:
	}
	u.until = time.Now()
}

// queue starts a turn that has to wait.
func (p *actor) queue(ctx context.Context) *turn {
	p.scene.Helper()
	u := p.start(ctx)
	u.waits()
	return u
}

// acquire gets a lock that is free, or becomes free in time.
func (p *actor) acquire() *turn { return p.acquireAt(lockPath) }

func (p *actor) acquireAt(path string) *turn {
	p.scene.Helper()
	return p.startAt(p.scene.Context(), path).granted(bound)
}

func (u *turn) pending() bool { return !closed(u.done) }

// waits checks that the turn has not come.
func (u *turn) waits() {
	u.actor.scene.Helper()
	if synctest.Wait(); !u.pending() {
		u.actor.scene.Fatalf("Acquire: got %v, %v; want it to wait", u.hold, u.err)
	}
}

// granted waits for the turn to come.
func (u *turn) granted(within time.Duration) *turn {
	u.actor.scene.Helper()
	if u.settled(within); u.err != nil {
		u.actor.scene.Fatalf("Acquire: %v", u.err)
	}
	synctest.Wait()
	return u
}

// failed waits for Acquire to return an error, and checks that nothing of it is left.
func (u *turn) failed(within time.Duration, targets ...error) {
	s := u.actor.scene
	s.Helper()
	if u.settled(within); u.err == nil {
		s.Fatalf("Acquire succeeded, want an error that wraps %v", targets)
	}
	s.wantErr(u.err, targets...)
}

func (u *turn) settled(within time.Duration) {
	u.actor.scene.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C: // what happens at that very instant counts
		if synctest.Wait(); u.pending() {
			u.actor.scene.Fatalf("Acquire did not return within %v (connection: %v)", within, u.actor.client.Err())
		}
	}
}

// lost waits for the loss of the hold.
func (u *turn) lost(within time.Duration) *turn {
	s := u.actor.scene
	s.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-u.ended:
	case <-timer.C: // what happens at that very instant counts
		synctest.Wait()
	}
	if !closed(u.ended) {
		s.Fatalf("the loss was not noticed within %v", within)
	}
	s.wantErr(u.hold.Err(), tier.ErrLost)
	return u
}

// keeps checks that the lock is held.
func (u *turn) keeps() {
	u.actor.scene.Helper()
	if synctest.Wait(); u.hold.Err() != nil {
		u.actor.scene.Fatalf("hold: %v", u.hold.Err())
	}
}

func (u *turn) release() error {
	close(u.over)
	<-u.ended
	return u.hold.Release()
}

// end sees to it that the turn is over, however far it came.
func (u *turn) end() {
	u.cancel()
	<-u.done
	if u.hold == nil {
		return
	}
	if closed(u.over) {
		return
	}
	if err := u.release(); err != nil && !errors.Is(err, tier.ErrLost) {
		u.actor.scene.Errorf("Release: %v", err)
	}
}

// checkExclusion checks that no turn began before all earlier ones were over or lost, but for those that read beside others,
// or within another. It goes by virtual time, so that it holds at every instant.
func (s *scene) checkExclusion() {
	s.Helper()
	held := slices.DeleteFunc(slices.Clone(s.turns), func(u *turn) bool { return u.hold == nil })
	slices.SortFunc(held, func(a, b *turn) int { return cmp.Compare(a.number, b.number) })
	for i, u := range held {
		for _, before := range held[:i] {
			if u.path != before.path || u.outer == before || u.hold.Shared() && before.hold.Shared() {
				continue
			}
			if u.since.Before(before.until) {
				s.Errorf("%s: granted to %s at %v, while %s held it until %v", u.path,
					u.actor.servers[0], u.since, before.actor.servers[0], before.until)
			}
			if u.hold.Token() < before.hold.Token() {
				s.Errorf("%s: token %d after %d", u.path, u.hold.Token(), before.hold.Token())
			}
		}
	}
}
