package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// want creates the key of one who wants permits. An Enter asks that there are no keys of another number. A try asks that nobody has
// come since a revision up to which enough were free, at first that nobody has ever: etcd cannot compare what many values come to,
// but those who were there can only want less by then.
func (s *store) want(ctx context.Context, c queue.Command) (v queue.View, err error) {
	prefix, missing := prefixOf(c.Ref), c.Ref
	missing.Token = 0
	conditions := append(nobody(c.Ref), created(missing))
	for since := int64(0); ; {
		if c.Op == queue.Try {
			conditions = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(prefix), "<", since+1).WithPrefix()}
		}
		revision, keys, err := s.putAndRead(ctx, prefix, s.put(c), conditions...)
		if err != nil {
			return v, err
		}
		places := placesOf(prefix, keys)
		if own := slices.IndexFunc(places, func(p place) bool { return p.key == keyOf(c.Ref) }); own >= 0 {
			c.Token = places[own].Token
			s.wishes.Store(places[own].key, places[own])
			return viewOf(c.Ref, revision, places), nil
		}
		if err := sameNumber(c.Ref, keys); err != nil {
			return v, err
		}
		free := c.Permits
		for _, p := range places {
			free -= p.Permits
		}
		if free < c.Weight {
			s.names.put(c.Session, c.ID)
			return v, second.ErrLocked
		}
		since = revision
	}
}

// sameNumber returns an error if one of the keys is for another number of permits.
func sameNumber(ref queue.Ref, keys []*mvccpb.KeyValue) error {
	for _, kv := range keys {
		if other := refOf(string(kv.Key)).Permits; other != ref.Permits {
			return denied{fmt.Errorf("%w: %s is one for some of %d, not of %d; all processes have to give the same number",
				second.ErrPermits, second.Text(string(kv.Key)), other, ref.Permits)}
		}
	}
	return nil
}

// weigh writes to the value of the key how many permits it wants or has from now on, if these are fewer: unless another weigh has
// come before, it knows what is there.
func (s *store) weigh(ctx context.Context, c queue.Command) (v queue.View, err error) {
	prefix, key := prefixOf(c.Ref), keyOf(c.Ref)
	own := place{modified: -1}
	if known, ok := s.wishes.Load(key); ok {
		own = known.(place)
	}
	for {
		put := clientv3.OpPut(key, second.Mark(own.value, "permits", strconv.Itoa(c.Weight)), clientv3.WithIgnoreLease())
		revision, keys, err := s.putAndRead(ctx, prefix, put, clientv3.Compare(clientv3.ModRevision(key), "=", own.modified))
		if err != nil {
			return v, err
		}
		places := placesOf(prefix, keys)
		i := slices.IndexFunc(places, func(p place) bool { return p.key == key && p.Token == c.Token })
		switch {
		case i < 0:
			return viewOf(c.Ref, revision, places), nil
		case !places[i].ours:
			return v, denied{fmt.Errorf("somebody else has written to %s", second.Text(key))}
		}
		own = places[i]
		s.wishes.Store(key, own)
		if own.Permits <= c.Weight {
			return viewOf(c.Ref, revision, places), nil
		}
	}
}

// putAndRead puts if that is what conditions allow, and reads the queue in the same transaction.
func (s *store) putAndRead(ctx context.Context, prefix string, put clientv3.Op, conditions ...clientv3.Cmp) (
	revision int64, keys []*mvccpb.KeyValue, err error) {
	read := wholeQueue(prefix)
	answer, err := s.client.Txn(ctx).If(conditions...).Then(put, read).Else(read).Commit()
	if err != nil {
		return 0, nil, err
	}
	return answer.Header.Revision, answer.Responses[len(answer.Responses)-1].GetResponseRange().Kvs, nil
}
