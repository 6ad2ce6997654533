package pglock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/retry"
)

// keep sees to it that there is a session, from the first to the last.
func (s *store) keep() {
	for pace := retry.New(); s.ctx.Err() == nil; {
		if s.attend() {
			pace.Reset()
		}
		retry.Pause(s.ctx, pace.NextBackOff())
	}
	s.finish()
}

// attend keeps a session on a connection of its own, until one or the other ends. It reports whether
// there were both.
func (s *store) attend() bool {
	var conn *pgx.Conn
	if err := s.call(s.ctx, func(ctx context.Context) (err error) {
		conn, err = s.connect(ctx)
		return err
	}); err != nil {
		s.refuse(err)
		return false
	}
	defer s.disconnect(conn)
	a := &attendant{store: s, conn: conn, session: s.sessions.last()}
	if a.session == nil || a.session.Over() {
		if err := a.open(); err != nil {
			s.refuse(err)
			return false
		}
	} else if a.listen() != nil || a.confirm() != nil {
		return false
	}
	a.run()
	return true
}

// refuse has acquisitions fail, as long as there is no session, for a reason that stays.
func (s *store) refuse(err error) {
	if x := s.sessions.last(); classify(err) == permanent && (x == nil || x.Over()) {
		s.reached()
		s.sessions.report(nil, err)
	}
}

// disconnect waits until nothing is left of a connection, as far as the store is not at its end.
func (s *store) disconnect(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(s.wires, time.Second)
	defer cancel()
	conn.Close(ctx)
	if s.ctx.Err() == nil {
		return
	}
	defer time.AfterFunc(time.Second, s.hangUp).Stop()
	<-conn.PgConn().CleanupDone()
}

// An attendant renews a session, reads queues, and passes on what the server tells.
type attendant struct {
	*store
	conn    *pgx.Conn
	session *session
}

// open begins a session whose news the connection hears.
func (a *attendant) open() error {
	s := a.store
	var x *session
	if err := s.call(s.ctx, func(ctx context.Context) error {
		if err := checkSchema(ctx, a.conn); err != nil {
			return err
		}
		if err := checkRights(ctx, a.conn); err != nil {
			return err
		}
		if err := s.options.first.declare(ctx, a.conn, s.options.ttl.Milliseconds()); err != nil {
			return err
		}
		x = s.newSession(s.now())
		_, err := a.conn.Exec(ctx, "SELECT tierlock.open($1, $2, $3, $4, $5)", x.id, s.options.ttl.Milliseconds(), s.host, os.Getpid(), s.options.label)
		var refusal *pgconn.PgError
		if errors.As(err, &refusal) && refusal.Code == "22P05" {
			return fmt.Errorf("label %q, host %q: %w: %w; set another label, or take a database in UTF8", s.options.label, s.host, errEncoding, err)
		}
		return err
	}); err != nil {
		return err
	}
	a.session = x
	if err := a.listen(); err != nil {
		return err
	}
	s.reached()
	s.sessions.report(x, nil)
	s.notice.Begin(x.id)
	return nil
}

func (a *attendant) listen() error {
	return a.call(a.ctx, func(ctx context.Context) error {
		_, err := a.conn.Exec(ctx, "LISTEN "+pgx.Identifier{a.session.channel()}.Sanitize())
		return err
	})
}

// confirm comes before the first renewal on a connection, which may be to another server than the one
// before. That may not know all contenders; what it then renews is not their lease. And it may know some
// that were deleted.
func (a *attendant) confirm() error {
	asked := a.now()
	present, err := a.contendersOf(a.conn, a.session)
	if err != nil {
		return err
	}
	for _, c := range a.session.Contenders() {
		if _, ok := present[c.id]; !ok && c.wasThere(asked) {
			c.gone.Store(true)
			c.lose(deleted(c.id))
		}
	}
	a.reapUnwanted(present, a.session)
	return nil
}

// run renews the session each quarter of the TTL. With that it reads all queues that are followed, as a
// notification may be lost, be it with the connection before this one.
func (a *attendant) run() {
	quarter := a.options.ttl / 4
	for due := a.now(); a.ctx.Err() == nil && !a.session.Over(); {
		if a.now() >= due || a.problem.Load() != nil {
			due = a.now() + quarter
			if a.beat() != nil {
				return
			}
			a.queues.readAll()
		}
		if a.read() != nil {
			return
		}
		if !a.hear(due - a.now()) {
			return
		}
	}
}

