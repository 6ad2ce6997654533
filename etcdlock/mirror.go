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

// idleAfter is how long a queue is still watched after the last contender of this process has left it. At a busy lock, the next contender
// enters soon.
const idleAfter = time.Second

// A mirror is a local copy of one queue. It begins with a read of the queue, and the events of a watch keep it up to date. When a key is
// deleted, the event shows the next contender that it has the lock. No request is needed for that. The mirror exists while a contender of
// this process follows it, and a little longer.
type mirror struct {
	store  *store
	prefix string // the prefix of the keys in the queue
	stop   context.CancelFunc
	idle   *time.Timer // ends the mirror when no contender follows it

	mu        sync.Mutex                  // guards the fields below
	revision  int64                       // the revision of the copy; 0 before the first read
	places    []place                     // in the order of the queue
	set       int                         // the total number of permits that a Resize has set; 0 if none has
	refused   error                       // why etcd refuses to let this process read the queue; nil if it does not
	followers map[queue.Ref]time.Duration // when each of them began to follow, by the clock of the tier
}

// Follow starts to watch the queue of a contender, and reports its position in the queue. Follow does nothing once the store is closed.
func (s *store) Follow(ref queue.Ref) {
	prefix := prefixOf(ref)
	s.mu.Lock()
	m := s.mirrors[prefix]
	if m == nil {
		ctx, stop := context.WithCancel(s.tier.Context())
		m = &mirror{store: s, prefix: prefix, stop: stop, followers: make(map[queue.Ref]time.Duration)}
		if !s.tier.Spawn(func() { m.run(ctx) }) {
			s.mu.Unlock()
			return // the tier is closed, and that has ended the context
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

// tellLocked reports the state of a contender to the tier. If a read shows the state, sent is when that read was sent. If an event shows
// it, sent is 0.
func (m *mirror) tellLocked(ref queue.Ref, sent time.Duration) {
	v := viewOf(ref, m.revision, m.places)
	switch {
	case m.refused != nil:
		v = queue.View{ID: ref.ID, Known: true, Token: ref.Token, At: ref.Token, Err: m.refused}
		sent = m.store.tier.Now()
	// If the copy is older than the contender, it says nothing about the contender. But a read that was sent after Follow was called always
	// counts: its revision is low only if etcd was set back to an earlier state.
	case m.revision < ref.Token && sent <= m.followers[ref]:
		return
	}
	v.Sent = sent
	m.store.tier.Tell(v)
}

// learn calls change, which changes the copy of the queue, and then reports the states of all followers. If change uses the result of a
// read, sent is when that read was sent. If it uses events, sent is 0.
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
		if e.Kv.ModRevision <= known { // the read that filled the copy has included this change
			continue
		}
		m.revision = e.Kv.ModRevision
		if string(e.Kv.Key) == numberKey(m.prefix) {
			m.set = numberOf(e.Kv) // 0 if the key was deleted
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

// follow starts a watch, then reads the queue, and then applies events until the watch ends. A watch ends, for example, if its revision was
// compacted, the server has no leader, or a permission was revoked.
//
// The watch starts before the read. In the reverse order it would have to begin at a past revision, and etcd serves such watches only every
// 100 ms. The queue is read even if the watch cannot be started. Only the read shows whether the user lacks a permission, because etcd also
// refuses a watch if its auth token has expired.
func (m *mirror) follow(ctx context.Context, well func()) {
	watching, cancel := context.WithCancel(ctx)
	events, begun := m.watch(watching, cancel)
	defer func() {
		cancel()
		for range events { // wait until the client has closed the channel
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
		case <-time.After(quarter + rand.N(quarter)): // a random time, so that the reads of many processes are spread
			// A connection can break without notice, because the client pings its servers only if the program has configured that. If the read
			// shows something that the watch has not shown, the next watch uses a new stream.
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
		// A stream whose auth token has expired may stay open but refuse all watches. The next watch therefore uses a new stream.
		s.stream.CompareAndSwap(stream, stream+1)
	}
	return events, begun
}

// look reads the queue into the mirror. news is true if the read showed anything that the watch had not shown before.
func (m *mirror) look(ctx context.Context) (news bool, err error) {
	sent := m.store.tier.Now()
	err = m.store.call(ctx, func(ctx context.Context) error {
		revision, places, set, err := m.store.read(ctx, m.prefix)
		if err == nil {
			m.learn(sent, func() {
				// A client resumes a watch after the newest revision that it has seen. If etcd was set back to a lower revision, the watch
				// may therefore deliver later events late, or never.
				news = revision < m.revision || !slices.Equal(m.places, places)
				m.revision, m.places, m.set, m.refused = revision, places, set, nil
			})
		}
		return err
	})
	return news, err
}
