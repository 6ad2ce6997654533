package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// An entry is a contender, with the database session in which it waits for the lock, or has it.
type entry struct {
	store   *advisory
	session *serverConn
	id      string
	key     string
	about   string // the description of the process

	ended chan struct{} // closed when its wait is over; nil if it never waited
	err   error         // how the wait has ended; valid when that is closed

	attending *time.Timer // starts attend; valid when there is a token
	over      atomic.Bool // given up, or lost: the session needs no attention any more

	mu     sync.Mutex // guards the fields below, and orders views
	stands queue.View // the last known view; it has no token while the entry waits
	unseen time.Time  // since when the server has not shown it waiting
}

// enter takes the lock if it is free and no session waits. Otherwise it waits. In a requeue the session of the old entry unlocks, and
// queues again. If that session ends meanwhile, the release of the old entry reports it.
func (s *advisory) enter(ctx context.Context, c queue.Command) queue.Answer {
	e := &entry{store: s, id: c.ID, key: advisoryKey(c.Path), about: s.about(c.Linger)}
	e.stands = queue.View{ID: c.ID, Known: true, Reads: c.Reads}
	name := "tierlock 0 0 " + e.about
	old, says := s.find(c.Old.ID), call{"announce", e.key, name}
	if c.Old.ID != "" && old == nil {
		return queue.Answer{Outcome: queue.Gone}
	}
	var err error
	if old != nil {
		old.giveUp()
		e.session, says = old.session, old.call("leave", name)
	} else if e.session, err = s.session(ctx); err != nil {
		return s.failed(err)
	}
	switch err := e.session.begin(ctx); {
	case errors.Is(err, errDropped) && old != nil:
		return queue.Answer{Outcome: queue.Gone}
	case err != nil:
		if old == nil {
			e.session.drop(err) // no other goroutine has it
		}
		return s.failed(err)
	}
	taken := false
	if old == nil {
		taken, err = e.try()
	}
	waits := err == nil && !taken && c.Op != queue.Try
	if waits {
		err = e.wait(says)
	}
	if err != nil {
		e.session.drop(err)
	}
	if !waits || err != nil { // else the wait has the turn
		e.session.done()
	}
	switch {
	case err != nil:
		return s.failed(err)
	case taken:
		s.entries.Store(e.id, e)
	case !waits:
		s.keep(e.session)
		return queue.Answer{Outcome: queue.Locked, InGracePeriod: s.tier.GracePeriod() != nil}
	}
	s.entries.Delete(c.Old.ID)
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// call is a statement about the lock in the mode of the entry.
func (e *entry) call(statement, name string) call {
	return call{statement, e.key, name, strconv.FormatBool(e.now().Reads)}
}

// try reports whether the lock is taken now.
func (e *entry) try() (taken bool, err error) {
	rows, err := e.session.ask(e.session.bound, e.call("try", " 0 "+e.about))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	return true, e.granted(rows)
}

// short is the duration up to which a hold is watched without a goroutine of its own.
const short = 20 * time.Millisecond

// granted records that the server has granted the lock.
func (e *entry) granted(rows [][][]byte) error {
	token, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	e.session.schedule(time.Now().Add(e.store.options.TTL / 4))
	e.attending = time.AfterFunc(short, func() { e.store.notifyConn.Go(e.attend) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stands.Token, e.stands.Ahead, e.stands.Nearest = token, 0, second.Contender{}
	return err
}

// giveUp ends the goroutine that watches the session.
func (e *entry) giveUp() {
	e.over.Store(true)
	if e.now().Token != 0 {
		e.attending.Stop()
	}
}

// wait sends the statement says, which shows others that the session waits, together with the one that waits for the lock. wait returns
// once the first statement is answered. The goroutine that waits for the lock then owns the connection.
func (e *entry) wait(says call) error {
	x, sent := e.session, e.store.tier.Now()
	x.wire.SetDeadline(time.Now().Add(x.bound))
	p := x.conn.PgConn().StartPipeline(context.Background())
	for _, c := range []call{says, e.call("lock", " 0 "+e.about)} {
		p.SendQueryPrepared(c[0], c.values(), nil, nil)
		p.SendPipelineSync() // the server sends this answer before the next statement blocks
	}
	p.Flush()
	if _, err := answer(p); err != nil {
		return err
	}
	x.wire.SetDeadline(time.Time{})
	e.ended = make(chan struct{})
	e.store.entries.Store(e.id, e)
	e.store.pollSoon(e.store.options.TTL / 24) // not needed for short waits
	e.store.notifyConn.Go(func() { e.await(p, sent) })
	return nil
}

// await handles the end of a wait that was sent at that time. The lease does not run from then: after a long wait, the server has to answer
// once more.
func (e *entry) await(p *pgconn.Pipeline, sent time.Duration) {
	x := e.session
	defer x.done()
	defer close(e.ended)
	rows, err := answer(p)
	x.wire.SetDeadline(time.Now().Add(x.bound))
	err = cmp.Or(p.Close(), err)
	if err == nil {
		err = e.granted(rows)
	}
	e.err = err
	switch {
	case e.over.Load(): // the code that ended the wait reads err
	case err != nil:
		e.lose(err)
	case e.store.tier.Now()-sent > e.store.options.TTL/4:
		e.beat()
	default:
		e.store.tier.Tell(e.view(sent))
	}
}

// now is the last known view of the entry.
func (e *entry) now() queue.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stands
}

// view is the view of the entry, as an answer to a request sent at that time. In a grace period a session does not have the lock that the
// server has granted to it.
func (e *entry) view(sent time.Duration) queue.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, v := e.store, e.stands
	q := s.tier.GracePeriod()
	v.At, v.Sent, v.InGracePeriod = int64(s.tier.Now()), sent, q != nil
	switch {
	case v.Token == 0:
	case q != nil:
		v.Again = min(max(time.Until(q.Until), 1), s.options.TTL/16)
	default:
		v.Has, v.Again = true, s.options.TTL/50
	}
	return v
}

// seen adopts the place of an entry in the queue. seen breaks the connection of a waiter that the server does not have in the queue, or
// that has the lock and got no answer. seen tolerates one such result, since the read may have been too early.
func (e *entry) seen(queue []place) {
	if gone := e.stand(queue); gone {
		e.lose(errUnseen)
		return
	}
	e.store.tier.Tell(e.view(0))
}

// stand notes the place of an entry in the queue, and reports whether the queue has not shown the waiting entry for too long.
func (e *entry) stand(queue []place) (gone bool) {
	i := slices.IndexFunc(queue, func(p place) bool { return p.ID == e.session.pid })
	has := i >= 0 && queue[i].granted
	behind := slices.DeleteFunc(slices.Clone(queue), func(p place) bool { return p.granted })
	e.mu.Lock()
	defer e.mu.Unlock()
	v := &e.stands
	waits := v.Token == 0
	switch {
	case has && !waits:
		v.Behind = slices.ContainsFunc(behind, func(p place) bool { return !p.Shared || !v.Reads })
		v.Reader = len(behind) > 0 && behind[0].Shared
	case !waits: // granted after this look, or released
	case i < 0 || has:
		e.unseen = cmp.Or(e.unseen, time.Now())
	case i > 0:
		v.Ahead, v.Nearest, e.unseen = i, queue[i-1].Contender, time.Time{}
	default: // it waits for transactions, or is about to be granted the lock
		v.Ahead, v.Nearest, e.unseen = 0, second.Contender{}, time.Time{}
	}
	return waits && !e.unseen.IsZero() && time.Since(e.unseen) > e.session.bound
}

// attend keeps the session of a holder: it notices the end of the connection, and renews the lease.
func (e *entry) attend() {
	err := e.session.attend(e.over.Load, func() error { return e.session.talk(context.Background(), e.beat) })
	if !e.over.Load() {
		e.lose(err)
	}
}

// beat renews the lease by a request, which also shows other sessions whether the holder knows of a request for the lock. The caller has
// the turn.
func (e *entry) beat() error {
	sent := e.store.tier.Now()
	e.session.schedule(time.Now().Add(e.store.options.TTL / 4))
	v := e.now()
	name := fmt.Sprintf("tierlock %d %d %s", v.Token, map[bool]int{true: 1}[v.Asked], e.about)
	err := e.ask(call{"name", name})
	if err == nil {
		e.store.tier.Tell(e.view(sent))
	}
	return err
}

// ask sends a statement, and waits for the answer until any lease has ended: for a holder, a late answer is no loss. After the lock was
// given up it sends nothing. The caller has the turn.
func (e *entry) ask(c call) error {
	if e.over.Load() {
		return errDropped
	}
	_, err := e.session.ask(e.store.options.TTL-e.store.options.Margin, c)
	if err != nil && !refused(err) {
		e.lose(err)
	}
	return err
}

// tend calls do with the turn on the session of an entry.
func (s *advisory) tend(ctx context.Context, c queue.Command, do func(*entry) error) queue.Answer {
	e := s.find(c.ID)
	if e == nil {
		return s.failed(errDropped) // its loss was reported
	}
	if err := e.session.talk(ctx, func() error { return do(e) }); err != nil {
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// share takes the lock in shared mode, which the server grants at once to the only holder, and gives up the exclusive one: the readers
// right behind are then granted the lock. The share is one statement. If its answer does not come, the mode is unknown, and the session
// ends.
func (e *entry) share() error {
	err := e.ask(call{"share", e.key})
	if refused(err) {
		e.lose(err)
	} else if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stands.Reads, e.stands.Behind = true, false // for readers; the next look shows other waiters
	}
	return err
}

// revoke notifies the owner of a request for the lock, and shows the other sessions that the owner knows.
func (e *entry) revoke(token string) {
	e.mu.Lock()
	news := !e.stands.Asked && strconv.FormatInt(e.stands.Token, 10) == token
	e.stands.Asked = e.stands.Asked || news
	e.mu.Unlock()
	if !news {
		return
	}
	e.store.tier.Tell(e.view(0))
	e.store.notifyConn.Go(func() { e.session.talk(context.Background(), e.beat) })
}

// proof has the arguments of tierlock.guard, with which it checks that a contender has the lock.
func (s *advisory) proof(r queue.Ref) string {
	return fmt.Sprintf("%s, %d", advisoryKey(r.Path), r.Token)
}

// leave unlocks, or ends the wait. If its answer does not come, or the server did not have the lock as expected, the session ends. An entry
// that was lost before has nothing to give up.
func (s *advisory) leave(ctx context.Context, c queue.Command) queue.Answer {
	e := s.find(c.ID)
	if e == nil {
		return queue.Answer{Outcome: queue.Done, Removed: queue.Missing}
	}
	e.giveUp()
	x, last := e.session, e.call("leave", "tierlock")
	if e.now().Token == 0 {
		if !e.cancel() {
			x.drop(errors.New("its wait was cancelled"))
		}
		last = call{"leave-all"} // the lock may have been granted right before: it outlives the statement
	}
	err := x.talk(ctx, func() error {
		rows, err := x.ask(x.bound, last)
		if err == nil && len(last) > 1 && string(rows[0][1]) != "t" {
			err = errUnseen
		}
		if err != nil {
			return x.drop(err)
		}
		s.keep(x)
		return nil
	})
	if err != nil && !errors.Is(err, errDropped) {
		return s.failed(err) // a renewal is in progress
	}
	a := queue.Answer{Outcome: queue.Done}
	ended := refusal(err) != "" && !refused(err) // the server ended the session before the statement
	if lost := !s.entries.CompareAndDelete(e.id, e); lost || ended || errors.Is(err, errUnseen) || pgconn.SafeToRetry(err) {
		a.Removed = queue.Missing
	}
	return a
}

// cancel asks the server to end the wait, and reports whether this ended it. A request that arrives before the wait has begun has no
// effect, so it is sent again. The server may still grant the lock, or a late request may end a later statement; then the session cannot be
// used any more.
func (e *entry) cancel() bool {
	x := e.session
	ctx, end := context.WithTimeout(context.Background(), x.bound)
	defer end()
	x.wire.SetDeadline(time.Now().Add(x.bound))
	for x.conn.PgConn().CancelRequest(ctx) == nil && ctx.Err() == nil {
		select {
		case <-e.ended:
			return refusal(e.err) == "57014"
		case <-time.After(nearest):
		}
	}
	<-e.ended
	return false
}

// lose ends an entry whose connection cannot be used any more. The holder learns of it before the connection is closed.
func (e *entry) lose(why error) {
	e.over.Store(true)
	e.store.tier.Tell(queue.View{ID: e.id, At: int64(e.store.tier.Now()),
		Err: second.Lost(second.BySession, "server process %s: the session at the server is over: %w", e.session.pid, why)})
	e.store.entries.CompareAndDelete(e.id, e)
	e.session.drop(why)
}

func (s *advisory) find(id string) *entry {
	e, _ := s.entries.Load(id)
	found, _ := e.(*entry)
	return found
}

func (s *advisory) all(yield func(*entry) bool) {
	s.entries.Range(func(_, e any) bool { return yield(e.(*entry)) })
}
