package pglock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store is the connection of this process to a database with locks in tables. It has several connections. The lease depends only on the
// notification connection. While no command uses that connection, it receives notifications, and reads the queues of followers. Requests
// that may have to wait for other transactions use the connections of a small pool.
type store struct {
	base
	requests *pgxpool.Pool
	away     atomic.Pointer[error] // why the last request got no answer; nil if it was answered

	mu        sync.Mutex          // guards the fields below
	followers map[string]follower // by ID
	unread    map[string]bool     // the paths of queues that have to be read
}

type follower struct {
	path string
	last queue.View // the last view that was reported
}

// open returns a tier with a new store, and starts the tier, which requests a session.
func open(pool *pgxpool.Pool, o options) (*queue.Tier, error) {
	wires, hangUp := context.WithCancel(context.Background())
	s := &store{followers: make(map[string]follower), unread: make(map[string]bool)}
	s.base = base{pool: pool, options: o, self: second.Describe(o.Label), hangUp: hangUp}
	var err error
	if s.requests, err = pgxpool.NewWithConfig(wires, requestsLike(wires, pool, o.TTL)); err != nil {
		hangUp()
		return nil, err
	}
	dial := func(ctx context.Context) (*serverConn, error) {
		return dial(ctx, s.requests.Config(), s.tier.Patience(), s.pass)
	}
	s.notifyConn = notifyConn{at: addresses(pool), dial: dial, due: s.catchUp, Tasks: second.NewTasks(), lost: func() {
		s.requests.Reset() // the connections for requests may be broken, too
		s.tier.Renew()
	}}
	s.tier = queue.New(queue.Config{
		Package: "pglock", Store: "PostgreSQL", Settings: o.Settings, Paths: second.Components,
		Lost: func(r queue.Ref) string { return "contender " + r.ID + " was deleted" },
	}, s)
	s.tier.Start()
	return s.tier, nil
}

// Close closes the connections of the store. It takes at most a second.
func (s *store) Close() {
	defer time.AfterFunc(time.Second, s.hangUp).Stop()
	s.notifyConn.close()
	s.requests.Close()
	s.hangUp()
}

// at(r) returns r with the path of its queue. The queue for permits has a separate path, which no lock can have.
func at(r queue.Ref) queue.Ref {
	if r.Permits > 0 {
		r.Path += permits
	}
	return r
}

const permits = "\npermits"

func (s *store) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	var err error
	c.Ref = at(c.Ref)
	switch c.Op {
	case queue.Open, queue.Beat, queue.Audit, queue.Drop, queue.Look:
		a, err = s.keep(ctx, c)
	case queue.Enter, queue.Try:
		a, err = s.onConnection(ctx, c, s.enter)
	default:
		a, err = s.onConnection(ctx, c, s.request)
	}
	if err != nil {
		a.Outcome, a.Err = classify(err), err
	}
	switch known := s.away.Load(); {
	case errors.Is(err, errBusy):
		if known != nil {
			a.Away = *known
		}
	case answered(err):
		s.away.Store(nil)
	default:
		if _, a.Away = s.notifyConn.now(); a.Away == nil {
			a.Away = s.notifyConn.away(err)
		}
		s.away.Store(&a.Away)
		if !errors.Is(ctx.Err(), context.Canceled) { // a cancelled request says nothing about the server
			s.requests.Reset() // the other connections may be broken, too
		}
	}
	return a
}

// errBusy means that no connection for requests was free within the time limit of a request. Other requests used them, or the pool was
// still opening one. It does not mean that the server cannot be reached. Only a renewal shows that.
var errBusy = errors.New("all connections for requests are busy")

// onConnection executes a command on one of the connections for requests.
func (s *store) onConnection(ctx context.Context, c queue.Command,
	do func(context.Context, *pgxpool.Conn, queue.Command) (queue.Answer, error),
) (queue.Answer, error) {
	conn, err := s.requests.Acquire(ctx)
	if err != nil {
		if now := s.requests.Stat(); ctx.Err() != nil && now.AcquiredConns()+now.ConstructingConns() > 0 {
			err = fmt.Errorf("%w: %w", errBusy, err)
		}
		return queue.Answer{}, err
	}
	defer conn.Release()
	return do(ctx, conn, c)
}

