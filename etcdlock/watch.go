package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/tierlock/tierlock/internal/retry"
)

// queues are those that are followed.
type queues struct {
	mu     sync.Mutex // guards the field below, and some of each queue
	byPath map[string]*queue

	// The stream that new watches share, among those of the client: they have one for each
	// set of metadata. It is changed when one has fallen silent, or refuses a watch.
	stream atomic.Int64
}

// idleAfter is how long a queue is watched after the last contender has left it: where
// locks change hands, the next one is not far.
const idleAfter = time.Second

// join has c follow its queue, or returns nil when the store is closed.
func (s *store) join(c *contender) *queue {
	q := s.queueAt(c.claim)
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.followers[c] = struct{}{}
	q.tellLocked(c, time.Now())
	return q
}

func (s *store) queueAt(l *claim) *queue {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	q := s.queues.byPath[l.path]
	if q == nil {
		ctx, stop := context.WithCancel(s.ctx)
		q = &queue{claim: l, stop: stop, followers: make(map[*contender]struct{})}
		if !s.spawn(func() { q.run(ctx) }) {
			stop()
			return nil
		}
		s.queues.byPath[l.path] = q
		q.idle = time.AfterFunc(idleAfter, q.endIfIdle)
	}
	q.idle.Stop()
	q.users++
	return q
}

// part ends what join began.
func (q *queue) part(c *contender) {
	q.mu.Lock()
	delete(q.followers, c)
	q.mu.Unlock()
	l := &q.claim.store.queues
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.users--; q.users == 0 {
		q.idle.Reset(idleAfter)
	}
}

func (q *queue) endIfIdle() {
	l := &q.claim.store.queues
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.users == 0 && l.byPath[q.claim.path] == q {
		delete(l.byPath, q.claim.path)
		q.stop()
	}
}

// run keeps the mirror until ctx is done.
func (q *queue) run(ctx context.Context) {
	defer q.stop()
	for pace := retry.New(); ; {
		q.follow(ctx, pace.Reset)
		if retry.Pause(ctx, pace.NextBackOff()) != nil {
			return
		}
	}
}

var errSilent = errors.New("the watch has fallen silent")

// follow watches, then looks, and goes by the events until the watch ends, for whatever
// reason: a revision that was compacted, a server without a leader, a permission that was
// taken away. The other way round, the watch would have to begin at a revision of the past, to
// which the server comes only each 100 ms. If there is no watch, there is a look at least, and
// only that tells what is permitted: a watch is also refused whose auth token has expired.
func (q *queue) follow(ctx context.Context, well func()) {
	watching, cancel := context.WithCancel(ctx)
	events, err := q.watch(watching, cancel)
	defer func() {
		cancel()
		for range events { // until the client has let go of it
		}
	}()
	if _, refusal := q.look(ctx); classify(refusal) == permanent {
		q.refuse(refusal)
		return
	} else if refusal != nil || err != nil {
		return
	}
	well()
	silence := time.NewTimer(q.recheckAfter())
	defer silence.Stop()
	for {
		select {
		case r, open := <-events:
			if r.Err() != nil || !open {
				return
			}
			q.apply(r.Events)
		case <-silence.C:
			// A connection can die unnoticed: the client pings its servers only if it is told to.
			if news, err := q.look(ctx); err == nil && news {
				q.claim.store.queues.stream.Add(1)
				return
			}
		case <-ctx.Done():
			return
		}
		silence.Reset(q.recheckAfter())
	}
}

// watch begins a watch at the present revision. cancel ends it.
func (q *queue) watch(ctx context.Context, cancel func()) (clientv3.WatchChan, error) {
	s := q.claim.store
	stream := s.queues.stream.Load()
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "tierlock-stream", strconv.FormatInt(stream, 10))
	bound := time.AfterFunc(s.patience(), cancel)
	defer bound.Stop()
	events := s.client.Watch(ctx, q.claim.prefix(), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	created, open := <-events
	if err := created.Err(); err != nil || !open {
		// A stream may take no more watches, as its auth token has expired, and yet live on.
		s.queues.stream.CompareAndSwap(stream, stream+1)
		return events, cmp.Or(err, errSilent)
	}
	return events, nil
}

// look takes a look at the queue into the mirror, and reports whether it was news.
func (q *queue) look(ctx context.Context) (news bool, err error) {
	asked := time.Now()
	revision, places, err := q.claim.look(ctx)
	if err != nil {
		return false, err
	}
	return q.replace(revision, places, asked), nil
}

// recheckAfter spreads the looks of many processes over time.
func (q *queue) recheckAfter() time.Duration {
	quarter := q.claim.store.options.ttl / 4
	return quarter + rand.N(quarter)
}
