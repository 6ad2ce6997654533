package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
)

// A session is a line for one contender at a time, and its lease.
//
// What is promised to a holder runs from when the newest statement that the server has answered was
// sent, for the TTL, less the margin. The server counts from when it has answered it, which is later.
type session struct {
	*line
	*lease.Lease[*Contender]
	tier  *Tier
	calm  time.Duration // until when nobody is granted anything, on the tier's clock
	spare time.Time     // since when nobody uses it; guarded by the tier
}

// session returns one that nobody uses, or a new one.
func (t *Tier) session(ctx context.Context) (*session, error) {
	if x := t.takeSpare(); x != nil {
		return x, nil
	}
	sent := t.Now()
	l, err := t.dial(ctx, nil)
	if err != nil {
		return nil, err
	}
	x := &session{line: l, tier: t, calm: t.Now() + l.calm, Lease: lease.New(lease.Config[*Contender]{
		Name:    l.String(),
		Now:     t.Now,
		Vouches: func() bool { return true },
		Lose:    (*Contender).lose,
		Lost:    (*Contender).lost,
	}, sent, t.config.TTL-t.config.Margin)}
	l.dying = x.end
	if !t.enter(x) {
		x.close()
		return nil, context.Cause(t.ctx)
	}
	return x, nil
}

// ask is that of the line. The answer renews the lease, and the lack of one is the end of the session.
func (x *session) ask(statement string, args ...string) ([][][]byte, error) {
	return x.askFor(x.bound, call{statement, args})
}

// askPatiently waits for as long as the lease lasts: for a holder, an answer that is late is none that is lost.
// When none comes the driver closes the connection, and nobody may hold the lock by then.
func (x *session) askPatiently(statement string, args ...string) ([][][]byte, error) {
	left, _ := x.Remaining()
	return x.askFor(max(left, x.bound), call{statement, args})
}

func (x *session) askFor(bound time.Duration, c call) ([][][]byte, error) {
	sent := x.tier.Now()
	rows, err := x.line.ask(bound, c)
	if err != nil && !refused(err) {
		x.broken(err)
		return nil, err
	}
	x.Renew(sent)
	return rows, err
}

// broken ends a session whose connection is of no use any more: the server ends it as soon as it
// notices, after the TTL at the latest. A holder knows before that.
func (x *session) broken(why error) {
	x.end(why)
	x.tier.forget(x)
	x.drop()
}

// end says that the connection is, or is about to be, closed.
func (x *session) end(why error) {
	x.Lapse() // a lease that is over has ended before
	x.End(fmt.Errorf("the session at the server is over: %w", why))
}

var errSpare = errors.New("not used for long")

// enter adds a session to those of the tier, unless that is closed.
func (t *Tier) enter(x *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.sessions[x.pid] = x
	return true
}

func (t *Tier) forget(x *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[x.pid] == x {
		delete(t.sessions, x.pid)
	}
}

// keep keeps a session that has neither lock nor contender for others.
func (t *Tier) keep(x *session) {
	t.mu.Lock()
	kept := !t.closed && !x.isClosed()
	if kept {
		x.spare = time.Now()
		t.spares = append(t.spares, x)
	}
	t.mu.Unlock()
	if !kept {
		t.retire(x)
	}
}

func (t *Tier) retire(x *session) {
	x.close()
	t.forget(x)
	x.End(errSpare)
}

// takeSpare returns the session that was used last, so that the others grow old.
func (t *Tier) takeSpare() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(t.spares); n > 0; n-- {
		x := t.spares[n-1]
		t.spares = t.spares[:n-1]
		if t.freshLocked(x) {
			return x
		}
		t.spawnLocked(func() { t.retire(x) })
	}
	return nil
}

// freshLocked reports whether the server has not ended the session yet.
func (t *Tier) freshLocked(x *session) bool {
	return time.Since(x.spare) < t.config.TTL/2 && !x.isClosed()
}

// dropSpares retires the sessions that nobody has used for long, or all.
func (t *Tier) dropSpares(all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []*session
	for _, x := range t.spares {
		if !all && t.freshLocked(x) {
			kept = append(kept, x)
		} else {
			t.spawnLocked(func() { t.retire(x) })
		}
	}
	t.spares = kept
}