func (s *store) request(ctx context.Context, conn *pgxpool.Conn, c queue.Command) (a queue.Answer, err error) {
	a.Outcome = queue.Done
	var present, all bool
	switch c.Op {
	case queue.Leave:
		err = conn.QueryRow(ctx, leaveSQL, c.Path, c.ID).Scan(&present)
		a.Removed = removal[present]
	case queue.Share, queue.Weigh:
		var has *bool // nil if the contender is not in the queue
		var quiet int64
		shares, sent := c.Op == queue.Share, time.Now()
		err = conn.QueryRow(ctx, changeSQL, c.Path, c.ID, shares, c.Weight).Scan(&has, &quiet)
		s.noteGracePeriod(quiet, sent) // before grant, which has to know of a grace period: another server may have sent this answer
		a.View = s.grant(queue.View{ID: c.ID, Known: has != nil, Token: c.Token, At: s.now(), Reads: shares}, has != nil && *has)
		if shares { // a reader does not block the same contenders as a writer
			s.readSoon(c.Path)
		}
	case queue.List:
		a.Queue, err = s.list(ctx, conn, c.Path)
	case queue.Ask:
		_, err = conn.Exec(ctx, "SELECT tierlock.ask($1)", c.Path)
	case queue.Save, queue.Load:
		return saveOrLoad(ctx, conn, c, c.Path, s.proof(c.Ref))
	case queue.Resize:
		_, err = conn.Exec(ctx, "SELECT tierlock.resize($1, $2)", c.Path, c.Permits)
	case queue.Goodbye:
		for !all && err == nil {
			err = conn.QueryRow(ctx, "SELECT tierlock.finish($1)", c.Session).Scan(&all)
		}
	default:
		return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}, nil
	}
	return a, err
}

var removal = map[bool]queue.Removal{true: queue.Removed, false: queue.Missing}

// proof returns the SQL argument with which tierlock.guard checks that the contender has the lock.
func (s *store) proof(r queue.Ref) string { return "'" + r.ID + "'" }

const leaveSQL = "SELECT tierlock.leave($1, $2)"

const changeSQL = "SELECT tierlock.change($1, $2, $3, $4), tierlock.quiet_ms('tables')"

const enterSQL = `SELECT alive, number, coalesce(first, false), coalesce(removed, false), quiet
	FROM tierlock.enter($1, $2, $3, $4, $5, $6, $7, $8, $9)`

func (s *store) enter(ctx context.Context, conn *pgxpool.Conn, c queue.Command) (a queue.Answer, err error) {
	var alive, first, removed bool
	var number *int64 // nil if the contender is not in the queue
	var quiet int64
	sent := time.Now()
	err = conn.QueryRow(ctx, enterSQL, c.Path, c.ID, c.Session, c.Reads, c.Linger.Milliseconds(), c.Old.ID, c.Op == queue.Try, c.Weight,
		c.Permits).Scan(&alive, &number, &first, &removed, &quiet)
	switch {
	case refusal(err) == "TL002":
		a.Permits = permitsIn(err)
		return a, fmt.Errorf("%w: %w", second.ErrTooManyPermits, err)
	case err != nil:
		return a, err
	}
	s.noteGracePeriod(quiet, sent)
	switch {
	case !alive:
		return a, errOver
	case number == nil:
		return queue.Answer{Outcome: queue.Locked, InGracePeriod: quiet > 0}, nil
	}
	v := queue.View{ID: c.ID, Known: true, Token: *number, At: s.now(), Reads: c.Reads, Of: c.Permits}
	return queue.Answer{Outcome: queue.Done, Removed: removal[removed], View: s.grant(v, first)}, nil
}

