package sim_test

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
	process *process
	path    string
	cancel  context.CancelFunc
	done    chan struct{} // closed when Acquire has returned
	over    chan struct{} // closed when the owner has finished its section
	ended   chan struct{} // closed when the turn is over or lost

	hold         *tier.Hold // valid when done is closed, like the next two
	err          error
	since, until time.Time // until is valid when ended is closed
	number       int       // of the grant; many are of one virtual instant
}

// start calls Acquire in a goroutine of its own.
func (p *process) start(ctx context.Context) *turn { return p.startAt(ctx, lockPath) }

func (p *process) startAt(ctx context.Context, path string) *turn {
	ctx, cancel := context.WithCancel(ctx)
	u := &turn{
		process: p, path: path, cancel: cancel,
		done: make(chan struct{}), over: make(chan struct{}), ended: make(chan struct{}),
	}
	p.scene.mu.Lock()
	p.scene.turns = append(p.scene.turns, u)
	p.scene.mu.Unlock()
	go func() {
		defer close(u.done)
		if u.hold, u.err = p.locks.Mutex(path).Acquire(ctx); u.err == nil {
			u.since = time.Now()
			u.number = int(p.scene.grants.Add(1))
			go u.watch()
		}
	}()
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
func (p *process) queue(ctx context.Context) *turn {
	p.scene.Helper()
	u := p.start(ctx)
	u.waits()
	return u
}

// acquire gets a lock that is free, or becomes free in time.
func (p *process) acquire() *turn { return p.acquireAt(lockPath) }

func (p *process) acquireAt(path string) *turn {
	p.scene.Helper()
	return p.startAt(p.scene.Context(), path).granted(bound)
}

func (u *turn) pending() bool { return !closed(u.done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waits checks that the turn has not come.
func (u *turn) waits() {
	u.process.scene.Helper()
	if synctest.Wait(); !u.pending() {
		u.process.scene.Fatalf("Acquire: got %v, %v; want it to wait", u.hold, u.err)
	}
}

// granted waits for the turn to come.
func (u *turn) granted(within time.Duration) *turn {
	u.process.scene.Helper()
	if u.settled(within); u.err != nil {
		u.process.scene.Fatalf("Acquire: %v", u.err)
	}
	synctest.Wait()
	return u
}

// failed waits for Acquire to return an error, and checks that nothing of it is left.
func (u *turn) failed(within time.Duration, targets ...error) {
	s := u.process.scene
	s.Helper()
	if u.settled(within); u.err == nil {
		s.Fatalf("Acquire succeeded, want an error that wraps %v", targets)
	}
	s.wantErr(u.err, targets...)
}

func (u *turn) settled(within time.Duration) {
	u.process.scene.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C: // what happens at that very instant counts
		if synctest.Wait(); u.pending() {
			u.process.scene.Fatalf("Acquire did not return within %v (connection: %v)", within, u.process.client.Err())
		}
	}
}

// lost waits for the loss of the hold.
func (u *turn) lost(within time.Duration) *turn {
	s := u.process.scene
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
	u.process.scene.Helper()
	if synctest.Wait(); u.hold.Err() != nil {
		u.process.scene.Fatalf("hold: %v", u.hold.Err())
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
		u.process.scene.Errorf("Release: %v", err)
	}
}

// checkExclusion checks that no turn began before all earlier ones were over or lost.
// It goes by virtual time, so that it holds at every instant.
func (s *scene) checkExclusion() {
	s.Helper()
	last := make(map[string]*turn)
	slices.SortFunc(s.turns, func(a, b *turn) int { return cmp.Compare(a.number, b.number) })
	for _, u := range s.turns {
		if u.hold == nil {
			continue
		}
		if before := last[u.path]; before != nil {
			if u.since.Before(before.until) {
				s.Errorf("%s: granted to %s at %v, while %s held it until %v", u.path,
					u.process.servers[0], u.since, before.process.servers[0], before.until)
			}
			if u.hold.Token() < before.hold.Token() {
				s.Errorf("%s: token %d after %d", u.path, u.hold.Token(), before.hold.Token())
			}
			if before.until.After(u.until) {
				continue
			}
		}
		last[u.path] = u
	}
}
