package pglock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// queues are those that are followed.
type queues struct {
	mu     sync.Mutex // guards the fields below, and is taken before that of a queue
	byPath map[string]*queue
	toRead map[string]struct{} // by the keeper, as soon as it can
}

// read has the keeper read a queue if anybody follows it.
func (l *queues) read(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPath[path] != nil {
		l.toRead[path] = struct{}{}
	}
}

func (l *queues) readAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path := range l.byPath {
		l.toRead[path] = struct{}{}
	}
}

// take returns what is to be read, and forgets it.
func (l *queues) take() (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths = slices.Collect(maps.Keys(l.toRead))
	clear(l.toRead)
	return paths
}

func (l *queues) at(path string) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byPath[path]
}

// join has c follow its queue, which is read soon, or returns nil when the store is closed.
func (s *store) join(c *contender) *queue {
	if s.ctx.Err() != nil {
		return nil
	}
	l := &s.queues
	l.mu.Lock()
	path := c.claim.path
	q := l.byPath[path]
	if q == nil {
		q = &queue{followers: make(map[*contender]struct{})}
		l.byPath[path] = q
	}
	q.mu.Lock()
	q.followers[c] = struct{}{}
	q.mu.Unlock()
	l.toRead[path] = struct{}{}
	l.mu.Unlock()
	s.nudge.poke()
	return q
}

// part ends what join began.
func (s *store) part(c *contender, q *queue) {
	l := &s.queues
	l.mu.Lock()
	defer l.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.followers, c)
	if len(q.followers) == 0 {
		delete(l.byPath, c.claim.path)
		delete(l.toRead, c.claim.path)
	}
}

// read reads the queues that are to be read.
func (a *attendant) read() error {
	paths := a.queues.take()
	if len(paths) == 0 {
		return nil
	}
	asked, at := a.now(), time.Now()
	var places []place
	err := a.call(a.ctx, func(ctx context.Context) (err error) {
		places, err = look(ctx, a.conn, paths)
		return err
	})
	byPath := make(map[string][]place)
	for _, p := range places {
		byPath[p.path] = append(byPath[p.path], p)
	}
	for _, path := range paths {
		switch q := a.queues.at(path); {
		case q == nil:
		case err == nil:
			q.show(byPath[path], asked, at)
		case classify(err) == permanent:
			q.refuse(err)
		}
	}
	if classify(err) == permanent {
		return nil
	}
	return err
}