// quietSQL returns how many milliseconds of the grace period are left, and when it began. It writes nothing. If the last start or promotion
// of the server is not recorded yet, the grace period counts as just begun.
const quietSQL = `SELECT greatest(0, least(longest_ms,
	ceil(1000 * extract(epoch FROM begun + longest_ms * interval '1 ms' - clock_timestamp()))))::bigint, begun
	FROM tierlock.grace_period, LATERAL (SELECT CASE WHEN pg_is_in_recovery() THEN 'epoch' WHEN life = tierlock.life('tables') THEN since
	ELSE clock_timestamp() END AS begun) b WHERE locks = 'tables'`

// list reads the queue in one snapshot. In a grace period, a contender at the head of the queue counts as the holder only if it entered
// before the period began.
func (s *store) list(ctx context.Context, q querier, path string) ([]second.Contender, error) {
	var quiet int64
	var begun time.Time
	sent := time.Now()
	if err := q.QueryRow(ctx, quietSQL).Scan(&quiet, &begun); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	s.noteGracePeriod(quiet, sent)
	queues, err := read(ctx, q, path)
	list := queues[path]
	queue.Waiting(list)
	if quiet > 0 {
		second.InGracePeriod(list, func(i int) bool { return !list[i].Since.After(begun) })
	}
	return list, err
}

// noteGracePeriod records an answer of the server that it grants nothing for the next ms milliseconds. sent is when the request was sent.
func (s *store) noteGracePeriod(ms int64, sent time.Time) {
	s.tier.InGracePeriod(time.Duration(ms)*time.Millisecond, sent,
		"the server was started or promoted, and processes have used it for less than a lease")
}

// grant sets in a view whether the contender has the lock. first tells whether the contender is at the head of the queue. In a grace period
// it does not have the lock.
func (s *store) grant(v queue.View, first bool) queue.View {
	q := s.tier.GracePeriod()
	v.Has, v.InGracePeriod = first && q == nil, q != nil
	if first && q != nil {
		v.Again = max(time.Until(q.Until), time.Millisecond)
	}
	return v
}

// store.now returns the value for At, by which views are ordered. For a view from an answer or a notification, it is called when that has
// arrived. For a view from a read of the queue, it is called before the read is sent.
func (s *store) now() int64 { return int64(s.tier.Now()) }

// keep executes a command on the notification connection. On a new connection, the first command has to be a renewal. The tier has to
// create that renewal after the connection was opened, because it has to name all contenders that depend on the connection.
func (s *store) keep(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	if c.Op == queue.Open || c.Op == queue.Beat {
		fresh, err := s.notifyConn.open(ctx)
		switch {
		case err != nil:
			return a, err
		case fresh && c.Op == queue.Open: // connecting has taken time, so the tier sends the Open again
			return queue.Answer{Outcome: queue.Failed}, nil
		case fresh:
			return a, errNew
		}
	}
	a.Outcome = queue.Done
	err = s.notifyConn.talk(ctx, func(l *serverConn) (err error) {
		switch {
		case c.Op == queue.Open:
			a, err = s.open(ctx, l)
		case c.Op == queue.Beat:
			a, err = s.beat(ctx, l, c)
		case !l.known:
			err = errNew
		case c.Op == queue.Audit:
			a.Present, err = present(ctx, l, c.Session)
		case c.Op == queue.Drop:
			err = drop(ctx, l, c.Among)
		case c.Op == queue.Look:
			var views []queue.View
			views, err = s.look(ctx, l, c.Ref)
			a.View = views[0]
		}
		return err
	})
	return a, err
}

// open begins a session whose notifications arrive on the connection.
func (s *store) open(ctx context.Context, l *serverConn) (a queue.Answer, err error) {
	l.known = false
	if err := versions.check(ctx, l.conn); err != nil {
		return a, err
	}
	if err := checkRights(ctx, l.conn); err != nil {
		return a, err
	}
	ttl := s.options.TTL.Milliseconds()
	if err := s.options.first.declare(ctx, l.conn, ttl); err != nil {
		return a, err
	}
	id, self := s.Name(""), s.self
	_, err = l.conn.Exec(ctx, "SELECT tierlock.open($1, $2, $3, $4, $5)", id, ttl, self.Host, self.PID, self.Label)
	switch {
	case refusal(err) == "22P05":
		return a, fmt.Errorf("label %q, host %q: %w: %w; set another label, or use a database with the encoding UTF8",
			self.Label, self.Host, errEncoding, err)
	case err != nil:
		return a, err
	}
	a, err = s.beat(ctx, l, queue.Command{Session: id}) // its answer shows whether there is a grace period
	a.Name, a.TTL = id, s.options.TTL
	return a, err
}

