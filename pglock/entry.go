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

// An entry is a contender in the session in which it waits for the lock, or has it.
type entry struct {
	store   *advisory
	session *line
	id      string
	key     string
	about   string // what it says of itself

	ended chan struct{} // closed when its wait is over; nil if it never waited
	err   error         // how the wait has ended; valid when that is closed

	attending *time.Timer // begins to attend; valid when there is a token
	over      atomic.Bool // given up, or lost: nobody needs the session to be looked after

	mu     sync.Mutex // guards the fields below, and orders views
	stands queue.View // as last seen; it has no token as long as it waits
	unseen time.Time  // since when it has not been seen waiting
}

// enter takes the lock if it is free and nobody waits. Otherwise it waits. In a requeue the session of the old entry unlocks, and
// queues again. If that ends meanwhile, the release of the old one tells.
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
			e.session.drop(err) // nobody else has it
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

// short is a hold that costs no goroutine.
const short = 20 * time.Millisecond

// granted notes that the server has granted the lock.
func (e *entry) granted(rows [][][]byte) error {
	token, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	e.session.schedule(time.Now().Add(e.store.options.TTL / 4))
	e.attending = time.AfterFunc(short, func() { e.store.ear.Go(e.attend) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stands.Token, e.stands.Ahead, e.stands.Nearest = token, 0, second.Contender{}
	return err
}

// giveUp says that nobody needs the session to be looked after.
func (e *entry) giveUp() {
	e.over.Store(true)
	if e.now().Token != 0 {
		e.attending.Stop()
	}
}

// wait sends a statement that says so, and with it the one that waits for the lock, and returns once the first is answered. From then
// on it has the turn.
func (e *entry) wait(says call) error {
	x, sent := e.session, e.store.tier.Now()
	x.wire.SetDeadline(time.Now().Add(x.bound))
	p := x.conn.PgConn().StartPipeline(context.Background())
	for _, c := range []call{says, e.call("lock", " 0 "+e.about)} {
		p.SendQueryPrepared(c[0], c.values(), nil, nil)
		p.SendPipelineSync() // what is answered so far is sent before the next one waits
	}
	p.Flush()
	if _, err := answer(p); err != nil {
		return err
	}
	x.wire.SetDeadline(time.Time{})
	e.ended = make(chan struct{})
	e.store.entries.Store(e.id, e)
	e.store.stir(e.store.options.TTL / 24) // but not for waits that are short
	e.store.ear.Go(func() { e.await(p, sent) })
	return nil
}

// await is the end of a wait that was sent then. The time for which that has lasted is no lease: after long, the server has to answer
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
	case e.over.Load(): // whoever has ended it looks
	case err != nil:
		e.lose(err)
	case e.store.tier.Now()-sent > e.store.options.TTL/4:
		e.beat()
	default:
		e.store.tier.Tell(e.view(sent))
	}
}

// now is how the entry stands as last seen.
func (e *entry) now() queue.View {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stands
}

// view is how the entry stands, as answered to what was sent then. In a grace period nobody has the lock whom the server has granted it.
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

// seen takes over where an entry stands. It breaks the connection of a waiter that the server does not have in the queue, or that has
// the lock already and was not told. The first look may have been too early.
func (e *entry) seen(queue []place) {
	if gone := e.stand(queue); gone {
		e.lose(errUnseen)
		return
	}
	e.store.tier.Tell(e.view(0))
}

// stand notes where an entry stands in the queue, and reports whether it has waited there unseen for too long.
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
	case !waits: // since, or no more
	case i < 0 || has:
		e.unseen = cmp.Or(e.unseen, time.Now())
	case i > 0:
		v.Ahead, v.Nearest, e.unseen = i, queue[i-1].Contender, time.Time{}
	default: // it waits for transactions, or is about to be granted the lock
		v.Ahead, v.Nearest, e.unseen = 0, second.Contender{}, time.Time{}
	}
	return waits && !e.unseen.IsZero() && time.Since(e.unseen) > e.session.bound
}

// attend looks after the session of a holder: it hears of the end of the connection, and has the server answer often enough for the
// lease.
func (e *entry) attend() {
	err := e.session.attend(e.over.Load, func() error { return e.session.talk(context.Background(), e.beat) })
	if !e.over.Load() {
		e.lose(err)
	}
}

// beat has the server answer for the lease, and show others whether the holder knows that it is asked. Whoever calls it has the turn.
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

// ask waits for the answer until any lease is over: for a holder, one that is late is none that is lost. Whoever has given the lock up
// asks nothing. Whoever calls it has the turn.
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

// tend has an entry do something in its session.
func (s *advisory) tend(ctx context.Context, c queue.Command, do func(*entry) error) queue.Answer {
	e := s.find(c.ID)
	if e == nil {
		return s.failed(errDropped) // which was told
	}
	if err := e.session.talk(ctx, func() error { return do(e) }); err != nil {
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, View: e.view(0)}
}

// share takes a share of the lock, which the server grants at once to who has it alone, and gives the rest up: those right behind who
// read then get in. It is one statement. If its answer does not come, nobody knows in which mode the session has the lock, and the
// session ends.
func (e *entry) share() error {
	err := e.ask(call{"share", e.key})
	if refused(err) {
		e.lose(err)
	} else if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stands.Reads, e.stands.Behind = true, false // of readers; the next look tells of others
	}
	return err
}

// revoke tells the owner that it is asked for the lock, and shows that it knows.
func (e *entry) revoke(token string) {
	e.mu.Lock()
	news := !e.stands.Asked && strconv.FormatInt(e.stands.Token, 10) == token
	e.stands.Asked = e.stands.Asked || news
	e.mu.Unlock()
	if !news {
		return
	}
	e.store.tier.Tell(e.view(0))
	e.store.ear.Go(func() { e.session.talk(context.Background(), e.beat) })
}

// proof is what tierlock.guard knows by that a contender has the lock.
func (s *advisory) proof(c *queue.Contender) string {
	return fmt.Sprintf("%s, %d", advisoryKey(c.Ref().Path), c.Token())
}

// leave unlocks, or ends the wait. If the server has something to end after that, or its answer does not come, the session ends. An
// entry that was lost before had nothing to give up any more.
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
		return s.failed(err) // a renewal is under way
	}
	a := queue.Answer{Outcome: queue.Done}
	ended := refusal(err) != "" && !refused(err) // by the server, before it came to that
	if lost := !s.entries.CompareAndDelete(e.id, e); lost || ended || errors.Is(err, errUnseen) || pgconn.SafeToRetry(err) {
		a.Removed = queue.Missing
	}
	return a
}

// cancel asks the server to end the wait, and reports whether that did. What comes before the wait has begun ends nothing, so it is
// asked again. It may grant the lock all the same, or end what comes later; then the session is of no use any more.
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

// lose ends an entry whose connection is of no use any more. The holder knows before that is closed.
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
