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

// NewAdvisory returns a registry of session advisory locks. A transfer costs one round trip and writes to no table. Use advisory locks for
// a few busy locks with short waits; use [New] for leaders and for many paths. NewAdvisory needs the schema of [Migrate], and PostgreSQL 14
// or later. NewAdvisory opens its own connections with the settings of pool; [Tx] uses the connections of pool itself. NewAdvisory takes
// the same options as New, blocks in the same way, and returns the same errors.
//
// Caution: advisory locks promise less than the locks of New:
//
//   - If the server ends a session, the next process gets its lock at once. Causes are pg_terminate_backend, and a proxy or a firewall
//     that breaks connections. The former holder learns of the loss when its own end of the connection breaks, or with its next heartbeat,
//     up to a quarter of the TTL later.
//   - After a failover, holders on a former primary that keeps running keep their locks. The promoted server grants the same locks when
//     its grace period is over. Fence the former primary (Patroni's watchdog, STONITH).
//   - All locks are lost when the server restarts or fails over, and when one of its processes crashes.
//   - Acquisitions through PgBouncer fail at once. Connect to the server itself.
//   - A session that waits for a lock holds a snapshot. The snapshot keeps vacuum from removing dead rows, and CREATE INDEX CONCURRENTLY
//     waits for the end of the snapshot. Never run CREATE INDEX CONCURRENTLY while you hold an advisory lock for which other processes
//     wait, because this deadlocks.
//   - There are no semaphores. The methods of a [tier.Semaphore] return an error that wraps [errors.ErrUnsupported].
//
// # Connections
//
// A process has one connection for notifications and one for each lock that it holds or waits for. Idle connections are kept for half a
// TTL. Each connection occupies a process of the server (max_connections). If an acquisition gets no connection, it tries again.
//
// # The lease
//
// If a session is idle for the TTL, the server ends the session and so frees its lock (idle_session_timeout). The lease starts when the
// process sends a statement that the server answers. The lease lasts for the TTL less the margin. If the connection breaks, the lock is
// lost at once. If the server does not answer, the lock is held until the lease ends. If the client of a waiter dies, a server on Linux
// removes the waiter within a second (client_connection_check_interval). Other servers remove it by TCP keepalives after the TTL.
//
// A server that was started or promoted has no advisory locks. Therefore it grants no lock during a grace period. The grace period starts
// when the first process connects after the start or the promotion, and lasts for the longest TTL ever used in the database. A
// [*tier.GracePeriodError] says when it ends. If the recorded longest TTL is too long, the package documentation says how to correct it.
//
// # Differences from New
//
// The key of a lock is the first eight bytes of the SHA-256 of "tierlock:" and the path, as a bigint; pg_locks shows it. If two paths have
// equal keys, their locks exclude each other. If another program takes this key with pg_advisory_lock, its lock and this lock exclude each
// other. [Tx] uses a second lock with the same key as two ints.
//
// The token is created when the lock is granted, so Contenders shows no token for waiters. Contenders reads host and label from
// application_name, which the server cuts to 63 bytes of ASCII. The ID that Contenders shows is the process ID of the server process, for
// use in pg_terminate_backend.
//
// Revoke waits up to an eighth of the TTL for the holders to confirm. A holder that is not connected at that time may get the request of
// Revoke up to a TTL later, or never. For holders of other programs the error wraps [errors.ErrUnsupported].
//
// [tier.Mutex.Break] removes nothing, and returns an error that wraps [errors.ErrUnsupported]. To take a lock from its holder, call
// pg_terminate_backend with the ID that Contenders shows.
func NewAdvisory(ctx context.Context, pool *pgxpool.Pool, opts ...tier.RegistryOption) (*tier.Registry, error) {
	return front(ctx, pool, opts, openAdvisory)
}

