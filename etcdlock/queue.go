package etcdlock

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/second"
)

// A place is a key in a queue. Lower revisions go first.
type place struct {
	key     string
	created int64
	value   string // what the process says of itself
}

// placesOf returns the contenders among keys below prefix. Those of locks below, whose names
// have another slash, are none; all others are, whoever has created them.
func placesOf(prefix string, keys []*mvccpb.KeyValue) []place {
	var places []place
	for _, kv := range keys {
		if isContender(prefix, string(kv.Key)) {
			places = append(places, placeOf(kv))
		}
	}
	return places
}

func placeOf(kv *mvccpb.KeyValue) place {
	return place{string(kv.Key), kv.CreateRevision, string(kv.Value)}
}

func isContender(prefix, key string) bool { return !strings.Contains(key[len(prefix):], "/") }

// look reads the queue, as it was at the revision that it returns.
func (l *claim) look(ctx context.Context) (revision int64, places []place, err error) {
	err = l.store.call(ctx, func(ctx context.Context) error {
		answer, err := l.store.client.Get(ctx, l.prefix(), clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err == nil {
			revision, places = answer.Header.Revision, placesOf(l.prefix(), answer.Kvs)
		}
		return err
	})
	return revision, places, err
}

// A queue is the mirror of the contenders for one lock: a look, and the events since. So the
// way from the delete of a key to the grant of the next one is that of the event, without a
// request. It is kept while a contender of this process follows it, and a little longer.
type queue struct {
	claim *claim
	stop  context.CancelFunc
	users int         // guarded by queues.mu
	idle  *time.Timer // ends the queue when nobody follows it; likewise

	mu        sync.Mutex // guards the fields below; after that of a contender
	revision  int64      // up to which all is known, 0 while nothing is
	places    []place    // in order
	refused   error      // why the queue can be neither read nor watched, as things stand
	followers map[*contender]struct{}
}

// first reports whether a contender is known to be the first one, or why it never will be.
// Nobody can come before it any more, so that this is true however old the mirror is, for as
// long as its key is there.
func (q *queue) first(c *contender) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	stand := q.standLocked(c)
	return stand.present && stand.ahead == 0, q.refused
}

// standing is what the mirror shows of those ahead of a contender.
func (q *queue) standing(c *contender) second.Standing {
	q.mu.Lock()
	defer q.mu.Unlock()
	stand := q.standLocked(c)
	if stand.ahead == 0 {
		return second.Standing{}
	}
	p := q.places[stand.ahead-1]
	return second.Standing{Ahead: stand.ahead, Nearest: p.describe(q.claim.prefix())}
}

// hold makes a contender that is first the holder.
func (q *queue) hold(c *contender) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.session.Hold(c) {
		return false
	}
	c.held, c.granted = true, time.Now()
	c.loss.Held()
	q.tellLocked(c, c.granted)
	return true
}

// A stand is what the mirror shows of a contender.
type stand struct {
	known         bool // the mirror is not older than the key
	present       bool
	ahead, behind int
}

func (q *queue) standLocked(c *contender) stand {
	if q.revision < c.token {
		return stand{}
	}
	i, _ := slices.BinarySearchFunc(q.places, c.token, func(p place, created int64) int { return cmp.Compare(p.created, created) })
	for j := i; j < len(q.places) && q.places[j].created == c.token; j++ {
		if q.places[j].key == c.key {
			return stand{known: true, present: true, ahead: i, behind: len(q.places) - 1 - j}
		}
	}
	return stand{known: true}
}

// tellLocked tells a contender what it has to know of the mirror, which shows what was asked
// for, or heard of, at a time.
func (q *queue) tellLocked(c *contender, asked time.Time) {
	switch stand := q.standLocked(c); {
	case !stand.known:
	case !stand.present:
		c.gone.Store(true)
		c.lose(deleted(c.key))
	case !c.held:
		if stand.ahead == 0 {
			c.wake.Set()
		}
	case stand.behind > 0 && !c.contested.Raised():
		if asked.Before(c.granted) {
			asked = c.granted
		}
		c.contested.Raise(asked)
	}
}

func (q *queue) tellAllLocked(asked time.Time) {
	for c := range q.followers {
		q.tellLocked(c, asked)
	}
}

// replace takes over what a look has shown that was sent at a time. It reports whether that
// was news.
func (q *queue) replace(revision int64, places []place, asked time.Time) (news bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	news = !slices.Equal(q.places, places)
	q.revision, q.places, q.refused = revision, places, nil
	q.tellAllLocked(asked)
	return news
}

// apply takes over the events of one or more revisions.
func (q *queue) apply(events []*clientv3.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.revision
	for _, e := range events {
		if e.Kv.ModRevision <= known { // the look has shown it
			continue
		}
		q.revision = e.Kv.ModRevision
		key := string(e.Kv.Key)
		switch {
		case !isContender(q.claim.prefix(), key):
		case e.Type == clientv3.EventTypeDelete:
			q.places = slices.DeleteFunc(q.places, func(p place) bool { return p.key == key })
		case e.IsCreate():
			q.places = append(q.places, placeOf(e.Kv))
		}
	}
	q.tellAllLocked(time.Now())
}

// refuse ends the wait for a queue that can be neither read nor watched.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = err
	for c := range q.followers {
		c.wake.Set()
	}
}
