package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// queueUp queues and waits for the turn. An old contender, which has been given up, goes with
// the transaction that creates the first new one.
func (l *claim) queueUp(ctx context.Context, old *contender, w *second.Wait) (*contender, error) {
	for ; ; old = nil {
		c, err := l.enter(ctx)
		if err != nil {
			old.deleteIfAny()
			return nil, err
		}
		if err = c.acquire(ctx, old, w); err == nil {
			return c, nil
		}
		c.discard()
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
}

// enter makes a contender whose key is yet to be created.
func (l *claim) enter(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.store.reaper.Room(ctx); err != nil {
		return nil, l.store.explain(err)
	}
	// Callers who come and go while etcd does not answer would otherwise pile up transactions, which
	// are all executed when it does.
	if err := l.store.up.Wait(ctx); err != nil {
		return nil, l.store.explain(err)
	}
	for {
		x, err := l.store.await(ctx, true)
		if err != nil {
			return nil, err
		}
		if c := l.newContender(x); x.Enrol(c) == nil {
			return c, nil
		}
	}
}

func (c *contender) acquire(ctx context.Context, old *contender, w *second.Wait) error {
	first, err := c.enqueue(ctx, old)
	if err != nil {
		old.deleteIfAny()
		return err
	}
	if first && c.holdUnwatched() {
		return nil
	}
	return c.wait(ctx, w)
}

// enqueue creates the key, behind all others, and reports whether it waits for none of them. The same
// transaction is sent until it is answered: a later one finds what an earlier one has done.
func (c *contender) enqueue(ctx context.Context, old *contender) (first bool, err error) {
	for pace := retry.New(); ; {
		first, err := c.create(old)
		if err == nil || errors.Is(err, errGone) || classify(err) == permanent {
			return first, err
		}
		if old != nil {
			old.doomed = true
		}
		if err := c.pause(ctx, pace.NextBackOff()); err != nil {
			return false, err
		}
	}
}

// create sends the transaction of enqueue once.
func (c *contender) create(old *contender) (first bool, err error) {
	missing := clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)
	heads := c.claim.heads()
	conditions, then := []clientv3.Cmp{missing}, append([]clientv3.Op{c.put()}, heads...)
	if old != nil {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(old.key), "=", old.token))
		then = slices.Insert(then, 0, clientv3.OpDelete(old.key))
	}
	answer, err := c.commit(conditions, then, append([]clientv3.Op{clientv3.OpGet(c.key, clientv3.WithKeysOnly())}, heads...))
	switch {
	case classify(err) == leaseGone:
		c.claim.store.expire(c.session)
		return false, errGone
	case err != nil:
		return false, err
	case answer.Succeeded:
		old.finishIfAny(1)
	default:
		own := answer.Responses[0].GetResponseRange().Kvs
		if len(own) == 0 {
			return false, errGone // it is the old key that is not there
		}
		c.token = own[0].CreateRevision
		if c.unclear {
			old.finishIfAny(1) // as far as can be told: the answer is lost that said it
		} else {
			old.deleteIfAny() // an older request for a key of that name was applied late
		}
	}
	return c.firstBy(answer.Responses[len(answer.Responses)-len(heads):]), nil
}

// try takes the lock if nobody is in the way.
func (l *claim) try(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if problem := l.store.Err(); problem != nil {
		return nil, problem
	}
	x, err := l.store.await(ctx, false)
	if err != nil {
		return nil, err
	}
	c := l.newContender(x)
	if err = x.Enrol(c); err == nil {
		err = c.tryOnce(ctx)
	}
	if err == nil && !c.holdUnwatched() {
		err = errors.New("the etcd lease has run out and is not renewed yet")
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// maxBelow is how many keys a try looks at for one that is a contender, and not that of a
// lock below this one.
const maxBelow = 64

// tryOnce creates the key on the condition that there are no rivals.
func (c *contender) tryOnce(ctx context.Context) error {
	answer, err := c.commit(c.claim.nobody(), []clientv3.Op{c.put()}, c.claim.reads(clientv3.WithLimit(maxBelow)))
	switch {
	case err != nil:
		if classify(err) == leaseGone {
			c.claim.store.expire(c.session)
		}
		return err
	case answer.Succeeded:
		return nil
	}
	for _, r := range answer.Responses {
		if slices.ContainsFunc(placesOf(c.claim.prefix(), r.GetResponseRange().Kvs), c.excludes) {
			return second.ErrLocked
		}
	}
	// Nobody but contenders of locks below, and a writer that lets readers in, as far as that showed.
	if first, err := c.create(nil); err != nil || first {
		return err
	}
	revision, places, err := c.claim.look(ctx)
	if err != nil {
		return err
	}
	if s := (&queue{revision: revision, places: places}).standLocked(c); !s.present || s.ahead > 0 {
		return second.ErrLocked
	}
	return nil
}

// commit sends a transaction that may create the key, once. Its answer is waited for whoever
// has lost interest meanwhile: else nobody would know whether there is a key.
func (c *contender) commit(conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (answer *clientv3.TxnResponse, err error) {
	s := c.claim.store
	err = s.call(s.ctx, func(ctx context.Context) (err error) {
		answer, err = s.client.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	switch {
	case err == nil && answer.Succeeded:
		c.token = answer.Header.Revision
	case classify(err) == uncertain:
		c.session.doubtful.Store(true)
		c.unclear = true
	}
	return answer, err
}

// pause waits before the transaction is sent again, and for etcd to be back.
func (c *contender) pause(ctx context.Context, d time.Duration) error {
	s := c.claim.store
	err := retry.Pause(ctx, d)
	if err == nil {
		err = s.up.Wait(ctx)
	}
	if err != nil {
		return s.explain(err)
	}
	return nil
}

// wait waits until the contender is first, and holds the lock. errGone says that it has to
// start again.
func (c *contender) wait(ctx context.Context, w *second.Wait) error {
	q := c.join()
	if q == nil {
		return second.ErrClosed
	}
	w.Stands(func() second.Standing { return q.standing(c) })
	defer w.Forget()
	for {
		c.wake.Clear()
		first, err := q.first(c)
		switch {
		case c.life.Err() != nil:
			return errGone
		case err != nil:
			return err
		case first && q.hold(c): // else the lease has run out, and may be renewed
			return nil
		}
		if err := c.wake.Wait(ctx); err != nil {
			return c.claim.store.explain(err)
		}
	}
}
