package pglock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// NewAdvisory returns a registry of session advisory locks. A lock changes hands with one round trip and without a write to a table. Use it
// for a few hot locks with short waits; use [New] for leaders and for many paths. It needs the schema of [Migrate] and PostgreSQL 14 or
// later. It connects as pool does, on connections of its own; pool serves [Tx]. It blocks and fails as New does, and takes the same
// options.
//
// Caution: these locks promise less than those of New:
//
//   - Whatever ends a session at the server gives the lock to the next process at once: pg_terminate_backend, a proxy or a firewall that
//     breaks connections. The holder learns of it when its own end of the connection breaks, or with its next heartbeat, up to a quarter of
//     the TTL later.
//   - After a failover, a former primary that keeps running keeps its holders, and the promoted server grants their locks when its grace
//     period is over. Fence the former primary (Patroni's watchdog, STONITH).
//   - All locks are lost when the server restarts or fails over.
//   - Acquisitions through PgBouncer fail at once. Connect to the server itself.
//   - A session that waits for a lock holds a snapshot. It keeps vacuum from removing dead rows, and CREATE INDEX CONCURRENTLY waits for
//     it: never run that while you hold an advisory lock that others wait for, or both wait without end.
//   - There are no semaphores; the error wraps [errors.ErrUnsupported].
//
// # Connections
//
// A process has one connection for notifications and one for each lock that it holds or waits for. Idle ones are kept for half a TTL. Each
// is a process of the server (max_connections). An acquisition that gets no connection tries again.
//
// # The lease
//
// The server ends a session that was idle for the TTL (idle_session_timeout), which frees its lock. The lease runs for the TTL less the
// margin, counted from when the newest answered statement was sent. If the connection breaks, the lock is lost at once; while the server is
// silent, the lock is held until the lease ends. The server removes a waiter whose client is gone within a second where it can detect
// that (client_connection_check_interval, on Linux), otherwise by TCP keepalives after the TTL.
//
// A server that was started or promoted knows no locks. It therefore grants none during a grace period, the longest TTL ever used in the
// database, counted from the first connection of a process. A [*tier.GracePeriodError] says until when. To correct a recorded TTL that
// is too long, see the package documentation.
//
// # Differences from New
//
// The key of a lock is the first eight bytes of the SHA-256 of "tierlock:" and the path, as a bigint; pg_locks shows it. Paths with the
// same key, and programs that take this key with pg_advisory_lock, exclude each other. [Tx] uses a second lock with the same key as two
// ints.
//
// The token is drawn when the lock is granted, so Contenders shows none for waiters. It takes host and label from application_name, which
// the server cuts to 63 bytes of ASCII, and as ID shows the process ID of the server process, for pg_terminate_backend.
//
// Revoke waits up to an eighth of the TTL for the holders to confirm. A holder that is not connected at that time may get the request up to
// a TTL later, or never. For holders of other programs the error wraps [errors.ErrUnsupported].
//
// [tier.Mutex.Break] removes nothing, and its error wraps [errors.ErrUnsupported]. To take a lock away, end the server process of its
// holder: pg_terminate_backend with the ID that Contenders shows.
func NewAdvisory(ctx context.Context, pool *pgxpool.Pool, opts ...tier.RegistryOption) (*tier.Registry, error) {
	return front(ctx, pool, opts, openAdvisory)
}

// An advisory is a store over PostgreSQL's session advisory locks.
//
// What is particular: each contender has a session at the server of its own, in which it waits for the advisory lock of its path and
// holds it, and which the server ends when it is idle for the TTL; so each has a lease of its own, and all that a command may leave
// goes with a connection that is closed.
//
// Sessions that nobody uses are kept for others for a while. One more connection, the ear, hears who waits and who is asked, and looks
// at the queues: a connection that waits is busy. A connection that holds is read for its end, and has the server answer for the lease.
type advisory struct {
	base
	config *pgxpool.Config // how to connect

	entries sync.Map     // by ID, which is for this process alone: others know the contender by the server's process
	heard   atomic.Int64 // on the tier's clock, when that was sent what the server has answered last on the ear

	mu     sync.Mutex    // guards the fields below; never held across a request
	pause  time.Duration // until the next look, which grows
	spares []*line
}

