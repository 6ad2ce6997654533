package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
)

// A session is the time for which the server knows this process, and all its contenders with it.
//
// What is promised to holders runs from when the newest renewal that was answered was sent, for the
// TTL, less the margin. The server counts from when it got it, which is later.
type session struct {
	*lease.Lease[*contender]
	id string

	// A request without an answer may still put a contender into a queue, or a delete was not possible; see
	// [attendant.audit].
	doubtful atomic.Bool
	leaving  sync.Map // ids of contenders that were given up and are not finished yet
	byID     sync.Map // of those whose turn may be told
}

func (s *store) newSession(sent time.Duration) *session {
	id := newID()
	return &session{id: id, Lease: lease.New(lease.Config[*contender]{
		Name:    "session " + id,
		Now:     s.now,
		Vouches: func() bool { return true },
		Lose:    (*contender).lose,
		Lost:    (*contender).lost,
	}, sent, s.options.ttl-s.options.safety())}
}

// newID returns a random uuid.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // cannot fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// channel is where the server tells the session its news.
func (x *session) channel() string { return "tierlock " + x.id }

// heard counts that a renewal was answered that was sent then. Whoever is first in a queue and only
// waits for that learns of it.
func (x *session) heard(sent time.Duration) {
	x.Renew(sent)
	for _, c := range x.Contenders() {
		c.wake.Set()
	}
}

// unwanted returns those that were present for whom nobody stands any more.
func (x *session) unwanted(present map[string]string) map[string]string {
	unwanted := maps.Clone(present)
	for _, c := range x.Contenders() { // asked for after the answer: what comes later does not matter
		delete(unwanted, c.id)
	}
	maps.DeleteFunc(unwanted, func(id, _ string) bool {
		_, leaving := x.leaving.Load(id)
		return leaving
	})
	return unwanted
}

// sessions are those of a store, one after the other.
type sessions struct {
	mu      sync.Mutex // guards the fields below
	newest  *session   // nil before the first
	refused error      // why there will be no session as things stand
	changed chan struct{}
}

func (l *sessions) last() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// report says what became of the request for a session.
func (l *sessions) report(x *session, refused error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x != nil {
		l.newest = x
	}
	l.refused = refused
	l.stirLocked()
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
// who does not want to wait, while the server does not answer.
func (s *store) await(ctx context.Context, patient bool) (*session, error) {
	for {
		x, refused, changed := s.sessions.now()
		switch {
		case x != nil && !x.Over():
			return x, nil
		case refused != nil:
			return nil, refused
		case !patient && s.Err() != nil:
			return nil, s.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, s.explain(context.Cause(ctx))
		}
	}
}

var errOver = errors.New("the server does not know it any more")

// expire ends a session of which the server says that it is over.
func (s *store) expire(x *session) {
	x.End(errOver)
	s.notice.End(x.id)
	s.nudge.poke()
}