// The type advisory is a store that uses PostgreSQL's session advisory locks.
//
// Each contender has its own server session. In this session it waits for the advisory lock of its path, and holds it. The server ends a
// session that was idle for the TTL, so each contender has its own lease. When the connection is closed, the server undoes all effects of
// the contender's commands.
//
// Unused sessions are kept for a while, so that other contenders can use them. The connection of a waiter is busy until the lock is
// granted. Therefore the store has one more connection, which reads the queues, and receives two kinds of notifications: a process waits,
// or a process asks for the lock. On the connection of a holder, the store renews the lease with requests, and notices when the connection
// breaks.
type advisory struct {
	base
	config *pgxpool.Config // of the connections that the store opens

	entries sync.Map     // by ID; only this process knows that ID, and other processes see the PID of the server process
	heard   atomic.Int64 // when the newest request on the notification connection that was answered was sent, on the tier's clock

	mu     sync.Mutex    // guards the fields below; never held across a request
	pause  time.Duration // the time between two reads of the queues, which grows
	spares []*serverConn
}

// openAdvisory returns a tier with a new store, and starts the tier, which connects to the server.
func openAdvisory(pool *pgxpool.Pool, o options) (*queue.Tier, error) {
	o.Margin = cmp.Or(o.Margin, o.TTL/3)
	wires, hangUp := context.WithCancel(context.Background())
	s := &advisory{base: base{pool: pool, options: o, self: second.Describe(o.Label), hangUp: hangUp}, pause: o.TTL}
	s.self.Host, _, _ = strings.Cut(s.self.Host, ".")
	ours := runtime(o.TTL)               // imposed again, because a hook of the pool may have changed these settings
	delete(ours, "idle_session_timeout") // not imposed: prepare checks that it has arrived at the start, to detect poolers that drop settings
	maps.Copy(ours, forAll)
	s.config = configLike(wires, pool, ours, s.prepare)
	maps.Copy(s.config.ConnConfig.RuntimeParams, runtime(o.TTL))
	due := func(*serverConn) error { return s.lookAround(context.Background()) }
	s.notifyConn = notifyConn{at: addresses(pool), dial: s.hears, due: due, Tasks: second.NewTasks(), lost: func() {
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

// advisoryKey returns the key of the advisory lock for a path. The key is the first eight bytes of the SHA-256 of "tierlock:" and the path.
// If two paths have the same key, their locks exclude each other. That does no other harm.
func advisoryKey(path string) string {
	sum := sha256.Sum256([]byte("tierlock:" + path))
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:8])), 10)
}

var errUnseen = errors.New("the server no longer knows this session's lock or place in the queue")

// Do executes a command. An Enter takes a second round trip if the contender has to wait. If the server does not answer, Do closes the
// connection, and the server then undoes the command. Therefore no outcome is Unknown, and Audit, Drop and Goodbye have nothing to do.
func (s *advisory) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	defer func() {
		if a.Outcome != queue.Denied { // a command that was Denied shows nothing about the connection
			_, a.Away = s.notifyConn.now()
		}
	}()
	switch c.Op {
	case queue.Open, queue.Beat:
		return s.beat(ctx, c.Op)
	case queue.Enter, queue.Try:
		return s.enter(ctx, c)
	case queue.Leave:
		return s.leave(ctx, c)
	case queue.Look: // reads the queue now, and again soon, because a waiter may enter after the first read
		s.pollSoon(0)
		return s.tend(ctx, c, (*entry).beat)
	case queue.Share:
		return s.tend(ctx, c, (*entry).share)
	case queue.List:
		return s.list(ctx, advisoryKey(c.Path))
	case queue.Ask:
		return s.ask(ctx, advisoryKey(c.Path))
	case queue.Save, queue.Load: // the path gets a suffix, because a lock in tables may have the same path, but has its own value
		a, err := saveOrLoad(ctx, s.pool, c, c.Path+"\nadvisory", s.proof(c.Ref))
		if err != nil {
			a.Outcome, a.Err = classify(err), err
		}
		return a
	case queue.Audit, queue.Drop, queue.Goodbye: // the server removes a contender when its connection ends
		return queue.Answer{Outcome: queue.Done}
	}
	return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
}