// openAdvisory returns a tier on a store that begins to connect.
func openAdvisory(pool *pgxpool.Pool, o options) (*queue.Tier, error) {
	o.Margin = cmp.Or(o.Margin, o.TTL/3)
	wires, hangUp := context.WithCancel(context.Background())
	s := &advisory{base: base{pool: pool, options: o, self: second.Describe(o.Label), hangUp: hangUp}, pause: o.TTL}
	s.self.Host, _, _ = strings.Cut(s.self.Host, ".")
	ours := runtime(o.TTL)               // once more: a hook of the pool may have changed them
	delete(ours, "idle_session_timeout") // which prepare looks at, and which tells of a pooler
	maps.Copy(ours, forAll)
	s.config = configLike(wires, pool, ours, s.prepare)
	maps.Copy(s.config.ConnConfig.RuntimeParams, runtime(o.TTL))
	due := func(*line) error { return s.lookAround(context.Background()) }
	s.ear = ear{at: addresses(pool), dial: s.hears, due: due, Tasks: second.NewTasks(), lost: func() {
		s.dropSpares(true)
		s.tier.Renew()
	}}
	s.tier = queue.New(queue.Config{
		Package: "pglock", Store: "PostgreSQL", Settings: o.Settings, Apart: true, Paths: second.Components,
		Elsewhere: "pglock.New, which keeps locks in tables,",
		Lost:      func(queue.Ref) string { return errUnseen.Error() },
	}, s)
	s.tier.Start()
	return s.tier, nil
}

// advisoryKey is the key of the advisory lock of a path: the first eight bytes of the SHA-256 of its name here. Two paths with the same key
// exclude each other, no more.
func advisoryKey(path string) string {
	sum := sha256.Sum256([]byte("tierlock:" + path))
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:8])), 10)
}

var errUnseen = errors.New("the server no longer knows this session's lock or place in the queue")

// Do executes a command. Enter takes a second round trip if it has to wait. What is not answered is undone by the server once it knows
// that the connection is closed: so nothing is unknown, and there is nothing to audit, to drop, or to say at the end.
func (s *advisory) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	defer func() {
		if a.Outcome != queue.Denied { // which is an answer, and at once
			_, a.Away = s.ear.now()
		}
	}()
	switch c.Op {
	case queue.Open, queue.Beat:
		return s.beat(ctx, c.Op)
	case queue.Enter, queue.Try:
		return s.enter(ctx, c)
	case queue.Leave:
		return s.leave(ctx, c)
	case queue.Look: // for somebody who wants to know now, and of those who come soon
		s.stir(0)
		return s.tend(ctx, c, (*entry).beat)
	case queue.Share:
		return s.tend(ctx, c, (*entry).share)
	case queue.List:
		return s.list(ctx, advisoryKey(c.Path))
	case queue.Ask:
		return s.ask(ctx, advisoryKey(c.Path))
	case queue.Audit, queue.Drop, queue.Goodbye: // a contender goes with its connection
		return queue.Answer{Outcome: queue.Done}
	}
	return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
}

// failed is the answer to what was not executed, or is undone.
func (s *advisory) failed(err error) queue.Answer {
	if classify(err) == queue.Denied || errors.Is(err, errors.ErrUnsupported) {
		return queue.Answer{Outcome: queue.Denied, Err: err}
	}
	return queue.Answer{Outcome: queue.Failed, Err: err}
}

// beat has the server answer on the ear, or on a new one. A session of the tier is the time for which it does: after a TTL without that
// none of ours is left at the server.
func (s *advisory) beat(ctx context.Context, op queue.Op) queue.Answer {
	heard := time.Duration(s.heard.Load())
	_, err := s.ear.open(ctx)
	if err == nil {
		err = s.lookAround(ctx)
	}
	switch {
	case op == queue.Beat && (classify(err) == queue.Denied || err == nil && s.tier.Now()-heard > s.options.TTL):
		return queue.Answer{Outcome: queue.Expired, Err: cmp.Or(err, errors.New("no answer from the server for a whole TTL"))}
	case err != nil:
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, Name: s.Name(""), TTL: s.options.TTL}
}

// hears makes a connection for the ear.
func (s *advisory) hears(ctx context.Context) (*line, error) {
	l, err := s.dial(ctx)
	if err == nil {
		if _, err = l.conn.Exec(ctx, "LISTEN tierlock"); err != nil {
			l.drop(err)
		}
	}
	return l, err
}

