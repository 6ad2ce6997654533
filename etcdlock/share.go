package etcdlock

import (
	"cmp"
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// Shared is true from before the request of Share is sent, since that may be executed at any time.
func (c *contender) Shared() bool { return c.shared.Load() }

// Share writes to the value of the key that it reads from now on. The create revision, and with it
// the place and the token, stay. Nobody in front can write again, so that whoever has seen it, be
// it late, is right to go on.
//
// A request that was sent may be executed as long as the key is as it was. So from then on Share
// waits until it knows, also if ctx is done, for as long as the grant lasts: an error would say that
// this process may write. A server that refuses the write is an error.
func (c *contender) Share(ctx context.Context) error {
	if c.claim.mode == second.Reading {
		return c.Err()
	}
	own, err := c.awaitReader(ctx)
	if err == nil {
		err = c.open(own)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && c.Err() == nil {
		c.claim.store.options.logger.Warn("etcdlock: a writer that reads now cannot let readers of other processes in; they wait for its release",
			"path", c.claim.path, "err", err)
	}
	return c.claim.failure("share", err)
}

// awaitReader waits until the contender right behind reads, and returns the own place.
func (c *contender) awaitReader(ctx context.Context) (own place, err error) {
	s := c.claim.store
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.tenure, func() { cancel(context.Cause(c.tenure)) })()
	for {
		c.wake.Clear()
		if err := cmp.Or(c.Err(), context.Cause(ctx)); err != nil {
			return own, s.explain(err)
		}
		q := c.join()
		if q == nil {
			return own, cmp.Or(c.Err(), second.ErrClosed)
		}
		if own, ok, err := q.readerBehind(c); ok || err != nil {
			return own, err
		}
		c.wake.Wait(ctx) // whose end is seen above
	}
}

// open lets readers in.
func (c *contender) open(own place) error {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.opened {
		return nil
	}
	c.shared.Store(true)
	if err := c.putShared(own); err != nil {
		return err
	}
	c.opened = true
	if q := c.join(); q != nil {
		q.contestAnew(c)
	}
	return nil
}

// putShared sends the same write until it is answered. Its condition is that nothing was written
// since: else a mark that somebody else has put there would be lost.
func (c *contender) putShared(own place) error {
	unclear := false
	for pace := retry.New(); !own.reads; {
		found, err := c.claim.store.mark(c.tenure, own, "shared")
		switch {
		case err == nil && found.created != c.token:
			return c.missing()
		case err == nil:
			own = found
			continue
		case classify(err) == permanent && !unclear:
			c.shared.Store(false)
			return err
		}
		unclear = true
		if err := c.pause(c.tenure, pace.NextBackOff()); err != nil {
			return cmp.Or(c.Err(), err)
		}
	}
	return nil
}

// missing says that the key is not there, which is a loss unless it was given up.
func (c *contender) missing() error {
	if !c.spent.Load() {
		c.gone.Store(true)
		c.lose(deleted(c.key))
	}
	return c.Err()
}

// mark sends once a write that sets a field in the value of a key, if that is as at p. It returns
// what is there then, the zero place if nothing is. The key stays on its lease.
func (s *store) mark(ctx context.Context, p place, field string) (found place, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		value := marked(p.value, field)
		answer, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(p.key), "=", p.modified)).
			Then(clientv3.OpPut(p.key, value, clientv3.WithIgnoreLease())).
			Else(clientv3.OpGet(p.key)).Commit()
		switch {
		case err != nil:
			return err
		case answer.Succeeded:
			found = placeOf(&mvccpb.KeyValue{Key: []byte(p.key), Value: []byte(value),
				CreateRevision: p.created, ModRevision: answer.Header.Revision})
		default:
			for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
				found = placeOf(kv)
			}
		}
		return nil
	})
	return found, err
}

// readerBehind returns the own place of a contender, and whether the one right behind it reads, or
// why that cannot be told.
func (q *queue) readerBehind(c *contender) (own place, reads bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.standLocked(c)
	return s.own, s.own.reads || s.next.reads, q.refused
}

// contestAnew gives a contender another signal, for those who do not read.
func (q *queue) contestAnew(c *contender) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.contested.Store(contention.New(func() { c.join() }))
	q.tellLocked(c, time.Now())
}