func (a *attendant) beat() error {
	var alive bool
	var stale []string
	var quiet int64
	sent, at := a.now(), time.Now()
	if err := a.call(a.ctx, func(ctx context.Context) error {
		return a.conn.QueryRow(ctx, "SELECT alive, stale, quiet FROM tierlock.beat($1, $2)", a.session.id, a.options.ttl.Milliseconds()).Scan(&alive, &stale, &quiet)
	}); err != nil {
		return err
	}
	a.hush(quiet, at)
	if !alive {
		a.expire(a.session)
		return nil
	}
	a.reached()
	a.session.heard(sent)
	if len(stale) > 0 {
		a.spawn(func() { a.settle(stale) })
	}
	if a.session.doubtful.Load() {
		if err := a.audit(); classify(err) == uncertain {
			return err
		}
	}
	return nil
}

// hear waits for news up to d, and reports whether the connection is well.
func (a *attendant) hear(d time.Duration) (well bool) {
	well = true
	a.nudge.wait(a.ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		n, err := a.conn.WaitForNotification(ctx)
		switch {
		case n != nil:
			a.pass(n.Payload)
		case err != nil && a.conn.IsClosed():
			a.missed(err)
			well = false
		}
	})
	return well
}

// pass passes a notification on.
func (a *attendant) pass(message string) {
	switch kind, what, _ := strings.Cut(message, " "); kind {
	case "turn":
		id, contested, _ := strings.Cut(what, " ")
		if c, ok := a.session.byID.Load(id); ok {
			c.(*contender).tellTurn(contested == "true")
		}
	case "look":
		a.queues.read(what)
	}
}

// settle removes contenders that have no session any more from queues. Whoever comes first does.
func (s *store) settle(paths []string) {
	for _, path := range paths {
		if s.call(s.ctx, func(ctx context.Context) error {
			_, err := s.requests.Exec(ctx, "SELECT tierlock.settle($1)", path)
			return err
		}) != nil {
			return // next time
		}
	}
}

// audit deletes the contenders of the session for whom nobody of this process stands. A request whose
// answer did not come may be executed at any later time, also after the delete of its contender: by a
// server, say, that was stopped and continued. Nothing but the end of the session, without which it
// does nothing, makes sure that it is not; and until then this finds what it has done. Nor may a delete be
// possible, as the server is full, while this connection renews the session. Contenders are enrolled
// before they are in a queue.
func (a *attendant) audit() error {
	present, err := a.contendersOf(a.conn, a.session)
	if err != nil {
		return err
	}
	ids := slices.Collect(maps.Keys(a.session.unwanted(present)))
	if len(ids) == 0 {
		return nil
	}
	return a.call(a.ctx, func(ctx context.Context) error {
		_, err := a.conn.Exec(ctx, "SELECT tierlock.drop($1::uuid[])", ids[:min(len(ids), maxDrops)])
		return err
	})
}

// maxDrops is how many contenders are deleted with one renewal: the server has room for some thousand locks only.
const maxDrops = 100

// reapUnwanted leaves to the reaper those that were present for whom nobody stands any more.
func (s *store) reapUnwanted(present map[string]string, x *session) {
	for id, path := range x.unwanted(present) {
		s.reaper.Add(remains{path: path, id: id, session: x})
	}
}

// contendersOf returns the paths of those that the server has under a session, by their ids.
func (s *store) contendersOf(q pgxQuerier, x *session) (paths map[string]string, err error) {
	paths = make(map[string]string)
	err = s.call(s.ctx, func(ctx context.Context) error {
		rows, err := q.Query(ctx, "SELECT id::text, path FROM tierlock.contender WHERE session = $1", x.id)
		if err != nil {
			return err
		}
		var id, path string
		_, err = pgx.ForEachRow(rows, []any{&id, &path}, func() error { paths[id] = path; return nil })
		return err
	})
	return paths, err
}

// finish ends the session at the close of the store.
func (s *store) finish() {
	x := s.sessions.last()
	if x == nil || s.problem.Load() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.wires, time.Second)
	defer cancel()
	for all := false; !all; {
		if s.requests.QueryRow(ctx, "SELECT tierlock.finish($1)", x.id).Scan(&all) != nil {
			return // the session expires
		}
	}
}
