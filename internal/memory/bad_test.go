package memory_test

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A badTier is a correct tier whose results are changed by the functions below. A nil function changes nothing.
type badTier struct {
	second.Tier
	acquire func(ctx context.Context, c badClaim) (second.Grant, error)
	try     func(ctx context.Context, c badClaim) (second.Grant, error)
	requeue func(ctx context.Context, c badClaim, old second.Grant) (second.Grant, error)
	queue   func([]second.Contender)
	mode    func(second.Mode) second.Mode // changes the mode of a claim
	wait    func(*second.Wait) *second.Wait
	grant   func(badGrant) second.Grant // wraps a grant in another type
	close   func(second.Tier) error
	notify  func(second.Connection, func(second.Connection))
}

func (b *badTier) Notify(f func(second.Connection)) {
	if b.notify != nil {
		b.Tier.Notify(func(c second.Connection) { b.notify(c, f) })
		return
	}
	b.Tier.Notify(f)
}

type badClaim struct {
	second.Claim
	tier *badTier
	wait *second.Wait // the wait of the call under way
}

// A badGrant is a correct grant that a defective tier changes.
type badGrant struct {
	second.Grant
	tier *badTier
}

func (g badGrant) good() second.Grant { return g.Grant }

// good returns the correct grant inside a changed one.
func good(g second.Grant) second.Grant {
	if bad, ok := g.(interface{ good() second.Grant }); ok {
		return bad.good()
	}
	return g
}

func (b *badTier) Claim(path string, o second.Options) (second.Claim, error) {
	if b.mode != nil {
		o.Mode = b.mode(o.Mode)
	}
	c, err := b.Tier.Claim(path, o)
	if err != nil {
		return nil, err
	}
	return badClaim{c, b, nil}, nil
}

func (b *badTier) Close() error {
	if b.close != nil {
		return b.close(b.Tier)
	}
	return b.Tier.Close()
}

func (b *badTier) granted(g second.Grant, err error) (second.Grant, error) {
	if err != nil || b.grant == nil {
		return g, err
	}
	return b.grant(badGrant{g, b}), nil
}

// waiting returns the claim with the wait w, which the defective tier may change.
func (c badClaim) waiting(w *second.Wait) badClaim {
	if c.wait = w; w != nil && c.tier.wait != nil {
		c.wait = c.tier.wait(w)
	}
	return c
}

func (c badClaim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	c = c.waiting(w)
	if c.tier.acquire != nil {
		return c.tier.granted(c.tier.acquire(ctx, c))
	}
	return c.tier.granted(c.Claim.Acquire(ctx, c.wait))
}

func (c badClaim) TryAcquire(ctx context.Context) (second.Grant, error) {
	if c.tier.try != nil {
		return c.tier.granted(c.tier.try(ctx, c))
	}
	return c.tier.granted(c.Claim.TryAcquire(ctx))
}

func (c badClaim) Requeue(ctx context.Context, old second.Grant, w *second.Wait) (second.Grant, error) {
	c = c.waiting(w)
	if c.tier.requeue != nil {
		return c.tier.granted(c.tier.requeue(ctx, c, good(old)))
	}
	return c.tier.granted(c.Claim.Requeue(ctx, good(old), c.wait))
}

func (c badClaim) Contenders(ctx context.Context) ([]second.Contender, error) {
	queue, err := c.Claim.Contenders(ctx)
	if c.tier.queue != nil {
		c.tier.queue(queue)
	}
	return queue, err
}

func (c badClaim) Equal(other second.Claim) bool { return c.Claim.Equal(other.(badClaim).Claim) }

type deaf struct {
	badGrant
	contended *second.Contention
}

func (g deaf) Contended() *second.Contention { return g.contended }

type unending struct{ badGrant }

func (unending) Context() context.Context { return context.Background() }

type clockless struct{ badGrant }

func (g clockless) Err() error { return context.Cause(g.Context()) }

func (g clockless) ErrAt(time.Duration) error { return g.Err() }

type reviving struct{ badGrant }

func (g reviving) ErrAt(time.Duration) error { return g.Err() }

func (g reviving) Err() error {
	if err := g.Grant.Err(); err == nil || g.tier.Err() != nil || errors.Is(err, second.ErrReleased) {
		return err
	}
	return nil
}

type hopeful struct{ badGrant }

func (g hopeful) ValidUntil() time.Time {
	end := g.Grant.ValidUntil()
	if end.IsZero() {
		return end
	}
	return end.Add(time.Second / 4)
}

type alarm struct {
	badGrant
	life context.Context
	end  context.CancelFunc
}

func (g *alarm) Context() context.Context { return g.life }

func (g *alarm) Release() error {
	defer g.end()
	return g.Grant.Release()
}

// A forgetful grant hides one kind of loss: its release returns no error if the loss matches of.
type forgetful struct {
	badGrant
	of error
}

func (g forgetful) Release() error {
	if err := g.Grant.Release(); !errors.Is(err, g.of) {
		return err
	}
	return nil
}

type hasty struct{ badGrant }

func (g hasty) Release() error {
	if err := g.Err(); err != nil {
		return g.Grant.Release()
	}
	time.AfterFunc(10*time.Millisecond, func() { g.Grant.Release() })
	return nil
}

type impatient struct{ badGrant }

func (impatient) AwaitRelease() error { return nil }

type stubborn struct{ badGrant }

func (g stubborn) Release() error {
	begun := time.Now()
	err := g.Grant.Release()
	if time.Since(begun) > 0 { // the release was not answered yet
		time.Sleep(tierTimeout / 2)
	}
	return err
}

type cheap struct {
	badGrant
	token int64
}

func (g cheap) Token() int64 { return g.token }

type dishonest struct{ badGrant }

func (dishonest) Shared() bool { return false }

type generous struct{ badGrant }

func (g generous) Share(ctx context.Context) error {
	go g.Grant.Share(g.Context())
	return context.Cause(ctx)
}

type unasked struct{ badGrant }

func (unasked) RevokeRequested() <-chan struct{} { return nil }
