package advisory

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// An entry is a contender in the session in which it waits for the lock, or has it.
type entry struct {
	store   *Store
	session *line
	id      string
	key     int64
	linger  time.Duration
	queued  time.Time
	unseen  time.Time // since when the ear has not seen it waiting; the ear's

	ended chan struct{} // closed when its wait is over; nil if it never waited
	err   error         // how the wait has ended; valid when that is closed

	mu       sync.Mutex // guards the fields below
	token    int64      // 0 as long as it waits
	reads    bool
	asked    bool          // to give the lock up
	over     bool          // given up, or lost: nobody needs the session to be looked after
	proven   time.Duration // what the server has answered last was sent then, as far as that is more than a wait
	ahead    int           // while it waits, as last seen
	nearest  second.Contender
	behind   []place // those that wait, as last seen
	attended bool    // a goroutine is at it
	later    *time.Timer
	pause    time.Duration // until the next look, which grows
}

func (s *Store) newEntry(c queue.Command, x *line) *entry {
	return &entry{store: s, session: x, id: c.ID, key: KeyOf(c.Path), reads: c.Reads, linger: c.Linger, queued: time.Now()}
}

// enter takes the lock if it is free and nobody waits, and otherwise says that it waits and does so.
func (s *Store) enter(ctx context.Context, c queue.Command) queue.Answer {
	if old := s.entry(c.Old.ID); old != nil {
		return s.requeue(ctx, old, c)
	}
	x, err := s.session(ctx)
	if err != nil {
		return s.failed(err)
	}
	e := s.newEntry(c, x)
	if err = x.begin(ctx); err == nil {
		var taken bool
		taken, err = e.try()
		switch {
		case taken, err != nil:
			x.done()
		case c.Op == queue.Try:
			x.done()
			s.keep(x)
			return queue.Answer{Outcome: queue.Locked, Quarantined: s.tier.Quarantine() != nil}
		default:
			err = e.wait(call{"announce", []string{e.text(), "tierlock 0" + e.name(false)}})
		}
	}
	if err != nil {
		x.drop()
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// requeue has a session unlock and queue again.
func (s *Store) requeue(ctx context.Context, old *entry, c queue.Command) queue.Answer {
	x := old.session
	e := s.newEntry(c, x)
	if err := x.begin(ctx); err != nil {
		if errors.Is(err, errDropped) {
			s.forget(old)
		}
		return s.failed(err)
	}
	old.end()
	s.forget(old)
	if err := e.wait(call{inMode("leave", old.shared()), []string{e.text(), "tierlock 0" + e.name(false)}}); err != nil {
		x.drop()
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// try reports whether the lock is taken now.
func (e *entry) try() (taken bool, err error) {
	sent := e.store.tier.Now()
	rows, err := e.session.ask(e.session.bound, call{inMode("try", e.reads), []string{e.text(), e.name(false)}})
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if err = e.granted(rows, sent); err == nil {
		e.store.add(e)
	}
	return true, err
}

// soon after the grant, a hold is no longer a short one.
const soon = 20 * time.Millisecond

// granted notes that the server has granted the lock. Its session is looked after a moment later: a short hold costs nothing.
func (e *entry) granted(rows [][][]byte, proven time.Duration) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token, err = strconv.ParseInt(string(rows[0][0]), 10, 64)
	e.proven, e.pause = proven, e.store.config.TTL/4
	e.session.schedule(time.Now().Add(e.pause))
	e.later = time.AfterFunc(soon, e.attendOnce)
	return err
}

// wait sends a statement, and with it the one that waits for the lock, and returns once the first is answered. It takes the turn over.
func (e *entry) wait(before call) error {
	s, x := e.store, e.session
	sent := s.tier.Now()
	x.wire.SetDeadline(time.Now().Add(x.bound))
	p, err := x.send(before, call{inMode("lock", e.reads), []string{e.text(), e.name(false)}})
	if err == nil {
		_, err = answer(p)
	}
	if err != nil {
		x.done()
		return err
	}
	x.wire.SetDeadline(time.Time{})
	e.proven, e.ended = sent, make(chan struct{})
	s.add(e)
	s.hurry()
	s.spawn(func() { e.await(p) })
	return nil
}

// await is the end of a wait. The time for which that has lasted is no lease: after long, the server has to answer once more.
func (e *entry) await(p *pgconn.Pipeline) {
	x, s := e.session, e.store
	defer x.done()
	defer close(e.ended)
	rows, err := answer(p)
	x.wire.SetDeadline(time.Now().Add(x.bound))
	if closing := p.Close(); closing != nil {
		err = closing
	}
	if err == nil {
		err = e.granted(rows, e.proven)
	}
	e.err = err
	switch {
	case e.isOver(): // whoever has ended it looks
	case err != nil:
		e.lose(err)
	case e.left() < s.config.TTL/4:
		e.look()
	default:
		s.tier.Tell(e.view(e.proven))
	}
}

// left is for how long the lease runs as it is renewed now.
func (e *entry) left() time.Duration {
	s := e.store
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.proven + s.config.TTL - s.config.Margin - s.tier.Now()
}

// view is how the entry stands, as answered to what was sent then.
func (e *entry) view(sent time.Duration) queue.View {
	s := e.store
	e.mu.Lock()
	defer e.mu.Unlock()
	v := queue.View{ID: e.id, Known: true, Token: e.token, At: s.views.Add(1), Sent: sent, Reads: e.reads, Asked: e.asked}
	if e.token == 0 {
		v.Ahead, v.Nearest, v.Quarantined = e.ahead, e.nearest, s.tier.Quarantine() != nil
		return v
	}
	calm := e.session.calm - s.tier.Now()
	v.Has, v.Quarantined, v.Again = calm <= 0, calm > 0, s.config.TTL/50
	if calm > 0 {
		v.Again = min(calm, s.config.TTL/16)
	}
	for _, p := range e.behind {
		v.Behind = v.Behind || !p.reads || !e.reads
	}
	v.Reader = len(e.behind) > 0 && e.behind[0].reads
	return v
}

// seen takes over where a waiter stands. It breaks the connection of one that the server does not have in the queue, or that has the
// lock already and was not told. The first look may have been too early.
func (e *entry) seen(queue []place) {
	i := indexOf(queue, e.session.pid)
	switch {
	case i >= 0 && !queue[i].granted:
		e.unseen = time.Time{}
		e.mu.Lock()
		if e.ahead = i; i > 0 {
			e.nearest = queue[i-1].describe()
		}
		e.mu.Unlock()
		e.store.tier.Tell(e.view(0))
	case e.unseen.IsZero():
		e.unseen = time.Now()
	case time.Since(e.unseen) > e.session.bound && e.waits():
		e.lose(errUnseen)
	}
}

// stir has the session of a holder look who waits, and from then on ever more rarely: whoever is expected may still be on the way. For
// a waiter the ear looks.
func (e *entry) stir() {
	if e.waits() {
		e.store.hurry()
		return
	}
	e.mu.Lock()
	e.pause = nearest
	e.mu.Unlock()
	e.session.hurry(time.Now())
	e.attendOnce()
}

// nearest is the time between two looks at first.
const nearest = 2 * time.Millisecond

func (e *entry) attendOnce() {
	e.mu.Lock()
	begins := !e.attended && !e.over
	e.attended = true
	e.mu.Unlock()
	if begins {
		e.store.spawn(e.attend)
	}
}

// attend looks after the session of a holder: it listens for the end of the connection, and has the server answer often enough for the
// lease.
func (e *entry) attend() {
	x := e.session
	for !e.isOver() {
		if !x.due() {
			if err := x.listen(); err != nil && !e.isOver() {
				e.lose(err)
			}
			continue
		}
		if x.begin(context.Background()) != nil {
			return
		}
		if !e.isOver() {
			e.look()
		}
		x.done()
	}
}

// look asks who waits, and renews the lease. It waits for as long as that lasts: for a holder, an answer that is late is none that is
// lost. Whoever calls it has the turn.
func (e *entry) look() error {
	s, x := e.store, e.session
	sent, asked := s.tier.Now(), time.Now()
	rows, err := x.ask(max(e.left(), x.bound), call{"look", []string{array(e.key)}})
	if err != nil && !refused(err) {
		e.lose(err)
		return err
	}
	e.mu.Lock()
	e.proven, e.behind = sent, nil
	for _, p := range places(rows) {
		if !p.granted {
			e.behind = append(e.behind, p)
		}
	}
	e.pause = min(4*e.pause, s.config.TTL/4)
	x.schedule(asked.Add(e.pause))
	e.mu.Unlock()
	s.tier.Tell(e.view(sent))
	return nil
}

// tend has an entry do something in its session.
func (s *Store) tend(ctx context.Context, c queue.Command, do func(*entry) error) queue.Answer {
	e := s.entry(c.ID)
	if e == nil {
		return s.failed(errDropped) // which was told
	}
	if err := e.session.begin(ctx); err != nil {
		return s.failed(err)
	}
	defer e.session.done()
	if err := do(e); err != nil {
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// lookSooner is for somebody who wants to know now, and of those who come soon.
func (e *entry) lookSooner() error {
	e.mu.Lock()
	e.pause = nearest
	e.mu.Unlock()
	e.attendOnce()
	return e.look()
}

// share takes a share of the lock, which the server grants at once to who has it alone, and gives the rest up: those right behind who
// read then get in. It is one statement. If its answer does not come, nobody knows in which mode the session has the lock, and the
// session ends.
func (e *entry) share() error {
	sent := e.store.tier.Now()
	if _, err := e.session.ask(max(e.left(), e.session.bound), call{"share", []string{e.text()}}); err != nil {
		e.lose(err)
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reads, e.proven = true, sent
	return nil
}

// revoke tells the owner that it is asked for the lock, and shows that it knows.
func (e *entry) revoke(token string) {
	e.mu.Lock()
	news := !e.asked && e.token != 0 && strconv.FormatInt(e.token, 10) == token
	e.asked = e.asked || news
	e.mu.Unlock()
	if !news {
		return
	}
	e.store.tier.Tell(e.view(0))
	e.store.spawn(func() {
		x := e.session
		if x.begin(context.Background()) != nil {
			return
		}
		defer x.done()
		if e.isOver() {
			return
		}
		if _, err := x.ask(max(e.left(), x.bound), call{"name", []string{"tierlock " + token + e.name(true)}}); err != nil && !refused(err) {
			e.lose(err)
		}
	})
}

// leave unlocks, or ends the wait. If the server has something to end after that, or its answer does not come, the session ends.
func (s *Store) leave(ctx context.Context, c queue.Command) queue.Answer {
	e := s.entry(c.ID)
	if e == nil {
		return queue.Answer{Outcome: queue.Done} // with its session
	}
	e.end()
	x, last := e.session, call{inMode("leave", e.shared()), []string{e.text(), "tierlock"}}
	if e.waits() {
		if !e.cancel() {
			x.drop()
		}
		last = call{"leave-all", nil} // the lock may have been granted right before: it outlives the statement
	}
	if err := x.begin(ctx); err != nil && !errors.Is(err, errDropped) {
		return s.failed(err) // a transaction is under way
	} else if err != nil {
		s.forget(e)
		return queue.Answer{Outcome: queue.Done}
	}
	rows, err := x.ask(x.bound, last)
	x.done()
	s.forget(e)
	a := queue.Answer{Outcome: queue.Done}
	var ended *pgconn.PgError
	switch {
	case err != nil:
		x.drop()
		if errors.As(err, &ended) && !refused(err) { // before it came to that
			a.Removed = queue.Missing
		}
	case last.args != nil && string(rows[0][0]) != "t":
		x.drop()
		a.Removed = queue.Missing
	default:
		s.keep(x)
	}
	return a
}

// cancel asks the server to end the wait, and reports whether that did. It may grant the lock all the same, or end what comes later;
// then the session is of no use any more.
func (e *entry) cancel() bool {
	tried := e.session.cancel()
	e.session.wire.SetDeadline(time.Now().Add(e.session.bound))
	<-e.ended
	var refusal *pgconn.PgError
	return tried && errors.As(e.err, &refusal) && refusal.Code == "57014"
}

// close ends the session, and with it the wait or the hold.
func (e *entry) close() {
	e.end()
	if e.waits() {
		e.cancel()
	}
	e.session.close()
}

// lose ends an entry whose connection is of no use any more. The holder knows before that is closed.
func (e *entry) lose(why error) {
	e.lost(why)
	e.store.forget(e)
	e.session.drop()
}

// lost says that the connection is, or is about to be, closed.
func (e *entry) lost(why error) {
	e.end()
	e.store.tier.Tell(queue.View{ID: e.id, At: e.store.views.Add(1),
		Err: second.Lost(second.BySession, "%v: the session at the server is over: %w", e.session, why)})
}

// end says that nobody needs the session to be looked after any more.
func (e *entry) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.later != nil {
		e.later.Stop()
	}
}

func (e *entry) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over
}

func (e *entry) waits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.token == 0
}

func (e *entry) shared() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reads
}

// text is the key as an argument.
func (e *entry) text() string { return strconv.FormatInt(e.key, 10) }
