package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
	"github.com/tierlock/tierlock/internal/second"
)

// A session is a time in which Redis has never failed to answer for as long as a lease lasts. It
// exists only here: Redis knows the leases of contenders.
//
// Each of these ends a TTL after Redis last heard of the contender. What is promised to holders runs
// from when the newest round of heartbeats that were all answered was sent, which was before, for the
// TTL less the margin.
type session struct {
	*lease.Lease[*contender]
	number int

	mu     sync.Mutex    // guards the field below
	newest time.Duration // when the newest round was sent that was answered
}

func (s *store) newSession(number int, sent time.Duration) *session {
	x := &session{number: number, newest: sent}
	x.Lease = lease.New(lease.Config[*contender]{
		Name:    "Redis",
		Now:     s.now,
		Vouches: func() bool { return true },
		Lose:    (*contender).lose,
		Lost:    (*contender).lost,
	}, sent, s.options.ttl-s.margin())
	return x
}

func (x *session) String() string { return fmt.Sprint(x.number) }

// heard counts that Redis has answered a round of heartbeats that was sent then. Whoever has its turn
// and only waits for that learns of it.
func (x *session) heard(sent time.Duration) {
	x.mu.Lock()
	x.newest = sent
	x.mu.Unlock()
	x.Renew(sent)
	for _, c := range x.Contenders() {
		c.wake.Set()
	}
}

// silence is for how long, at a time, no round was answered.
func (x *session) silence(now time.Duration) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return now - x.newest
}

// sessions are those of a store, one after the other.
type sessions struct {
	mu      sync.Mutex // guards the fields below
	newest  *session   // nil before the first
	refused error      // why there will be no session as things stand
	deaf    error      // why no message can come as things stand, although there is a session
	changed chan struct{}
}

// report says what became of the request for a session. It reports whether that is a refusal, and for another
// reason than before.
func (l *sessions) report(x *session, refused error) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x != nil {
		l.newest = x
	}
	news = refused != nil && (l.refused == nil || l.refused.Error() != refused.Error())
	l.refused = refused
	l.stirLocked()
	return news
}

// deafen notes why no message can come, nil if they can. It reports whether that is new; without a session, what
// refuses that counts.
func (l *sessions) deafen(why error) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why != nil && (l.newest == nil || l.refused != nil) {
		return false
	}
	news = why != nil && l.deaf == nil
	l.deaf = why
	return news
}

func (l *sessions) deafness() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

// stir has those who wait for a session look again.
func (l *sessions) stir() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stirLocked()
}

func (l *sessions) stirLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *sessions) now() (x *session, refused error, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest, l.refused, l.changed
}

// await waits for a session. It returns at once if none can be had as things stand, and, for
// who does not want to wait, while Redis does not answer.
func (s *store) await(ctx context.Context, patient bool) (*session, error) {
	for {
		x, refused, changed := s.sessions.now()
		switch {
		case x != nil && !x.Over():
			return x, nil
		case refused != nil:
			return nil, refused
		case !patient && s.outage() != nil:
			return nil, s.outage()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, s.explain(context.Cause(ctx))
		}
	}
}

var errSilence = errors.New("not heard of for a lease TTL")

// begin makes a session of a round that was answered.
func (s *store) begin(sent time.Duration) *session {
	old, _, _ := s.sessions.now()
	number := 1
	if old != nil {
		number = old.number + 1
		old.End(errSilence)
		s.notice.End(old.String())
	}
	x := s.newSession(number, sent)
	s.mu.Lock()
	closed := s.closed // else end finds it
	s.sessions.report(x, nil)
	s.mu.Unlock()
	if closed {
		x.End(second.ErrClosed)
	}
	s.notice.Begin(x.String())
	return x
}