// beat renews a session. A new connection may lead to another server. Before the first renewal on a connection, beat therefore reads which
// contenders the server has. The server may lack contenders of this process: for these, the renewal must not count. It may also still have
// contenders that were deleted.
func (s *store) beat(ctx context.Context, l *serverConn, c queue.Command) (a queue.Answer, err error) {
	if a.Doubt = !l.known; a.Doubt {
		if a.Views, err = s.absent(ctx, l, c); err != nil {
			return a, err
		}
	}
	var alive bool
	var stale []string
	var quiet int64
	sent := time.Now()
	if err := l.conn.QueryRow(ctx, "SELECT alive, stale, quiet FROM tierlock.beat($1, $2)", c.Session, s.options.TTL.Milliseconds()).
		Scan(&alive, &stale, &quiet); err != nil {
		return a, err
	}
	s.noteGracePeriod(quiet, sent)
	if !alive {
		return a, errOver
	}
	a.Outcome, l.known = queue.Done, true
	s.mu.Lock()
	for _, f := range s.followers { // a notification may have been lost, for example with the last connection
		s.unread[f.path] = true
	}
	s.mu.Unlock()
	l.schedule(time.Now())
	if len(stale) > 0 { // the IDs of contenders whose sessions have expired
		s.tier.Spawn(func() {
			ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
			defer cancel()
			var dropped int
			err := s.requests.QueryRow(ctx, dropSQL, stale).Scan(&dropped) // after an error, the next renewal tries again
			if err == nil && dropped > 0 && len(stale) == maxDrops {
				s.tier.Renew() // more of them may be left, and other contenders may wait behind them
			}
		})
	}
	return a, nil
}

// absent makes a new connection receive the notifications of the session. It returns views of those contenders in c.Among that the server
// does not have. Each view says that the contender is not in the queue.
func (s *store) absent(ctx context.Context, l *serverConn, c queue.Command) (views []queue.View, err error) {
	if _, err := l.conn.Exec(ctx, "LISTEN "+pgx.Identifier{"tierlock " + c.Session}.Sanitize()); err != nil {
		return nil, err
	}
	for _, sql := range []string{lookSQL, aroundSQL, aheadSQL} {
		if _, err := l.conn.Prepare(ctx, sql, sql); err != nil {
			return nil, err
		}
	}
	asked := s.now()
	present, err := present(ctx, l, c.Session)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]bool)
	for _, r := range present {
		queues[r.ID] = true
	}
	for _, r := range c.Among {
		if !queues[r.ID] {
			views = append(views, queue.View{ID: r.ID, Token: r.Token, At: asked})
		}
	}
	return views, nil
}

// present returns the contenders that the server has under a session.
func present(ctx context.Context, l *serverConn, session string) ([]queue.Ref, error) {
	rows, err := l.conn.Query(ctx, "SELECT path, id FROM tierlock.contender WHERE session = $1", session)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r queue.Ref, err error) { return r, row.Scan(&r.Path, &r.ID) })
}

const dropSQL = "SELECT tierlock.drop($1)"

// maxDrops is how many contenders one transaction deletes at most. It is limited, because the server has memory for only a few thousand
// locks.
const maxDrops = 100

func drop(ctx context.Context, l *serverConn, refs []queue.Ref) error {
	var ids []string
	for _, r := range refs[:min(len(refs), maxDrops)] {
		ids = append(ids, r.ID)
	}
	_, err := l.conn.Exec(ctx, dropSQL, ids)
	return err
}

