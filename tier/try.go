package tier

import (
	"context"
	"fmt"
	"time"
)

// tryTime is for how long goroutines of this process wait behind a try.
const tryTime = time.Second

var errOvertaken = fmt.Errorf("%w: the store did not answer within %v, and another goroutine of this process waits", ErrLocked, tryTime)

// A try is a TryAcquire in flight at the second tier. It serves its caller alone. If the store has just stopped answering, it lasts until
// that is known. Goroutines that have waited behind it for long therefore cancel it and queue: their place counts once the store answers
// again.
type try struct {
	ctx   context.Context // of its caller, or less
	end   context.CancelCauseFunc
	since time.Duration // on the clock of the leases
	timer *time.Timer   // cancels it; nil while no goroutine waits
}

func newTry(ctx context.Context, now time.Duration) *try {
	t := &try{since: now}
	t.ctx, t.end = context.WithCancelCause(ctx)
	return t
}

// keepsWaiting is called, under the mutex of its stake, when a goroutine begins to wait behind a try. There is no try if t is nil.
func (t *try) keepsWaiting(now time.Duration) {
	if t != nil && t.timer == nil {
		t.timer = time.AfterFunc(tryTime-(now-t.since), func() { t.end(errOvertaken) })
	}
}

// over is called, under the same mutex, when the try has returned.
func (t *try) over() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.end(nil)
}
