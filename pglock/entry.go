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

// An entry is a contender for an advisory lock. In its database session it waits for the lock, or holds it.
type entry struct {
	store   *advisory
	session *serverConn
	id      string
	key     string
	about   string // the description of the process

	ended chan struct{} // closed when its wait is over; nil if it never waited
	err   error         // why the wait has failed, nil if it has not; valid once ended is closed

	attending *time.Timer // starts the method attend; set once the lock is granted
	over      atomic.Bool // the entry was given up or lost, so its session is not renewed any more

	mu     sync.Mutex // guards the fields below, and orders views
	stands queue.View // the last known view; it has no token while the entry waits
	unseen time.Time  // since when reads of the queue do not show that the entry waits; zero if they do
}

// enter takes the lock if it is free and no session waits for it. Otherwise the new entry waits for the lock. In a Requeue, the session of
// the old entry unlocks the lock, and then waits again. If that session ends before it unlocks the lock, the release of the old entry
// reports the loss.
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
			e.session.drop(err) // no other goroutine uses this session
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
	if !waits || err != nil { // otherwise the goroutine that waits for the lock keeps the turn
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

// call returns a call of a prepared statement, with the key and the mode of the entry.
func (e *entry) call(statement, name string) call {
	return call{statement, e.key, name, strconv.FormatBool(e.now().Reads)}
}

// try takes the lock if it is free. It returns true if this session has the lock now.
func (e *entry) try() (taken bool, err error) {
	rows, err := e.session.ask(e.session.bound, e.call("try", " 0 "+e.about))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	return true, e.granted(rows)
}

// The constant short is how long a hold lasts before a goroutine starts to watch its session.
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

// giveUp marks the entry as over, which ends the goroutine that watches the session.
func (e *entry) giveUp() {
	e.over.Store(true)
	if e.now().Token != 0 {
		e.attending.Stop()
	}
}

// wait sends two statements together. The first one is the parameter says, which shows other processes that the session waits. The second
// one waits for the lock. The method returns once the first statement is answered. A new goroutine then waits for the second answer, and
// keeps the turn.
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
	e.store.pollSoon(e.store.options.TTL / 24) // a short wait ends before this read of the queues
	e.store.notifyConn.Go(func() { e.await(p, sent) })
	return nil
}

// await waits for the end of a wait for the lock, and handles it. sent is when the statement was sent. After a long wait, a lease that
// counts from then may have ended, so the entry sends one more request.
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
	case e.over.Load(): // the method cancel has ended the wait, and reads err
	case err != nil:
		e.lose(err)
	case e.store.tier.Now()-sent > e.store.options.TTL/4:
		e.beat()
	default:
		e.store.tier.Tell(e.view(sent))
	}
}

// entry.now returns the last known view of the entry.
func (e *entry) now() queue.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stands
}

// view returns the last known view of the entry, completed for the tier. sent is when the request that showed this view was sent. In a
// grace period, the contender does not have the lock, even if the server has granted it to the session.
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

// The method seen is called with the queue that the server has shown. It reports the place of the entry to the tier. A waiter may be
// missing in the queue, or it may have the lock there although it got no answer. If that lasts, seen closes its connection. A single such
// result is ignored, because the queue may have been read too early.
func (e *entry) seen(queue []place) {
	if gone := e.stand(queue); gone {
		e.lose(errUnseen)
		return
	}
	e.store.tier.Tell(e.view(0))
}

// stand stores the place of the entry in the queue. It returns true if the entry waits, but the queue has not shown that for too long.
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
	case !waits: // the lock was granted after the queue was read, or was released before
	case i < 0 || has:
		e.unseen = cmp.Or(e.unseen, time.Now())
	case i > 0:
		v.Ahead, v.Nearest, e.unseen = i, queue[i-1].Contender, time.Time{}
	default: // the entry is first; it waits for transactions of the last holder, or is about to get the lock
		v.Ahead, v.Nearest, e.unseen = 0, second.Contender{}, time.Time{}
	}
	return waits && !e.unseen.IsZero() && time.Since(e.unseen) > e.session.bound
}

// attend watches the session of a holder. It renews the lease, and notices when the connection breaks.
func (e *entry) attend() {
	err := e.session.attend(e.over.Load, func() error { return e.session.talk(context.Background(), e.beat) })
	if !e.over.Load() {
		e.lose(err)
	}
}

// beat renews the lease by a request. The request also sets the session name, which shows other processes whether the holder knows that the
// lock was asked for. The caller has the turn.
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

// ask sends a statement, and waits for the answer as long as a lease can last. One late answer therefore does not cost a holder its lock.
// If the lock was given up, ask sends nothing and returns an error. The caller has the turn.
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

// tend finds the entry of a command, and calls do for it while it has the turn on its session. It returns the view of the entry.
func (s *advisory) tend(ctx context.Context, c queue.Command, do func(*entry) error) queue.Answer {
	e := s.find(c.ID)
	if e == nil {
		return s.failed(errDropped) // the entry was lost, which the tier already knows
	}
	if err := e.session.talk(ctx, func() error { return do(e) }); err != nil {
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// share takes the lock in shared mode, and gives up the exclusive mode. The server grants the shared mode at once, because this session is
// the only holder. The readers right behind are then granted the lock. Both happen in one statement. If the answer does not arrive, the
// mode is unknown, and the session is ended.
func (e *entry) share() error {
	err := e.ask(call{"share", e.key})
	if refused(err) {
		e.lose(err)
	} else if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stands.Reads, e.stands.Behind = true, false // readers do not wait any more; the next read of the queue shows whether writers wait
	}
	return err
}

// revoke tells the holder that a process has asked for the lock. The next request on its session shows other processes that the holder
// knows.
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

// proof returns the SQL arguments for tierlock.guard, which checks that the contender has the lock.
func (s *advisory) proof(r queue.Ref) string {
	return fmt.Sprintf("%s, %d", advisoryKey(r.Path), r.Token)
}

// leave unlocks the lock, or ends the wait for it. If the answer does not arrive, or the session did not have the lock, leave ends the
// session. An entry that was lost before has nothing to give up.
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
		last = call{"leave-all"} // the lock may have been granted just before the cancellation, and the session would keep it
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
		return s.failed(err) // another request, such as a renewal, still has the turn
	}
	a := queue.Answer{Outcome: queue.Done}
	ended := refusal(err) != "" && !refused(err) // the server ended the session before the statement
	if lost := !s.entries.CompareAndDelete(e.id, e); lost || ended || errors.Is(err, errUnseen) || pgconn.SafeToRetry(err) {
		a.Removed = queue.Missing
	}
	return a
}

// cancel asks the server to end the wait. It returns true if that has ended the wait. A cancel request that arrives before the wait has
// begun has no effect, so the request is repeated. If cancel returns false, the server may have granted the lock, and a late cancel request
// may still end a later statement. The session cannot be used any more then.
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

// lose ends an entry whose connection cannot be used any more. It tells the holder of the loss before it closes the connection.
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