// Follow schedules a read of the queue in which the contender waits.
func (s *store) Follow(r queue.Ref) {
	r = at(r)
	s.mu.Lock()
	s.followers[r.ID] = follower{r.Path, queue.View{ID: r.ID, Known: true, Token: r.Token, Reads: r.Reads}}
	s.mu.Unlock()
	s.readSoon(r.Path)
}

func (s *store) Unfollow(r queue.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.followers, r.ID)
}

// readSoon makes the notification connection read the queue at path soon. Followers of contenders in this queue then get new views.
func (s *store) readSoon(path string) {
	s.mu.Lock()
	s.unread[path] = true
	s.mu.Unlock()
	s.notifyConn.hurry(time.Now())
}

// due returns the followed contenders whose queues have to be read, and clears the set of these queues.
func (s *store) due() (due []queue.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.followers {
		if s.unread[f.path] {
			due = append(due, queue.Ref{Path: f.path, ID: id, Token: f.last.Token, Reads: f.last.Reads})
		}
	}
	clear(s.unread)
	return due
}

// catchUp reads the queues that have to be read, and reports the new views. If the session was not renewed over this connection yet, it
// reads nothing: the next renewal makes it read all followed queues.
func (s *store) catchUp(l *serverConn) error {
	l.schedule(time.Now().Add(s.options.TTL)) // the next renewal comes earlier than that
	due := s.due()
	if len(due) == 0 {
		return nil
	}
	return l.talk(context.Background(), func() error {
		if !l.known {
			return nil
		}
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
		defer cancel()
		views, err := s.look(ctx, l, due...)
		if err != nil && classify(err) != queue.Denied {
			s.notifyConn.lose(l, err)
			return err
		}
		for _, v := range views {
			s.tell(v)
		}
		return nil
	})
}

// pass handles a notification.
func (s *store) pass(n *pgconn.Notification) {
	switch kind, what, _ := strings.Cut(n.Payload, " "); kind {
	case "turn":
		id, behind, _ := strings.Cut(what, " ")
		s.mu.Lock()
		v := s.followers[id].last // empty if the contender does not follow yet; its queue is read when it does
		s.mu.Unlock()
		v.At, v.Ahead, v.Nearest, v.Behind, v.Err = s.now(), 0, second.Contender{}, behind == "true", nil
		s.tell(s.grant(v, true))
	case "look":
		s.readSoon(what)
	}
}

// tell reports a view to the tier, if its contender is followed.
func (s *store) tell(v queue.View) {
	s.mu.Lock()
	f, follows := s.followers[v.ID]
	if follows {
		s.followers[v.ID] = follower{f.path, v}
	}
	s.mu.Unlock()
	if follows {
		s.tier.Tell(v)
	}
}

// look returns the views of contenders. If the queues could not be read, each view has the error.
//
// For a contender that waits for a lock, look reads only the rows that show its place, not the whole queue. If each waiter read the whole
// queue, the total number of rows would grow with the square of the number of waiters.
func (s *store) look(ctx context.Context, l *serverConn, refs ...queue.Ref) (views []queue.View, err error) {
	asked := s.now()
	at := make(map[string][]queue.Ref)
	for _, r := range refs {
		at[r.Path] = append(at[r.Path], r)
	}
	var whole []string
	var w waiters
	for path, all := range at {
		if len(all) == 1 && !strings.HasSuffix(path, permits) && s.waits(all[0].ID) {
			w.add(all[0])
		} else {
			whole = append(whole, path)
		}
	}
	var batch pgx.Batch // has all queries, so that they take one round trip
	queues, ahead := make(map[string][]second.Contender), make(map[string]int)
	if len(whole) > 0 {
		batch.Queue(lookSQL, whole).Query(into(queues))
	}
	if len(w.paths) > 0 {
		w.queue(&batch, queues, ahead)
	}
	if err = l.conn.SendBatch(ctx, &batch).Close(); err != nil {
		clear(queues)
	}
	places := make(map[string]*queue.Places)
	for path := range at {
		places[path] = queue.NewPlaces(queues[path])
	}
	for _, r := range refs {
		v := queue.View{ID: r.ID, Known: err != nil, Token: r.Token, At: asked, Err: err}
		if places[r.Path].Stand(&v); v.Known && err == nil {
			if v.Ahead > 0 {
				v.Ahead = max(v.Ahead, ahead[r.Path]) // the second query ran later, so its count may be lower
			}
			v = s.grant(v, v.Has)
		}
		views = append(views, v)
	}
	return views, err
}

