package memory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// A badSemaphore is a correct semaphore with a defect. A nil function changes nothing.
type badSemaphore struct {
	second.Semaphore
	acquire func(ctx context.Context, s second.Semaphore, d *second.Demand) ([]second.Permit, error)
	try     func(ctx context.Context, s second.Semaphore, k int) ([]second.Permit, error)
	release func(s second.Semaphore, permits []second.Permit) error
	permit  func(second.Permit) second.Permit // wraps each permit
	queue   func([]second.Contender)
	total   func(int) int // changes the total number of permits
}

func (b badSemaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	if b.acquire != nil {
		return b.taken(b.acquire(ctx, b.Semaphore, d))
	}
	return b.taken(b.Semaphore.Acquire(ctx, d))
}

func (b badSemaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	if b.try != nil {
		return b.taken(b.try(ctx, b.Semaphore, k))
	}
	return b.taken(b.Semaphore.TryAcquire(ctx, k))
}

func (b badSemaphore) taken(permits []second.Permit, err error) ([]second.Permit, error) {
	if b.permit != nil {
		for i, p := range permits {
			permits[i] = badPermit{b.permit(p), p}
		}
	}
	return permits, err
}

func (b badSemaphore) Release(permits []second.Permit) error {
	permits = slices.Clone(permits)
	for i, p := range permits {
		if bad, ok := p.(badPermit); ok {
			permits[i] = bad.good
		}
	}
	if b.release != nil {
		return b.release(b.Semaphore, permits)
	}
	return b.Semaphore.Release(permits)
}

func (b badSemaphore) Contenders(ctx context.Context) ([]second.Contender, error) {
	all, err := b.Semaphore.Contenders(ctx)
	if b.queue != nil {
		b.queue(all)
	}
	return all, err
}

func (b badSemaphore) Equal(other second.Semaphore) bool {
	return b.Semaphore.Equal(other.(badSemaphore).Semaphore)
}

type badPermit struct {
	second.Permit
	good second.Permit
}

// An unlosable permit never reports a loss.
type unlosable struct{ second.Permit }

func (unlosable) Context() context.Context  { return context.Background() }
func (unlosable) ErrAt(time.Duration) error { return nil }

// Permits of type falling have tokens that decrease.
type falling struct{ second.Permit }

func (f falling) Token() int64 { return 1<<40 - f.Permit.Token() }

// whole returns a demand for k permits, all or none.
func whole(k int) *second.Demand {
	return &second.Demand{Want: func() int { return k }, Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}}
}

// A badSemaphores is a tier whose semaphores are badSemaphores.
type badSemaphores struct {
	second.Tier
	bad badSemaphore
}

func (t badSemaphores) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	if t.bad.total != nil {
		permits = t.bad.total(permits)
	}
	s, err := t.Tier.Semaphore(path, permits, o)
	if err != nil {
		return nil, err
	}
	b := t.bad
	b.Semaphore = s
	return b, nil
}

func TestTierSuiteFindsWhatIsWrongWithPermits(t *testing.T) {
	type semaphore = second.Semaphore
	type permits = []second.Permit
	for _, c := range []struct {
		name string
		want []string // the tests of the suite that have to fail
		bad  badSemaphore
	}{
		{"there is one more", []string{"permits", "permits-order", "permits-try", "permits-stopped"},
			badSemaphore{total: func(n int) int { return n + 1 }}},
		{"any number will do", []string{"permits-number"}, badSemaphore{total: func(int) int { return 2 }}},
		{"they come one by one", []string{"permits-halves", "permits-writes", "permits-order"},
			badSemaphore{acquire: func(ctx context.Context, s semaphore, d *second.Demand) (all permits, err error) {
				for range d.Want() {
					one, err := s.Acquire(ctx, whole(1))
					if err != nil {
						return nil, err
					}
					all = append(all, one...)
				}
				return all, nil
			}}},
		{"tokens fall", []string{"permits-tokens", "permits-order"},
			badSemaphore{permit: func(p second.Permit) second.Permit { return falling{p} }}},
		{"a loss is not told", []string{"permits-cut", "permits-frozen", "permits-stopped", "permits-close"},
			badSemaphore{permit: func(p second.Permit) second.Permit { return unlosable{p} }}},
		{"a release waits for nothing", []string{"permits-gone"},
			badSemaphore{release: func(s semaphore, all permits) error {
				go s.Release(all)
				return nil
			}}},
		{"they are given up one by one", []string{"permits-writes"},
			badSemaphore{release: func(s semaphore, all permits) (err error) {
				for _, one := range all {
					err = errors.Join(err, s.Release(permits{one}))
				}
				return err
			}}},
		{"a release keeps the rest", []string{"permits-part", "permits-order", "permits-halves"},
			badSemaphore{release: func(s semaphore, all permits) error { return s.Release(all[:1]) }}},
		{"a try queues", []string{"permits-try-writes"},
			badSemaphore{try: func(ctx context.Context, s semaphore, k int) (permits, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				all, err := s.Acquire(ctx, whole(k))
				if errors.Is(err, context.DeadlineExceeded) {
					err = second.ErrLocked
				}
				return all, err
			}}},
		{"waits have no standing", []string{"permits-standing"},
			badSemaphore{acquire: func(ctx context.Context, s semaphore, d *second.Demand) (permits, error) {
				return s.Acquire(ctx, &second.Demand{Want: d.Want, Take: d.Take})
			}}},
		{"another demand is not reported", []string{"permits-demand", "permits-left-lost"},
			badSemaphore{acquire: func(ctx context.Context, s semaphore, d *second.Demand) (permits, error) {
				return s.Acquire(ctx, whole(d.Want()))
			}}},
		{"who has some is not shown", []string{"permits-contenders"},
			badSemaphore{queue: func(all []second.Contender) {
				for i := range all {
					all[i].Permits = 0
				}
			}}},
		{"a caller leaves what it gets", []string{"permits-left-cancelled", "permits-bounds"},
			badSemaphore{acquire: func(ctx context.Context, s semaphore, d *second.Demand) (permits, error) {
				return leaving(ctx, func(ctx context.Context) (permits, error) { return s.Acquire(ctx, d) })
			}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bites(t, c.want, func(p *tiertest.Process) { p.Tier = badSemaphores{p.Tier, c.bad} })
		})
	}
}
