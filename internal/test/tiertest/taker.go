package tiertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/oracle"
)

// A taker is a process that takes permits.
type taker struct {
	*proc
	total int // the number of permits that it passes to Semaphore
	store second.Semaphore
}

// proc.of returns a taker for this process. The semaphore has total permits. From then on, Left counts takers.
func (p *proc) of(total int) *taker {
	s := p.scene
	s.Helper()
	store, err := p.Semaphore(s.path, total, second.Options{})
	if errors.Is(err, errors.ErrUnsupported) {
		s.lacks("advisory locks have no semaphores")
	}
	if err != nil {
		s.Fatalf("Semaphore: %v", err)
	}
	s.needs(s.LeftPermits != nil, "count those who have permits")
	s.Left = s.LeftPermits
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = cmp.Or(s.total, total)
	return &taker{p, total, store}
}

func (s *scene) permitsNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// The method permits sets the number of permits that the checks expect.
func (s *scene) permits(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = n
}

func (s *scene) takers(n, total int) (all []*taker) {
	s.Helper()
	for _, p := range s.processes(n) {
		all = append(all, p.of(total))
	}
	return all
}

// A portion is a set of permits that were taken together, as the scene has recorded them.
type portion struct {
	taker   *taker
	token   int64
	life    context.Context // context of one of the permits
	permits []second.Permit // permits that are not released yet; guarded by scene.mu
	kept    bool            // all permits were released without a loss; guarded by scene.mu
}

// The method note records a portion at the moment when it is taken. The token of the portion has to exceed the tokens that were known when
// the portion was requested. If several portions wait at the same time, the first may be recorded last.
func (t *taker) note(permits []second.Permit, asked oracle.Tokens) *portion {
	s := t.scene
	p := &portion{taker: t, token: permits[0].Token(), life: permits[0].Context(), permits: permits}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := oracle.Lock{Room: oracle.Room(s.total)}
	for i, other := range s.taken {
		if other.errLocked() == nil {
			l.Inside = append(l.Inside, oracle.Turn{Process: i, Weight: int64(len(other.permits))})
		}
	}
	if _, err := l.Enter(oracle.Turn{Process: len(s.taken), Weight: int64(len(permits))}); err != nil {
		s.Errorf("%d permits: %v", len(permits), err)
	}
	mark := oracle.Mark{Token: p.token, Process: int64(len(s.taken)) + 1} // no portion passes its token on
	if err := asked.Judge(mark, true); err != nil || p.token <= 0 {
		s.Errorf("%d permits with token %d: %v", len(permits), p.token, err)
	}
	for _, one := range permits {
		if one.Token() != p.token {
			s.Errorf("token %d of one of %d permits, but token %d of the first one", one.Token(), len(permits), p.token)
		}
	}
	s.taken, s.tokens = append(s.taken, p), s.tokens.With(mark, true)
	return p
}

// The method asked returns the tokens known so far.
func (s *scene) asked() oracle.Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens
}

// The method err returns the loss of any permit of a portion.
func (p *portion) err() error {
	p.taker.scene.mu.Lock()
	defer p.taker.scene.mu.Unlock()
	return p.errLocked()
}

func (p *portion) errLocked() error {
	for _, one := range p.permits {
		if err := one.ErrAt(p.taker.Now()); err != nil {
			return err
		}
	}
	return nil
}

// The method lost returns the loss of the portion. It checks that all methods of each permit report that loss.
func (p *portion) lost() error {
	p.taker.scene.mu.Lock()
	defer p.taker.scene.mu.Unlock()
	for i, one := range p.permits {
		if err := one.ErrAt(p.taker.Now()); !errors.Is(err, second.ErrLost) {
			return fmt.Errorf("ErrAt of permit %d is: %w", i, err)
		}
		if cause := context.Cause(one.Context()); !errors.Is(cause, second.ErrLost) {
			return fmt.Errorf("the cause of the context of permit %d is: %w", i, cause)
		}
	}
	return nil
}

// The method part removes n permits of a portion from the record. The caller is about to release them.
func (p *portion) part(n int) (gone []second.Permit) {
	p.taker.scene.mu.Lock()
	defer p.taker.scene.mu.Unlock()
	gone = p.permits[:n:n]
	p.permits = p.permits[n:]
	return gone
}

