package tier

import (
	"context"
	"fmt"
	"time"
)

// tryTime is the time for which goroutines of this process wait behind a try.
const tryTime = time.Second

var errOvertaken = fmt.Errorf("%w: the store did not answer within %v, and another goroutine of this process waits for the lock",
	ErrLocked, tryTime)

// A try is a TryAcquire that is in flight at the second tier. It serves only its caller. If the store has just stopped answering, the try
// lasts until the outage is noticed. Goroutines that have waited behind it for tryTime therefore cancel it and queue, because only
// goroutines that queue get a place when the store answers again.
type try struct {
	ctx   context.Context // derived from the caller's context; ends with the try
	end   context.CancelCauseFunc
	since time.Duration // on the clock of the leases
	timer *time.Timer   // cancels the try after tryTime; nil while no goroutine waits
}

func newTry(ctx context.Context, now time.Duration) *try {
	t := &try{since: now}
	t.ctx, t.end = context.WithCancelCause(ctx)
	return t
}

// keepsWaiting is called when a goroutine begins to wait behind a try. The caller has locked the mutex of the cohort or pool. If t is nil,
// there is no try.
func (t *try) keepsWaiting(now time.Duration) {
	if t != nil && t.timer == nil {
		t.timer = time.AfterFunc(tryTime-(now-t.since), func() { t.end(errOvertaken) })
	}
}

// try.over is called when the try has returned. The caller has locked the mutex of the cohort or pool.
func (t *try) over() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.end(nil)
}