// failed returns the answer to a command that ended with err. The command was not executed, or the server has undone it.
func (s *advisory) failed(err error) queue.Answer {
	if classify(err) == queue.Denied || errors.Is(err, errors.ErrUnsupported) {
		return queue.Answer{Outcome: queue.Denied, Err: err}
	}
	return queue.Answer{Outcome: queue.Failed, Err: err}
}

// beat sends a request on the notification connection, and opens that if there is none. The tier's session lasts as long as the server
// answers these requests. After a TTL without an answer, the server has ended all sessions of this process.
func (s *advisory) beat(ctx context.Context, op queue.Op) queue.Answer {
	heard := time.Duration(s.heard.Load())
	_, err := s.notifyConn.open(ctx)
	if err == nil {
		err = s.lookAround(ctx)
	}
	switch {
	case op == queue.Beat && (classify(err) == queue.Denied || err == nil && s.tier.Now()-heard > s.options.TTL):
		return queue.Answer{Outcome: queue.Expired, Err: cmp.Or(err, errors.New("the server has not answered for a whole TTL"))}
	case err != nil:
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, Name: s.Name(""), TTL: s.options.TTL}
}

// hears opens a connection that receives the notifications.
func (s *advisory) hears(ctx context.Context) (*serverConn, error) {
	l, err := s.dial(ctx)
	if err == nil {
		if _, err = l.conn.Exec(ctx, "LISTEN tierlock"); err != nil {
			l.drop(err)
		}
	}
	return l, err
}

// notified is called for each notification. A notification says that another process waits for a lock, or that it asks a holder to give the
// lock up. Notifications may be late or lost.
func (s *advisory) notified(n *pgconn.Notification) {
	verb, rest, _ := strings.Cut(n.Payload, " ")
	who, what, _ := strings.Cut(rest, " ")
	for e := range s.all {
		switch {
		case verb == "waits" && e.key == who && e.session.pid != fmt.Sprint(n.PID) && e.now().Token != 0 && !e.over.Load():
			s.pollSoon(0)
		case verb == "asked" && e.session.pid == who:
			e.revoke(what)
		}
	}
}

// nearest is the shortest time between two reads of the queues.
const nearest = 2 * time.Millisecond

// pollSoon makes the notification connection read the queues after the given time, and then again at growing intervals. The waiter that
// the caller expects may not be in the queue at the first read.
func (s *advisory) pollSoon(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = min(s.pause, max(after, nearest))
	s.notifyConn.hurry(time.Now().Add(after))
}