// The method give releases n permits of a portion.
func (p *portion) give(n int) error {
	gone := p.part(n)
	err := p.taker.store.Release(gone)
	p.taker.scene.mu.Lock()
	defer p.taker.scene.mu.Unlock()
	p.kept = err == nil && len(p.permits) == 0
	return ifKnown(gone[0], err)
}

// The method give checks that n permits of a portion can be released.
func (s *scene) give(p *portion, n int) {
	s.Helper()
	if err := p.give(n); err != nil {
		s.Errorf("Release of %d permits: %v", n, err)
	}
}

// giveAll releases all remaining permits of portions.
func (s *scene) giveAll(portions ...*portion) {
	s.Helper()
	for _, p := range portions {
		s.give(p, len(p.permits))
	}
}

// A taking is a call that acquires permits.
type taking struct {
	*call
	want    int
	portion *portion // the result, valid when the call has ended
}

func (t *taker) begin(ctx context.Context, want int, take func(context.Context) ([]second.Permit, error)) *taking {
	r, asked := &taking{want: want}, t.scene.asked()
	r.call = t.scene.call(ctx, func(ctx context.Context) error {
		permits, err := take(ctx)
		if err == nil {
			r.portion = t.note(permits, asked)
		}
		return err
	})
	return r
}

// The function demand returns a demand of k permits.
func demand(k int) *second.Demand {
	return &second.Demand{Want: func() int { return k }, Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}}
}

func (t *taker) acquire(ctx context.Context, k int) *taking {
	return t.begin(ctx, k, func(ctx context.Context) ([]second.Permit, error) { return t.store.Acquire(ctx, demand(k)) })
}

func (t *taker) try(ctx context.Context, k int) *taking {
	return t.begin(ctx, k, func(ctx context.Context) ([]second.Permit, error) { return t.store.TryAcquire(ctx, k) })
}

// The method take acquires k permits, and may wait for them.
func (t *taker) take(k int) *portion {
	t.scene.Helper()
	return t.acquire(t.scene.Context(), k).granted()
}

// The method takes tries until it gets k permits that are free. A server that lags may be late to know that they are free.
func (t *taker) takes(k int) (p *portion) {
	t.scene.Helper()
	t.scene.await("a try takes permits that are free", t.scene.news(), func() bool {
		r := t.try(t.scene.Context(), k)
		r.end()
		p = r.portion
		return p != nil
	})
	return p
}

// The method refused checks that a try for k permits fails because other processes have them, or wait for them.
func (t *taker) refused(k int) {
	t.scene.Helper()
	r := t.try(t.scene.Context(), k)
	if r.end(); !errors.Is(r.err, second.ErrLocked) {
		t.scene.Errorf("TryAcquire of %d: %v, want ErrLocked", k, r.err)
	}
}

// The method queue starts to acquire k permits that are not free. It returns when the new contender is visible from outside.
func (t *taker) queue(k int) *taking {
	t.scene.Helper()
	return t.queueWith(k, demand(k))
}

func (t *taker) queueWith(k int, d *second.Demand) *taking {
	t.scene.Helper()
	present := t.scene.present() + 1
	r := t.begin(t.scene.Context(), k, func(ctx context.Context) ([]second.Permit, error) { return t.store.Acquire(ctx, d) })
	t.scene.awaitLeft(present)
	return r
}

func (r *taking) granted() *portion {
	r.scene.Helper()
	if r.end(); r.err != nil {
		r.scene.Fatalf("no permits: %v", r.err)
	}
	if n := len(r.portion.permits); n != r.want {
		r.scene.Fatalf("%d permits, want %d", n, r.want)
	}
	return r.portion
}

// The method settle waits for the end of a call that may fail. Permits that it has acquired are released.
func (r *taking) settle() {
	r.scene.Helper()
	if r.end(); r.err == nil {
		r.scene.giveAll(r.granted())
	}
}

// usedPermits makes a first acquisition at the path. It creates everything that later acquisitions find.
func (s *scene) usedPermits(t *taker) {
	s.Helper()
	s.giveAll(t.take(1))
	s.none()
}
