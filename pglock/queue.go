package pglock

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
)

// A place is a contender as a look has shown it. Lower tokens go first.
type place struct {
	second.Contender
	path string
}

const lookSQL = `SELECT c.path, c.id::text, c.token, c.since, c.reads, c.asked, c.linger_ms, s.host, s.pid, s.label
	FROM tierlock.contender c JOIN tierlock.session s ON s.id = c.session WHERE c.path = ANY ($1) ORDER BY c.path, c.token`

// A pgxQuerier is a connection or a pool.
type pgxQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// look reads queues, each as it was at one moment.
func look(ctx context.Context, q pgxQuerier, paths []string) ([]place, error) {
	rows, err := q.Query(ctx, lookSQL, paths)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (p place, err error) {
		var linger int64
		err = row.Scan(&p.path, &p.ID, &p.Token, &p.Since, &p.Shared, &p.Asked, &linger, &p.Host, &p.PID, &p.Label)
		p.Linger = time.Duration(linger) * time.Millisecond
		p.Host, p.Label = second.Text(p.Host), second.Text(p.Label)
		return p, err
	})
}

// A queue is what was last seen of the contenders for one lock. It is kept while a contender of this
// process follows it.
type queue struct {
	mu        sync.Mutex    // guards the fields below; after that of a contender
	asked     time.Duration // when the look was sent that has shown it, 0 before the first
	places    []place       // in order
	refused   error         // why the queue cannot be read, as things stand
	followers map[*contender]struct{}
}

// first reports whether a contender is known to be the first one, or why it never will be. Nobody can
// come before it any more, nor write who reads, so that this is true however old the look is, for as
// long as the contender is there.
func (q *queue) first(c *contender) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	stand := q.standLocked(c)
	return c.turn.Load() || stand.present && stand.ahead == 0, q.refused
}

// standing is what is known of those ahead of a contender.
func (q *queue) standing(c *contender) second.Standing {
	q.mu.Lock()
	defer q.mu.Unlock()
	stand := q.standLocked(c)
	if stand.ahead == 0 {
		return second.Standing{}
	}
	return second.Standing{Ahead: stand.ahead, Nearest: stand.nearest.Contender}
}

// hold makes a contender that is first the holder.
func (q *queue) hold(c *contender) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.take() {
		return false
	}
	if c.behind.Load() {
		c.contestLocked(c.granted)
	}
	q.tellLocked(c, c.granted)
	return true
}

// A stand is what is known of a contender. It counts those alone with which the contender cannot share
// the lock.
type stand struct {
	known   bool // the look was sent when the contender was in the queue
	present bool
	own     place
	ahead   int
	nearest place // of those ahead
	behind  bool  // somebody is
	next    place // the one right behind, whoever it is
}

func (q *queue) standLocked(c *contender) stand {
	s := stand{known: c.wasThere(q.asked)}
	for _, p := range q.places {
		switch excludes := !c.shared.Load() || !p.Shared; {
		case p.ID == c.id:
			s.own, s.present = p, true
		case p.Token < c.token && excludes:
			s.ahead, s.nearest = s.ahead+1, p
		case p.Token > c.token:
			s.behind = s.behind || excludes
			s.next = cmp.Or(s.next, p)
		}
	}
	if !s.known || !s.present {
		return stand{known: s.known}
	}
	return s
}

// tellLocked tells a contender what it has to know of what a look has shown that was sent at a time.
func (q *queue) tellLocked(c *contender, asked time.Time) {
	stand := q.standLocked(c)
	switch {
	case !stand.known:
		return
	case !stand.present:
		c.gone.Store(true)
		c.lose(deleted(c.id))
		return
	}
	if stand.own.Asked {
		c.revoked.Set()
	}
	if c.held && stand.behind {
		c.contestLocked(asked)
	}
	if !c.held && stand.ahead == 0 || c.held && stand.next.Shared {
		c.wake.Set()
	}
}

// show takes over what a look has shown.
func (q *queue) show(places []place, asked time.Duration, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked, q.places, q.refused = asked, places, nil
	for c := range q.followers {
		q.tellLocked(c, at)
	}
}

// refuse ends the wait for a queue that cannot be read.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refused = err
	for c := range q.followers {
		c.wake.Set()
	}
}