// lookAround reads the queues of all contenders of this process. If there is no contender, the request only shows that the server answers.
// Each heartbeat calls lookAround, and therefore also checks the holders.
func (s *advisory) lookAround(ctx context.Context) error {
	var all []*entry
	var keys []string
	longest := s.options.TTL // without contenders, the next heartbeat comes before the next read
	for e := range s.all {
		all, keys = append(all, e), append(keys, e.key)
		if e.now().Token == 0 {
			longest = s.options.TTL / 12
		}
	}
	sent := s.tier.Now()
	s.mu.Lock()
	s.pause = min(4*s.pause, longest)
	if l, _ := s.notifyConn.now(); l != nil {
		l.schedule(time.Now().Add(s.pause))
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

// talk sends a statement on the notification connection, if there is one.
func (s *advisory) talk(ctx context.Context, c call) (rows [][][]byte, err error) {
	err = s.notifyConn.talk(ctx, func(l *serverConn) (err error) {
		rows, err = l.ask(l.bound, c)
		return err
	})
	return rows, err
}

// look reads, for each of these keys, the sessions that hold the lock or wait for it. The holders come first.
func (s *advisory) look(ctx context.Context, keys ...string) (map[string][]place, error) {
	rows, err := s.talk(ctx, call{"look", "{" + strings.Join(keys, ",") + "}"})
	return places(rows), err
}

// list reads the lock table of the server once. Waiters have no token yet. If there is a grace period, it began before the server granted
// any of its present advisory locks. Every contender to which the server has granted the lock therefore waits for the end of the period.
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

// ask asks the holders by a notification to give the lock up. The notification can be lost, so a goroutine repeats it in the background. It
// stops when each holder has released the lock, or shows in the name of its session that it knows of the request.
func (s *advisory) ask(ctx context.Context, key string) queue.Answer {
	unaware, err := s.askOnce(ctx, key)
	if err != nil {
		return s.failed(err)
	}
	moment, cancel := context.WithTimeout(ctx, s.options.TTL/8)
	defer cancel()
	second.Do(moment, s.notifyConn.Go, func() (any, error) {
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.options.TTL) // by then a holder that does not respond has lost the lock
		defer cancel()
		for pace := retry.New(); (unaware || err != nil) && retry.Pause(ctx, pace.NextBackOff()) == nil; {
			unaware, err = s.askOnce(ctx, key)
		}
		return nil, nil
	}, func(cause error) error { return cause })
	return queue.Answer{Outcome: queue.Done}
}

// askOnce notifies those holders that do not know of the request yet. It returns true if there were any.
func (s *advisory) askOnce(ctx context.Context, key string) (unaware bool, err error) {
	queues, err := s.look(ctx, key)
	for _, p := range queues[key] {
		switch {
		case !p.granted || p.Asked:
			continue
		case !p.ours:
			return false, fmt.Errorf("server process %s belongs to another program, which ignores requests to release the lock: %w",
				p.ID, errors.ErrUnsupported)
		}
		unaware = true
		if _, err := s.talk(ctx, call{"ask", p.ID + " " + strconv.FormatInt(p.Token, 10)}); err != nil {
			return false, err
		}
	}
	return unaware, err
}

// Close releases all locks and closes all connections.
func (s *advisory) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), s.tier.Patience())
	defer cancel()
	for e := range s.all {
		s.notifyConn.Go(func() {
			s.leave(ctx, queue.Command{Ref: queue.Ref{ID: e.id}})
			e.session.drop(second.ErrClosed)
		})
	}
	s.dropSpares(true)
	s.notifyConn.close() // also waits for the goroutines that were started above
	s.hangUp()
}

// session returns an unused connection, or a new one. Of the unused connections it takes the one that was used last, so that the others
// grow old and are closed.
func (s *advisory) session(ctx context.Context) (*serverConn, error) {
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

// keep stores a connection so that other contenders can use it. Its session neither holds a lock nor waits for one.
func (s *advisory) keep(x *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.spare = time.Now()
	s.spares = append(s.spares, x)
}

// dropSpares closes unused connections. If all is false, it closes only those whose sessions the server may end soon, because they have
// been idle for too long.
func (s *advisory) dropSpares(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = slices.DeleteFunc(s.spares, func(x *serverConn) bool {
		drop := all || time.Since(x.spare) >= s.options.TTL/2
		if drop {
			s.notifyConn.Go(x.close)
		}
		return drop
	})
}

// runtime returns the settings of a session. They make the server end a session that has been idle for the TTL.
func runtime(ttl time.Duration) map[string]string {
	ms, seconds := milliseconds(ttl), strconv.FormatInt(int64((ttl+time.Second-1)/time.Second), 10)
	return map[string]string{
		"application_name":                    "tierlock",
		"idle_session_timeout":                ms,
		"idle_in_transaction_session_timeout": ms,
		"statement_timeout":                   "0", // a wait for a lock is one long statement
		"lock_timeout":                        "0",
		"default_transaction_read_only":       "off",
		// With these, the server detects a client that does not respond, but not before the client's lease has ended.
		"tcp_user_timeout":        ms,
		"tcp_keepalives_idle":     seconds,
		"tcp_keepalives_interval": "1",
		"tcp_keepalives_count":    "3",
	}
}

// dial opens a connection whose notifications go to the method notified.
func (s *advisory) dial(ctx context.Context) (*serverConn, error) {
	l, err := dial(ctx, s.config, s.tier.Patience(), s.notified)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Message, "unsupported startup parameter") { // a message of PgBouncer
		err = fmt.Errorf("%w: %w", errNoLease, err)
	}
	return l, err
}

