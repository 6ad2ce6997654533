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
	key      string
	created  int64
	modified int64
	ours     bool   // it is of this package
	value    string // what the process then says of itself, and else ""
	reads    bool
	asked    bool // to give the lock up
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
	p := place{key: string(kv.Key), created: kv.CreateRevision, modified: kv.ModRevision}
	o, ours := ownerIn(kv.Value)
	if p.ours, p.asked = ours, o.Revoke; ours {
		p.value = string(kv.Value)
	}
	p.reads = o.Shared || strings.HasPrefix(p.key[strings.LastIndex(p.key, "/")+1:], readMark)
	return p
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
// Nobody can come before it any more, nor write who reads, so that this is true however old the
// mirror is, for as long as its key is there.
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
	return second.Standing{Ahead: stand.ahead, Nearest: stand.nearest.describe(q.claim.prefix())}
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

// A stand is what the mirror shows of a contender. It counts those alone with which the contender
// cannot share the lock.
type stand struct {
	known   bool // the mirror is not older than the key
	present bool
	own     place
	ahead   int
	nearest place // of those ahead
	behind  bool  // somebody is
	next    place // the one right behind, whoever it is
}

func (q *queue) standLocked(c *contender) stand {
	s := stand{known: q.revision >= c.token}
	for _, p := range q.places {
		switch excludes := c.excludes(p); {
		case p.key == c.key && p.created == c.token:
			s.own, s.present = p, true
		case p.created < c.token && excludes:
			s.ahead, s.nearest = s.ahead+1, p
		case p.created > c.token:
			s.behind = s.behind || excludes
			s.next = cmp.Or(s.next, p)
		}
	}
	if !s.known || !s.present {
		return stand{known: s.known}
	}
	return s
}

// tellLocked tells a contender what it has to know of the mirror, which shows what was asked
// for, or heard of, at a time.
func (q *queue) tellLocked(c *contender, asked time.Time) {
	stand := q.standLocked(c)
	switch {
	case !stand.known:
		return
	case !stand.present:
		c.gone.Store(true)
		c.lose(deleted(c.key))
		return
	}
	if stand.own.asked {
		c.revoked.Set()
	}
	if contested := c.contested.Load(); c.held && stand.behind && !contested.Raised() {
		if asked.Before(c.granted) {
			asked = c.granted
		}
		contested.Raise(asked)
	}
	if !c.held && stand.ahead == 0 || c.held && stand.next.reads {
		c.wake.Set()
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
		default:
			for i, p := range q.places {
				if p.key == key {
					q.places[i] = placeOf(e.Kv)
				}
			}
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