// told handles a notification that a process waits for a lock, or asks for it. It may come late or never.
func (s *advisory) told(n *pgconn.Notification) {
	verb, rest, _ := strings.Cut(n.Payload, " ")
	who, what, _ := strings.Cut(rest, " ")
	for e := range s.all {
		switch {
		case verb == "waits" && e.key == who && e.session.pid != fmt.Sprint(n.PID) && e.now().Token != 0 && !e.over.Load():
			s.stir(0)
		case verb == "asked" && e.session.pid == who:
			e.revoke(what)
		}
	}
}

// nearest is the time between two looks at first.
const nearest = 2 * time.Millisecond

// stir has the ear look around soon, and from then on ever more rarely: whoever is expected may still be on the way.
func (s *advisory) stir(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = min(s.pause, max(after, nearest))
	s.ear.hurry(time.Now().Add(after))
}

// lookAround looks at the queues of our entries, or just has the server answer. Who holds is looked after by each beat besides.
func (s *advisory) lookAround(ctx context.Context) error {
	var all []*entry
	var keys []string
	longest := s.options.TTL // which is never, as a beat comes before
	for e := range s.all {
		all, keys = append(all, e), append(keys, e.key)
		if e.now().Token == 0 {
			longest = s.options.TTL / 12
		}
	}
	sent := s.tier.Now()
	s.mu.Lock()
	s.pause = min(4*s.pause, longest)
	if ear, _ := s.ear.now(); ear != nil {
		ear.schedule(time.Now().Add(s.pause))
	}
	s.mu.Unlock()
	queues, err := s.look(ctx, keys...)
	if err != nil {
		return err
	}
	s.heard.Store(int64(sent))
	for _, e := range all {
		e.seen(queues[e.key])
	}
	s.dropSpares(false)
	return nil
}

// talk asks on the ear, if there is one.
func (s *advisory) talk(ctx context.Context, c call) (rows [][][]byte, err error) {
	err = s.ear.talk(ctx, func(l *line) (err error) {
		rows, err = l.ask(l.bound, c)
		return err
	})
	return rows, err
}

// look asks who has or wants the locks of these keys, the holder first.
func (s *advisory) look(ctx context.Context, keys ...string) (map[string][]place, error) {
	rows, err := s.talk(ctx, call{"look", "{" + strings.Join(keys, ",") + "}"})
	return places(rows), err
}

// list reads the lock table of the server once. Those that wait have no token yet. In a grace period, all that the server has granted
// was granted since that began.
func (s *advisory) list(ctx context.Context, key string) queue.Answer {
	queues, err := s.look(ctx, key)
	if err != nil {
		return s.failed(err)
	}
	a := queue.Answer{Outcome: queue.Done}
	for _, p := range queues[key] {
		p.InGracePeriod = s.tier.GracePeriod() != nil && p.granted && p.ours
		a.Queue = append(a.Queue, p.Contender)
	}
	return a
}

// ask notifies those that have the lock. A notification can be lost, so it is sent again until each shows in its name that it knows,
// or has given the lock up; after a moment, in the background.
func (s *advisory) ask(ctx context.Context, key string) queue.Answer {
	unaware, err := s.askOnce(ctx, key)
	if err != nil {
		return s.failed(err)
	}
	moment, cancel := context.WithTimeout(ctx, s.options.TTL/8)
	defer cancel()
	second.Do(moment, s.ear.Go, func() (any, error) {
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.options.TTL) // after which whoever had the lock and is not heard from has lost it
		defer cancel()
		for pace := retry.New(); (unaware || err != nil) && retry.Pause(ctx, pace.NextBackOff()) == nil; {
			unaware, err = s.askOnce(ctx, key)
		}
		return nil, nil
	}, func(cause error) error { return cause })
	return queue.Answer{Outcome: queue.Done}
}

// askOnce asks those that do not know it yet, and reports whether there was one.
func (s *advisory) askOnce(ctx context.Context, key string) (unaware bool, err error) {
	queues, err := s.look(ctx, key)
	for _, p := range queues[key] {
		switch {
		case !p.granted || p.Asked:
			continue
		case !p.ours:
			return false, fmt.Errorf("server process %s belongs to another program, which does not read requests: %w", p.ID, errors.ErrUnsupported)
		}
		unaware = true
		if _, err := s.talk(ctx, call{"ask", p.ID + " " + strconv.FormatInt(p.Token, 10)}); err != nil {
			return false, err
		}
	}
	return unaware, err
}