// prepare is called for each new session. It checks the schema and the idle_session_timeout, prepares the statements, and reads how long
// the grace period lasts.
func (s *advisory) prepare(ctx context.Context, conn *pgx.Conn) error {
	if err := versions.check(ctx, conn); err != nil {
		return err
	}
	if err := s.options.first.declare(ctx, conn, s.options.TTL.Milliseconds()); err != nil {
		return err
	}
	// A session that waits for a lock is not idle. Only with this setting does the server notice that the client of such a session has
	// died. Not all systems support it, so an error is ignored.
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
		err = fmt.Errorf("%w: the setting is %s ms instead of %s", errNoLease, granted, want)
	}
	if err == nil {
		s.tier.InGracePeriod(calm*time.Millisecond, sent, "the server was started or promoted, and processes have used it for less than a lease")
	}
	return err
}

// errNoLease means that the server would not end an idle session in time.
var errNoLease = errors.New("the session does not have the idle_session_timeout that the package has set: " +
	"a pooler in between, such as PgBouncer, does not pass the setting on, or a hook of the pool has changed it; " +
	"connect to the server directly")

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// The map statements has the prepared statements of each session, by name. In most of them, $1 is a key, $2 is a part of the session name
// in pg_stat_activity, and $3 is true for a shared lock.
//
// A token is drawn after the lock is granted, so it is greater than the tokens of all earlier grants. It is also drawn after the last
// transaction under the previous hold has committed. The name of a session has the token only while the session holds the lock. The guard
// of a transaction checks both the lock and the name.
var statements = map[string]string{
	"try":       taking("pg_try_advisory_lock", "WHERE granted"),
	"lock":      taking("pg_advisory_lock", ""),
	"leave":     "SELECT set_config('application_name', $2, false), " + inMode("pg_advisory_unlock"),
	"leave-all": "SELECT pg_advisory_unlock_all()",

	// The server grants the shared lock to the exclusive holder at once, even if other sessions wait.
	"share": "WITH l AS MATERIALIZED (SELECT pg_advisory_lock_shared($1)) SELECT pg_advisory_unlock($1) FROM l",

	// The commit need not wait for the disk. After a crash of the server, nothing depends on the notification any more.
	"announce": "SELECT set_config('synchronous_commit', 'off', true), set_config('application_name', $2, false), " +
		"pg_notify('tierlock', 'waits ' || $1)",
	"ask": "SELECT set_config('synchronous_commit', 'off', true), pg_notify('tierlock', 'asked ' || $1)",

	"name": "SELECT set_config('application_name', $1, false)",

	// This statement lists the holders of these keys in the order of their tokens, and then the waiters. A session that was granted the
	// lock, but still waits for transactions of the last holder, counts as the first waiter. During a share, a session has the lock in both
	// modes for a moment.
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

// A place is a session in the queue for a lock. Its ID is the process ID of the server process.
type place struct {
	second.Contender
	granted bool
	ours    bool // a process that uses this package has opened the session
}

// places groups the rows of the look statement by key.
func places(rows [][][]byte) map[string][]place {
	queues := make(map[string][]place)
	for _, row := range rows {
		key := string(row[0])
		queues[key] = append(queues[key], placeOf(string(row[1]), string(row[2]) == "t", string(row[3]) == "t", string(row[4])))
	}
	return queues
}

// about returns the description of a contender that enters now. The application name of its session has four parts: "tierlock", the token,
// a 1 if a process has asked for the lock and otherwise a 0, and this description. The server cuts the name to 63 bytes. That leaves about
// 20 bytes for host and label.
func (s *advisory) about(linger time.Duration) string { return s.self.Now(linger).Line(36) }

// placeOf returns the place of a session, and parses its application name for that. A waiter has no token yet.
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
