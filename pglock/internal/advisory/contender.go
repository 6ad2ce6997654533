package advisory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Contender is one session that queues for a lock, and the grant when it has it. It is enrolled in
// the session from before it queues until it is given up.
type Contender struct {
	claim   *claim
	session *session
	queued  time.Time
	unseen  time.Time // since when the ear has not seen it waiting; the ear's

	token int64 // set by the attempt, before anybody else sees it

	loss notice.Loss
	life context.Context // ends when the lock, or the place in the queue, is lost
	end  context.CancelCauseFunc

	contested atomic.Pointer[contention.Signal]
	revoked   mutexbool.Bool
	shared    atomic.Bool
	news      mutexbool.Bool // the first look, or another one, is answered

	mu       sync.Mutex // guards the fields below; the last one to be taken but for that of the line
	attended bool       // a goroutine is, or was, at it
	later    *time.Timer
	pause    time.Duration // until the next look, which grows
	sharing  bool          // somebody waits for a reader right behind
	behind   []place       // those that wait, as last seen

	pending  atomic.Int32 // transactions under way
	spent    atomic.Bool  // given up
	finished sync.Once
	fate     error         // what Release says about the end; valid when released is closed
	released chan struct{} // closed when the lock is given away
}

func (l *claim) newContender(x *session) *Contender {
	c := &Contender{claim: l, session: x, queued: time.Now(), released: make(chan struct{})}
	// Not derived from the context of Acquire, which bounds only the wait.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.shared.Store(l.mode == second.Reading)
	c.contested.Store(contention.New(c.lookSoon))
	return c
}

// hold makes the contender the holder, whose session is looked after a moment later: a short hold
// costs nothing.
func (c *Contender) hold() bool {
	if !c.session.Hold(c) {
		return false
	}
	c.loss.Held()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = c.claim.tier.beat()
	c.session.schedule(time.Now().Add(c.pause))
	c.later = time.AfterFunc(soon, c.attendOnce)
	return true
}

// lose ends the hold, or the wait. The session is left alone then: the server ends it, and its lock,
// no sooner than the lease of the server is over.
func (c *Contender) lose(reason error) {
	c.end(reason)
	if !c.spent.Load() { // else the release says so
		c.reportLoss(reason)
	}
}

func (c *Contender) reportLoss(cause error) {
	t := c.claim.tier
	c.loss.Tell(cause, func() {
		t.spawn(func() {
			t.config.Logger.Warn("pglock: lock lost", "path", c.claim.path, "token", c.token, "cause", cause)
		})
	})
}

func (c *Contender) lost() bool { return c.life.Err() != nil }

// over reports whether nobody needs the session to be looked after.
func (c *Contender) over() bool { return c.spent.Load() || c.lost() }

// giveUp comes before the lock goes, and returns the loss, which is none from then on unless the answer
// to that says so.
func (c *Contender) giveUp() (loss error) {
	c.lossNow() // reads the clock
	c.session.Leave(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later != nil {
		c.later.Stop()
	}
	c.news.Set()
	return context.Cause(c.life)
}

// finish says that nobody has to wait for the end of the lock any more.
func (c *Contender) finish(fate error) {
	c.finished.Do(func() {
		c.reportLoss(fate)
		c.fate = fate
		close(c.released)
	})
}

// refused reports whether the server has answered with an error, and the connection goes on.
func refused(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Severity != "FATAL" && refusal.Severity != "PANIC"
}
