package etcdlock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
)

// idleAfter is how long a queue is watched after its last contender of this process has left: for a busy lock, the next one comes soon.
const idleAfter = time.Second

// A mirror is a local copy of one queue, kept up to date by a read and the events that follow. When a key is deleted, the event alone
// tells the next contender that it has the lock. The grant takes no request. A mirror is kept while a contender of this process follows
// it, and a little longer.
type mirror struct {
	store  *store
	prefix string // of the keys of the queue
	stop   context.CancelFunc
	idle   *time.Timer // ends the mirror when no contender follows it

	mu        sync.Mutex                  // guards the fields below
	revision  int64                       // up to which all is known, 0 while nothing is
	places    []place                     // in order
	set       int                         // how many permits there are, if that was set
	refused   error                       // why the queue can be neither read nor watched, as things stand
	followers map[queue.Ref]time.Duration // since when, by the clock of the tier
}

// Follow starts a mirror that reports the position of a contender in its queue. Follow does nothing once the store is closed.
func (s *store) Follow(ref queue.Ref) {
	prefix := prefixOf(ref)
	s.mu.Lock()
	m := s.mirrors[prefix]
	if m == nil {
		ctx, stop := context.WithCancel(s.tier.Context())
		m = &mirror{store: s, prefix: prefix, stop: stop, followers: make(map[queue.Ref]time.Duration)}
		if !s.tier.Spawn(func() { m.run(ctx) }) {
			s.mu.Unlock()
			return // the context has ended with the tier
		}
		s.mirrors[prefix] = m
		m.idle = time.AfterFunc(idleAfter, m.endIfIdle)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followers[ref] = s.tier.Now()
	m.idle.Stop()
	s.mu.Unlock()
	m.tellLocked(ref, 0)
}

// Unfollow stops the reports that Follow started.
func (s *store) Unfollow(ref queue.Ref) {
	s.mu.Lock()
	m := s.mirrors[prefixOf(ref)]
	s.mu.Unlock()
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.followers, ref)
		if len(m.followers) == 0 {
			m.idle.Reset(idleAfter)
		}
	}
}

func (m *mirror) endIfIdle() {
	s := m.store
	s.mu.Lock()
	defer s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.followers) == 0 && s.mirrors[m.prefix] == m {
		delete(s.mirrors, m.prefix)
		m.stop()
	}
}

// tellLocked reports a contender's state. sent is when the read that shows it was sent, or 0 if events show it.
func (m *mirror) tellLocked(ref queue.Ref, sent time.Duration) {
	v := viewOf(ref, m.revision, m.places)
	switch {
	case m.refused != nil:
		v = queue.View{ID: ref.ID, Known: true, Token: ref.Token, At: ref.Token, Err: m.refused}
		sent = m.store.tier.Now()
	// A state from before the contender entered says nothing about it. The answer to a read that was sent since counts in any case, also
	// after etcd has gone back in time.
	case m.revision < ref.Token && sent <= m.followers[ref]:
		return
	}
	v.Sent = sent
	m.store.tier.Tell(v)
}

// learn changes the copy of the queue and reports the state of all followers. sent is when the read was sent, or 0 for events.
func (m *mirror) learn(sent time.Duration, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	for ref := range m.followers {
		m.tellLocked(ref, sent)
	}
}

// applyLocked applies the events of one or more revisions to the copy.
func (m *mirror) applyLocked(events []*clientv3.Event) {
	known := m.revision
	for _, e := range events {
		if e.Kv.ModRevision <= known { // the look has shown it
			continue
		}
		m.revision = e.Kv.ModRevision
		if string(e.Kv.Key) == numberKey(m.prefix) {
			m.set = numberOf(e.Kv) // none, if it is deleted
			number(m.places, m.set)
		}
		if !isContender(m.prefix, e.Kv) {
			continue
		}
		of := func(p place) bool { return p.key == string(e.Kv.Key) }
		now := placeOf(e.Kv)
		now.Of = cmp.Or(m.set, now.Of)
		switch i := slices.IndexFunc(m.places, of); {
		case e.Type == clientv3.EventTypeDelete:
			m.places = slices.DeleteFunc(m.places, of)
		case i >= 0:
			m.places[i] = now
		default:
			m.places = append(m.places, now)
		}
	}
}

// run keeps the mirror until ctx is done.
func (m *mirror) run(ctx context.Context) {
	for pace := retry.New(); ; {
		m.follow(ctx, pace.Reset)
		if retry.Pause(ctx, pace.NextBackOff()) != nil {
			return
		}
	}
}

// follow starts a watch, reads the queue, and then applies events until the watch ends, for example because its revision was compacted,
// the server has no leader, or a permission was revoked. In the reverse order the watch would have to begin at a past revision, and etcd
// serves such watches only every 100 ms. If the watch cannot be started, the queue is read all the same. Only the read shows whether the
// user lacks a permission, because a watch is also refused if its auth token has expired.
func (m *mirror) follow(ctx context.Context, well func()) {
	watching, cancel := context.WithCancel(ctx)
	events, begun := m.watch(watching, cancel)
	defer func() {
		cancel()
		for range events { // until the client has let go of it
		}
	}()
	if _, refusal := m.look(ctx); outcomeOf(refusal) == queue.Denied {
		m.learn(0, func() { m.refused = refusal })
		return
	} else if refusal != nil || !begun {
		return
	}
	well()
	for quarter := m.store.options.TTL / 4; ; {
		select {
		case r, open := <-events:
			if r.Err() != nil || !open {
				return
			}
			m.learn(0, func() { m.applyLocked(r.Events) })
		case <-time.After(quarter + rand.N(quarter)): // spreads the looks of many processes over time
			// A connection can die unnoticed, since the client pings its servers only if it is configured to.
			if news, err := m.look(ctx); err == nil && news {
				m.store.stream.Add(1)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// watch starts a watch at the present revision. begun is false if etcd refuses it or does not answer in time. cancel ends the watch.
func (m *mirror) watch(ctx context.Context, cancel func()) (events clientv3.WatchChan, begun bool) {
	s := m.store
	stream := s.stream.Load()
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "tierlock-stream", strconv.FormatInt(stream, 10))
	bound := time.AfterFunc(s.tier.Patience(), cancel)
	defer bound.Stop()
	events = s.client.Watch(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	created, open := <-events
	if begun = open && created.Err() == nil; !begun {
		// A stream whose auth token has expired may accept no more watches and yet stay open, so the next watch uses a new stream.
		s.stream.CompareAndSwap(stream, stream+1)
	}
	return events, begun
}

// look reads the queue into the mirror, and reports whether the read showed anything that the watch had not.
func (m *mirror) look(ctx context.Context) (news bool, err error) {
	sent := m.store.tier.Now()
	err = m.store.call(ctx, func(ctx context.Context) error {
		revision, places, set, err := m.store.read(ctx, m.prefix)
		if err == nil {
			m.learn(sent, func() {
				// A watch starts after the revisions that it has shown, so events of an etcd that has gone back may come late, or never.
				news = revision < m.revision || !slices.Equal(m.places, places)
				m.revision, m.places, m.set, m.refused = revision, places, set, nil
			})
		}
		return err
	})
	return news, err
}
