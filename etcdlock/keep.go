package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/retry"
)

// keep sees to it that there is a session, from the first to the last.
func (s *store) keep() {
	pace := retry.New()
	for s.ctx.Err() == nil {
		x, err := s.grant()
		s.sessions.report(x, err)
		if x == nil {
			s.reconnect()
			retry.Pause(s.ctx, pace.NextBackOff())
			continue
		}
		pace.Reset()
		s.notice.Begin(x.String())
		s.spawn(s.checkVersions)
		s.keepAlive(x)
	}
	s.revoke()
}

// grant asks for a lease once. An error is one that retrying does not fix; without one, there
// may be a session next time.
func (s *store) grant() (*session, error) {
	var granted *clientv3.LeaseGrantResponse
	sent := s.now()
	err := s.call(s.ctx, func(ctx context.Context) (err error) {
		granted, err = s.client.Grant(ctx, int64(s.options.ttl/time.Second))
		return err
	})
	switch classify(err) {
	case done:
	case permanent:
		return nil, err
	default:
		return nil, nil
	}
	ttl := time.Duration(granted.TTL) * time.Second
	switch {
	case ttl <= 0:
		return nil, fmt.Errorf("etcd has granted a lease of %v, where %v was asked for", ttl, s.options.ttl)
	case ttl > s.options.ttl:
		s.options.logger.Warn("etcdlock: the server has raised the TTL of the lease",
			"asked", s.options.ttl, "granted", ttl)
	}
	return s.newSession(granted.ID, ttl, sent), nil
}

// keepAlive renews the lease each quarter of its TTL until it is over. While etcd does not
// answer it goes on trying: the lease may live there, and with it the places in the queues.
func (s *store) keepAlive(x *session) {
	timer := time.NewTimer(x.ttl / 4)
	defer timer.Stop()
	for pace := retry.New(); !x.Over(); {
		select {
		case <-timer.C:
		case <-s.renew.C():
		case <-s.ctx.Done():
			return
		}
		renewed := s.keepAliveOnce(x)
		s.renew.Clear() // before the look at problem: who has one later asks again
		if renewed && s.problem.Load() == nil {
			pace.Reset()
			timer.Reset(x.ttl / 4)
			continue
		}
		s.reconnect()
		timer.Reset(pace.NextBackOff())
	}
}

func (s *store) keepAliveOnce(x *session) bool {
	sent := s.now()
	err := s.call(s.ctx, func(ctx context.Context) error {
		_, err := s.client.KeepAliveOnce(ctx, x.id)
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.expire(x)
	case err == nil:
		x.heard(sent)
		if x.doubtful.Load() {
			s.spawn(func() { s.audit(x) })
		}
	}
	return err == nil
}

// reconnect keeps grpc from waiting ever longer, up to two minutes, before it dials again.
func (s *store) reconnect() { s.client.ActiveConnection().ResetConnectBackoff() }

// audit deletes the keys of the lease that nobody of this process stands for. A request whose
// answer did not come may be applied at any later time, also after the delete of its key: by a
// server, say, that was stopped and continued. Nothing but the end of the lease, without which
// it is refused, makes sure that it is not; and until then this finds what it has done. Keys
// are enrolled before they are created, and from the first such request on have a name once only,
// so that no key is deleted that is wanted.
func (s *store) audit(x *session) {
	var attached *clientv3.LeaseTimeToLiveResponse
	if err := s.call(s.ctx, func(ctx context.Context) (err error) {
		attached, err = s.client.TimeToLive(ctx, x.id, clientv3.WithAttachedKeys())
		return err
	}); err != nil {
		return // next time
	}
	wanted := make(map[string]bool) // asked for after the answer: what is created later does not matter
	for _, c := range x.Contenders() {
		wanted[c.key] = true
	}
	for _, key := range attached.Keys {
		if _, leaving := x.leaving.Load(string(key)); !wanted[string(key)] && !leaving {
			s.reaper.Add(remains{key: string(key), session: x})
		}
	}
}

// revoke ends the lease at the close of the store, and with it its keys.
func (s *store) revoke() {
	x := s.sessions.last()
	if x == nil || s.problem.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.client.Revoke(ctx, x.id) // if that fails, the lease expires
}