// store.waits reports whether a contender is followed and did not have the lock in its last view.
func (s *store) waits(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, follows := s.followers[id]
	return follows && !f.last.Has
}

// The type waiters has contenders that wait for locks, one for each path. The slices are the parameters of queries.
type waiters struct {
	paths  []string
	tokens []int64
	reads  []bool
}

func (w *waiters) add(r queue.Ref) {
	w.paths, w.tokens, w.reads = append(w.paths, r.Path), append(w.tokens, r.Token), append(w.reads, r.Reads)
}

// queue adds two queries to the batch. For each waiter, the first query stores the contenders around it in queues. The second query stores
// in ahead how many contenders are ahead of it.
func (w *waiters) queue(batch *pgx.Batch, queues map[string][]second.Contender, ahead map[string]int) {
	batch.Queue(aroundSQL, w.paths, w.tokens, w.reads).Query(into(queues))
	batch.Queue(aheadSQL, w.paths, w.tokens, w.reads).Query(func(rows pgx.Rows) error {
		var path string
		var n int
		_, err := pgx.ForEachRow(rows, []any{&path, &n}, func() error { ahead[path] = n; return nil })
		return err
	})
}

const waitersSQL = "unnest($1::text[], $2::bigint[], $3::boolean[]) w (q, place, reading)"

// aroundSQL reads, from each queue, only the contenders that show the place of one waiter.
var aroundSQL = strings.NewReplacer("unnest($1::text[]) q", waitersSQL,
	"AND f.path = q,", "AND f.path = q, LATERAL (SELECT tierlock.around(q, coalesce(f.token, 0), place, reading) AS tokens OFFSET 0) a,",
	"c.token >= coalesce(f.token, 0)", "c.token = ANY (a.tokens)").Replace(lookSQL)

const aheadSQL = "SELECT q, tierlock.ahead(q, coalesce(f.token, 0), place, reading) FROM " + waitersSQL +
	" LEFT JOIN tierlock.floor f ON f.slot = tierlock.slot(q) AND f.path = q"

const lookSQL = `SELECT c.* FROM unnest($1::text[]) q LEFT JOIN tierlock.floor f ON f.slot = tierlock.slot(q) AND f.path = q,
	LATERAL (SELECT c.path, c.id, c.token, c.since, c.reads, c.asked, c.linger_ms, c.permits, c.weight, s.host, s.pid, s.label
		FROM tierlock.contender c JOIN tierlock.session s ON s.id = c.session
		WHERE c.path = q AND c.token >= coalesce(f.token, 0) OFFSET 0) c ORDER BY path, token`

// read reads the queues at paths, each in one snapshot.
func read(ctx context.Context, q querier, paths ...string) (queues map[string][]second.Contender, err error) {
	rows, err := q.Query(ctx, lookSQL, paths)
	if err != nil {
		return nil, err
	}
	queues = make(map[string][]second.Contender)
	return queues, into(queues)(rows)
}

// into returns a function that appends the contenders in rows to the queues. The rows are ordered by token. Permits is the number that a
// contender wants or has.
func into(queues map[string][]second.Contender) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var path string
		var c second.Contender
		var says second.Description
		row := []any{&path, &c.ID, &c.Token, &c.Since, &c.Shared, &c.Asked, &says.Linger, &c.Of, &c.Permits,
			&says.Host, &says.PID, &says.Label}
		_, err := pgx.ForEachRow(rows, row, func() error {
			says.Tell(&c)
			queues[path] = append(queues[path], c)
			return nil
		})
		return err
	}
}