// Close gives all locks up, and closes all connections.
func (s *advisory) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), s.tier.Patience())
	defer cancel()
	for e := range s.all {
		s.ear.Go(func() {
			s.leave(ctx, queue.Command{Ref: queue.Ref{ID: e.id}})
			e.session.drop(second.ErrClosed)
		})
	}
	s.dropSpares(true)
	s.ear.close() // and waits for all
	s.hangUp()
}

// session returns a connection that nobody uses, the one that was used last, so that the others grow old; or a new one.
func (s *advisory) session(ctx context.Context) (*line, error) {
	s.dropSpares(false)
	s.mu.Lock()
	if n := len(s.spares); n > 0 {
		defer s.mu.Unlock()
		x := s.spares[n-1]
		s.spares = s.spares[:n-1]
		return x, nil
	}
	s.mu.Unlock()
	return s.dial(ctx)
}

// keep keeps a connection whose session has neither lock nor contender for others.
func (s *advisory) keep(x *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.spare = time.Now()
	s.spares = append(s.spares, x)
}

// dropSpares closes the connections that nobody has used for so long that the server may have ended their sessions, or all.
func (s *advisory) dropSpares(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = slices.DeleteFunc(s.spares, func(x *line) bool {
		drop := all || time.Since(x.spare) >= s.options.TTL/2
		if drop {
			s.ear.Go(x.close)
		}
		return drop
	})
}

// runtime are the settings of a session. The server ends it when it has been idle for the TTL.
func runtime(ttl time.Duration) map[string]string {
	ms, seconds := milliseconds(ttl), strconv.FormatInt(int64((ttl+time.Second-1)/time.Second), 10)
	return map[string]string{
		"application_name":                    "tierlock",
		"idle_session_timeout":                ms,
		"idle_in_transaction_session_timeout": ms,
		"statement_timeout":                   "0", // a wait is one
		"lock_timeout":                        "0",
		"default_transaction_read_only":       "off",
		// A peer that has fallen silent is noticed, but not before its lease is over.
		"tcp_user_timeout":        ms,
		"tcp_keepalives_idle":     seconds,
		"tcp_keepalives_interval": "1",
		"tcp_keepalives_count":    "3",
	}
}

// dial makes a connection.
func (s *advisory) dial(ctx context.Context) (*line, error) {
	l, err := dial(ctx, s.config, s.tier.Patience(), s.told)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Message, "unsupported startup parameter") { // says PgBouncer
		err = fmt.Errorf("%w: %w", errNoLease, err)
	}
	return l, err
}

// prepare has a session that serves know our statements, and asks how long the grace period lasts.
func (s *advisory) prepare(ctx context.Context, conn *pgx.Conn) error {
	if err := versions.check(ctx, conn); err != nil {
		return err
	}
	if err := s.options.first.declare(ctx, conn, s.options.TTL.Milliseconds()); err != nil {
		return err
	}
	// A session that waits is not idle: only this tells that its client is gone, on systems that can.
	conn.PgConn().Exec(ctx, "SET client_connection_check_interval = "+milliseconds(min(s.options.TTL/8, time.Second))).Close()
	var setup []string
	for name, statement := range statements {
		setup = append(setup, fmt.Sprintf("PREPARE %q AS %s", name, statement))
	}
	if err := conn.PgConn().Exec(ctx, strings.Join(setup, ";")).Close(); err != nil {
		return err
	}
	var calm time.Duration
	var granted string
	const both = "SELECT tierlock.quiet_ms('advisory', $1), setting FROM pg_settings WHERE name = 'idle_session_timeout'"
	sent := time.Now()
	err := conn.QueryRow(ctx, both, pgx.QueryExecModeExec, s.options.TTL.Milliseconds()).Scan(&calm, &granted)
	if want := milliseconds(s.options.TTL); err == nil && granted != want {
		err = fmt.Errorf("%w: it is %s ms instead of %s", errNoLease, granted, want)
	}
	if err == nil {
		s.tier.InGracePeriod(calm*time.Millisecond, sent, "the server was started or promoted, and first used less than a lease ago")
	}
	return err
}

