package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/lease"
)

// A session is the time of one etcd lease, under which all keys of the process are created.
//
// What is promised to holders runs from when the newest keep-alive that etcd has answered was
// sent, for the granted TTL, less the margin. The leader counts from when it gets it, which is
// later, and a new leader begins anew.
type session struct {
	*lease.Lease[*contender]
	id  clientv3.LeaseID
	ttl time.Duration // as granted

	// A request without an answer may still create a key; see [store.audit].
	doubtful atomic.Bool
	names    names
	leaving  sync.Map // keys that were given up and are not finished yet
}

func (s *store) newSession(id clientv3.LeaseID, ttl, sent time.Duration) *session {
	return &session{id: id, ttl: ttl, Lease: lease.New(lease.Config[*contender]{
		Name:    fmt.Sprintf("etcd lease %x", int64(id)),
		Now:     s.now,
		Vouches: func() bool { return true },
		Lose:    (*contender).lose,
		Lost:    (*contender).lost,
	}, sent, ttl-s.margin(ttl))}
}

func (x *session) String() string { return fmt.Sprintf("%x", int64(x.id)) }

// heard counts that etcd has answered a keep-alive that was sent then. Whoever is first in a
// queue and only waits for that learns of it.
func (x *session) heard(sent time.Duration) {
	x.Renew(sent)
	for _, c := range x.Contenders() {
		c.wake.Set()
	}
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
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *sessions) now() (x *session, refused error, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest, l.refused, l.changed
}

// await waits for a session. It returns at once if none can be had as things stand, and, for
// who does not want to wait, while etcd does not answer.
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

var errLeaseGone = errors.New("the etcd lease has expired or was revoked")

// expire ends a session of which the server says that it does not know it.
func (s *store) expire(x *session) {
	x.End(errLeaseGone)
	s.notice.End(x.String())
	s.renew.Set()
}
