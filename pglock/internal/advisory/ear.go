package advisory

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/retry"
)

// hear keeps an ear at the server, from the first to the last.
func (t *Tier) hear() {
	var session string
	heard := t.Now()
	pace := retry.New()
	for n := 1; t.ctx.Err() == nil; {
		ear, err := t.dialEar()
		if err != nil {
			t.report(nil, err)
			retry.Pause(t.ctx, pace.NextBackOff())
			continue
		}
		if session == "" || t.Now()-heard > t.config.TTL { // by then no session of ours is left
			session = fmt.Sprint(ear, " ", n)
			n++
		}
		t.notice.Begin(session)
		t.notice.Reach(true)
		t.report(ear, nil) // last: who knows by Err that it is connected may ask to be told so
		begun := t.Now()
		heard, err = t.follow(ear)
		if heard-begun > t.beat() {
			pace.Reset()
		}
		t.report(nil, err)
		t.notice.Reach(false)
		ear.close()
		t.dropSpares(true)
		retry.Pause(t.ctx, pace.NextBackOff())
	}
}

func (t *Tier) dialEar() (*line, error) {
	ear, err := t.dial(t.ctx, func(_ *pgconn.PgConn, n *pgconn.Notification) { t.told(n) })
	if err != nil {
		return nil, err
	}
	if _, err := ear.conn.Exec(t.ctx, "LISTEN tierlock"); err != nil {
		ear.close()
		return nil, err
	}
	return ear, nil
}

// follow listens, and looks at the queues in which somebody waits, until the connection breaks or
// the tier is closed. It returns when the server was last heard.
func (t *Tier) follow(ear *line) (heard time.Duration, err error) {
	heard = t.Now()
	ear.schedule(time.Now())
	for t.ctx.Err() == nil {
		if !ear.due() {
			if err := ear.listen(); err != nil {
				return heard, err
			}
			continue
		}
		asked := t.Now()
		if err := t.lookAround(ear); err != nil {
			return heard, err
		}
		heard = asked
		t.dropSpares(false)
		next := t.beat()
		if t.anybodyWaits() {
			next = t.config.TTL / 12
		}
		ear.schedule(time.Now().Add(next))
	}
	return heard, t.ctx.Err()
}

// told takes a notification, which may be late or never come: there is somebody who waits for a
// lock, or who asks for it.
func (t *Tier) told(n *pgconn.Notification) {
	verb, rest, _ := strings.Cut(n.Payload, " ")
	switch verb {
	case "waits":
		if key, err := strconv.ParseInt(rest, 10, 64); err == nil {
			t.hurry(key, n.PID)
		}
	case "asked":
		pid, token, _ := strings.Cut(rest, " ")
		if pid, err := strconv.ParseUint(pid, 10, 32); err == nil {
			t.asked(uint32(pid), token)
		}
	}
}

// hurry has the holders of the lock, but for the one who says so, look who waits.
func (t *Tier) hurry(key int64, but uint32) {
	for pid, x := range t.all() {
		if pid == but {
			continue
		}
		for _, c := range x.Held() {
			if c.claim.key == key {
				c.lookSoon()
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.waiters {
		if c.claim.key == key {
			t.lookSoonLocked()
		}
	}
}

func (t *Tier) asked(pid uint32, token string) {
	if x := t.all()[pid]; x != nil {
		for _, c := range x.Held() {
			if strconv.FormatInt(c.token, 10) == token {
				c.revoke()
			}
		}
	}
}

// all are the sessions at this moment. A lease must not be asked under the mutex of the tier, whose
// losses take that.
func (t *Tier) all() map[uint32]*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.sessions)
}

// wait has the ear look after a contender that waits, until rest.
func (t *Tier) wait(c *Contender) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiters[c] = struct{}{}
	t.lookSoonLocked()
}

// lookSoonLocked has the ear look around, but not for waits that are short.
func (t *Tier) lookSoonLocked() {
	if t.ear != nil {
		t.ear.hurry(time.Now().Add(t.config.TTL / 24))
	}
}

func (t *Tier) rest(c *Contender) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiters, c)
}

func (t *Tier) anybodyWaits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiters) > 0
}

// lookAround looks at the queues in which somebody waits, or just has the server answer.
func (t *Tier) lookAround(ear *line) error {
	var keys []int64
	t.mu.Lock()
	waiters := make([]*Contender, 0, len(t.waiters))
	for c := range t.waiters {
		waiters = append(waiters, c)
		keys = append(keys, c.claim.key)
	}
	t.mu.Unlock()
	if !ear.begin() {
		return errDropped
	}
	rows, err := ear.ask(ear.bound, call{"look", []string{array(keys...)}})
	ear.done()
	if err != nil {
		return err
	}
	views := make(map[int64][]place)
	for _, p := range places(rows) {
		views[p.key] = append(views[p.key], p)
	}
	t.mu.Lock()
	t.views = views
	t.mu.Unlock()
	for _, c := range waiters {
		c.seen(views[c.claim.key])
	}
	return nil
}

var errUnseen = errors.New("the server does not know any more that this session waits")

// seen breaks the connection of a waiter that the server does not have in the queue, or that has the
// lock already and was not told. The first look may have been too early.
func (c *Contender) seen(queue []place) {
	i := indexOf(queue, c.session.pid)
	switch {
	case i >= 0 && !queue[i].granted:
		c.unseen = time.Time{}
	case c.unseen.IsZero():
		c.unseen = time.Now()
	case time.Since(c.unseen) > c.claim.tier.patience():
		c.session.broken(errUnseen)
	}
}