// errNoLease says that the server would not end an idle session in time.
var errNoLease = errors.New("the session does not have the idle_session_timeout that was asked for: " +
	"a pooler in between, such as PgBouncer, does not pass it on, or a hook of the pool has changed it; connect to the server itself")

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// The statements, by the names under which each session has them prepared. $1 is a key; $2 is what pg_stat_activity shows of a session,
// behind its token; $3 says whether the lock is shared.
//
// A token is drawn once the lock is granted, so that it is greater than all before, and once no transaction under the lock before that has
// still to commit. It is in the name of the session only while that has the lock: the guard of a transaction looks at both, one after the
// other.
var statements = map[string]string{
	"try":       taking("pg_try_advisory_lock", "WHERE granted"),
	"lock":      taking("pg_advisory_lock", ""),
	"leave":     "SELECT set_config('application_name', $2, false), " + inMode("pg_advisory_unlock"),
	"leave-all": "SELECT pg_advisory_unlock_all()",

	// Who holds a lock alone and asks for a share of it is granted that before all who wait.
	"share": "WITH l AS MATERIALIZED (SELECT pg_advisory_lock_shared($1)) SELECT pg_advisory_unlock($1) FROM l",

	// Nobody needs a notification that a server has lost in a crash: do not wait for the disk.
	"announce": "SELECT set_config('synchronous_commit', 'off', true), set_config('application_name', $2, false), " +
		"pg_notify('tierlock', 'waits ' || $1)",
	"ask": "SELECT set_config('synchronous_commit', 'off', true), pg_notify('tierlock', 'asked ' || $1)",

	"name": "SELECT set_config('application_name', $1, false)",

	// Those that have the locks of these keys, in the order of their tokens, and then those that wait, first the one that waits for
	// transactions alone. A session may have a lock in both modes for a moment.
	"look": `SELECT k.key, l.pid, bool_and(l.mode = 'ShareLock') FILTER (WHERE l.objsubid = 1), bool_and(l.granted) AS has,
			coalesce(a.application_name, '')
		FROM pg_locks l CROSS JOIN LATERAL (SELECT (l.classid::bigint << 32) | l.objid::bigint AS key) k
		LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND k.key = ANY ($1::bigint[]) GROUP BY k.key, l.pid, a.application_name HAVING bool_or(l.objsubid = 1)
		ORDER BY has DESC, bool_or(l.granted) DESC,
			CASE WHEN bool_and(l.granted) THEN substring(a.application_name FROM '^tierlock (\d+) ')::numeric END,
			min(l.waitstart), l.pid`,
}

func taking(function, granted string) string {
	return fmt.Sprintf(`WITH l AS MATERIALIZED (SELECT %s AS granted),
		g AS MATERIALIZED (SELECT pg_advisory_xact_lock(($1 >> 32)::int, ($1 << 32 >> 32)::int) FROM l %s),
		t AS MATERIALIZED (SELECT nextval('tierlock.token') AS token FROM g)
		SELECT token, set_config('application_name', 'tierlock ' || token || $2, false) FROM t`, inMode(function), granted)
}

func inMode(function string) string {
	return fmt.Sprintf("CASE WHEN $3 THEN %[1]s_shared($1) ELSE %[1]s($1) END", function)
}

// A place is one session in the queue for a lock, as a contender whose ID is the pid of the server's process.
type place struct {
	second.Contender
	granted bool
	ours    bool // of this package
}

// places takes the rows of a look.
func places(rows [][][]byte) map[string][]place {
	queues := make(map[string][]place)
	for _, row := range rows {
		key := string(row[0])
		queues[key] = append(queues[key], placeOf(string(row[1]), string(row[2]) == "t", string(row[3]) == "t", string(row[4])))
	}
	return queues
}

// about is what a contender that queues now says of itself. The name of its session's application is "tierlock", its token, 1 if it was
// asked for the lock, and that. The server cuts it to 63 bytes, which leaves some 20 for host and label.
func (s *advisory) about(linger time.Duration) string { return s.self.Now(linger).Line(36) }

// placeOf is a place as the name of its application tells. One that waits has no token yet.
func placeOf(pid string, reads, granted bool, name string) place {
	p := place{second.Contender{ID: pid, Shared: reads}, granted, strings.HasPrefix(name, "tierlock ")}
	fields := strings.SplitN(name, " ", 4)
	if !p.ours || len(fields) < 4 {
		return p
	}
	if granted {
		p.Token, _ = strconv.ParseInt(fields[1], 10, 64)
		p.Asked = fields[2] == "1"
	}
	p.ReadLine(fields[3], 36)
	return p
}
