package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

const (
	maxRequests = 4 // how many requests can be in progress at the same time, each on its own connection
	maxTTL      = 24 * time.Hour
	leaseUnit   = time.Millisecond
)

// A store is the connection of this process to a database. It has several connections. The lease depends only on one of them, the keeper,
// which renews the session and reads queues. The listener has its own connection. Requests that may have to wait for other transactions use
// a few more.
type store struct {
	db       *sql.DB
	tier     *queue.Tier
	settings second.Settings
	self     second.Description
	tasks    *second.Tasks
	ctx      context.Context // ends when the store is closed
	hangUp   context.CancelFunc
	away     atomic.Pointer[error] // why the last request got no answer; nil if it was answered

	turn   chan struct{} // full while a goroutine uses the keeper; guards the next two fields
	keeper *conn         // nil while there is none
	known  bool          // the session was renewed over this keeper

	listener context.CancelFunc // ends the listener of the newest session; nil before the first
	requests chan *conn         // idle connections for requests
	unmade   chan struct{}      // has a value for each connection for requests that may still be made
	unread   chan struct{}      // has a value if queues are to be read

	mu        sync.Mutex          // guards the fields below
	followers map[string]follower // by ID
	stale     map[string]bool     // the paths of queues that have to be read
}

type follower struct {
	path string
	told queue.View // the last view that was reported
}

// open returns a tier with a new store, and starts the tier, which requests a session.
func open(db *sql.DB, settings second.Settings) *queue.Tier {
	s := &store{
		db: db, settings: settings, self: second.Describe(settings.Label), tasks: second.NewTasks(),
		turn: make(chan struct{}, 1), requests: make(chan *conn, maxRequests), unmade: make(chan struct{}, maxRequests),
		unread:    make(chan struct{}, 1),
		followers: make(map[string]follower), stale: make(map[string]bool),
	}
	for range maxRequests {
		s.unmade <- struct{}{}
	}
	s.ctx, s.hangUp = context.WithCancel(context.Background())
	s.tier = queue.New(queue.Config{
		Package: "mysqllock", Store: "MySQL", Settings: settings, Paths: second.Components,
		Lost: func(r queue.Ref) string { return "contender " + r.ID + " was deleted" },
	}, s)
	s.tasks.Go(s.catchUp)
	s.tier.Start()
	return s.tier
}

// Close closes the connections of the store. It takes at most a second.
func (s *store) Close() {
	s.hangUp()
	s.tasks.End()
	s.tasks.Wait()
	if s.keeper != nil {
		s.keeper.discard()
	}
	for range maxRequests {
		select {
		case c := <-s.requests:
			c.discard()
		case <-s.unmade:
		}
	}
}

// Name returns a new random name for a contender or a session.
func (s *store) Name(string) string { return rand.Text() }

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
		err = s.keep(ctx, func() error { return s.onKeeper(ctx, c, &a) })
	default:
		err = s.request(ctx, func(conn *conn) error { return s.onConnection(ctx, conn, c, &a) })
	}
	if err != nil {
		a.Outcome, a.Err = classify(err), err
	}
	switch known := s.away.Load(); {
	case errors.Is(err, errBusy), errors.Is(err, errNew):
		if known != nil {
			a.Away = *known
		}
	case answered(err):
		s.away.Store(nil)
	default:
		a.Away = err
		s.away.Store(&err)
	}
	return a
}

// request uses one of the connections for requests. After an error other than a refusal, request closes the connection.
func (s *store) request(ctx context.Context, do func(*conn) error) error {
	c, err := s.idle(ctx)
	if err != nil {
		return err
	}
	if err = do(c); err != nil && !errors.Is(err, errOver) {
		c.discard()
		s.unmade <- struct{}{}
	} else {
		s.requests <- c
	}
	return err
}

// idle returns a connection for a request, and makes one only if there is none.
func (s *store) idle(ctx context.Context) (*conn, error) {
	select {
	case c := <-s.requests:
		return c, nil
	default:
	}
	select {
	case c := <-s.requests:
		return c, nil
	case <-s.unmade:
		return s.dial(ctx)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
	}
}

// dial makes a connection for requests. If that takes more than half of the time of a request, for example because the server is distant,
// the request fails, and the next request uses the connection. Otherwise each request would make a new connection, and have no time left to
// use it.
func (s *store) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.tier.Patience()/2)
	defer cancel()
	made, failed := make(chan *conn), make(chan error)
	s.tasks.Go(func() {
		limited, cancel := context.WithTimeout(s.ctx, s.settings.TTL)
		defer cancel()
		c, err := s.connect(limited)
		if err != nil {
			s.unmade <- struct{}{}
			select {
			case failed <- err:
			case <-ctx.Done():
			}
			return
		}
		select {
		case made <- c:
		case <-ctx.Done():
			s.requests <- c
		}
	})
	select {
	case c := <-made:
		return c, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
	}
}

func (s *store) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(second.ErrClosed) })()
	c, err := connect(ctx, s.db, s.settings.TTL)
	switch stats := s.db.Stats(); {
	case err == nil, unfit(err), refusal(err) != 0:
		return c, err
	case ctx.Err() != nil && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections:
		return nil, fmt.Errorf("%w: the program uses all %d connections of the pool: %w", errBusy, stats.InUse, err)
	}
	return nil, notSent{err}
}

const (
	enterSQL  = "CALL tierlock_enter(?, ?, ?, ?, ?, ?, ?, ?, ?)"
	leaveSQL  = "CALL tierlock_leave(?, ?)"
	changeSQL = "CALL tierlock_change(?, ?, ?, ?)"
)

// onConnection executes a command on a connection for requests, since the command may have to wait for other transactions.
func (s *store) onConnection(ctx context.Context, conn *conn, c queue.Command, a *queue.Answer) (err error) {
	a.Outcome = queue.Done
	switch c.Op {
	case queue.Enter, queue.Try:
		return s.enter(ctx, conn, c, a)
	case queue.Leave:
		var present bool
		err = conn.row(ctx, leaveSQL, []any{c.Path, c.ID}, &present)
		a.Removed = removal[present]
	case queue.Share, queue.Weigh:
		var has sql.NullBool // NULL if the contender is not in the queue
		var quiet int64
		shares, sent := c.Op == queue.Share, time.Now()
		err = conn.row(ctx, changeSQL, []any{c.Path, c.ID, shares, c.Weight}, &has, &quiet)
		s.noteGracePeriod(quiet, sent) // before grant, which has to know of a grace period: another server may have sent this answer
		a.View = s.grant(queue.View{ID: c.ID, Known: has.Valid, Token: c.Token, At: s.now(), Reads: shares}, has.Bool)
		if shares { // a reader does not block the same contenders as a writer
			s.readSoon(c.Path)
		}
	case queue.List:
		a.Queue, err = s.list(ctx, conn, c.Path)
	case queue.Ask:
		err = conn.exec(ctx, "CALL tierlock_ask(?)", c.Path)
	case queue.Save:
		var has bool
		err = conn.row(ctx, "CALL tierlock_save(?, ?, ?, ?, ?)", []any{c.Path, c.ID, c.Token, c.Turn, c.Data}, &has)
		if !has {
			a.Outcome = queue.Gone
		}
	case queue.Load:
		a.Value, err = load(ctx, conn, c.Path)
	case queue.Resize:
		err = conn.exec(ctx, "CALL tierlock_resize(?, ?)", c.Path, c.Permits)
	case queue.Goodbye:
		for all := false; !all && err == nil; {
			err = conn.row(ctx, "CALL tierlock_finish(?)", []any{c.Session}, &all)
		}
	default:
		a.Outcome, a.Err = queue.Denied, errors.ErrUnsupported
	}
	return err
}

// load returns the value that is saved beside a lock, and nil if there is none.
func load(ctx context.Context, conn *conn, path string) (*second.Value, error) {
	var token, saved sql.NullInt64
	var data []byte
	if err := conn.row(ctx, "CALL tierlock_load(?)", []any{path}, &token, &saved, &data); err != nil || !token.Valid {
		return nil, err
	}
	return &second.Value{Data: data, Token: token.Int64, Saved: time.UnixMicro(saved.Int64)}, nil
}

var removal = map[bool]queue.Removal{true: queue.Removed, false: queue.Missing}

func (s *store) enter(ctx context.Context, conn *conn, c queue.Command, a *queue.Answer) error {
	var alive, first, removed bool
	var token, others sql.NullInt64 // token: NULL if the contender is not in the queue; others: the total if it is not c.Permits
	var quiet int64
	sent := time.Now()
	try, lingers := c.Op == queue.Try, c.Linger.Milliseconds()
	err := conn.row(ctx, enterSQL, []any{c.Path, c.ID, c.Session, c.Reads, lingers, c.Old.ID, try, c.Weight, c.Permits},
		&alive, &token, &first, &removed, &quiet, &others)
	if err != nil {
		return err
	}
	s.noteGracePeriod(quiet, sent)
	switch {
	case !alive:
		return errOver
	case others.Valid:
		a.Outcome, a.Permits = queue.Denied, int(others.Int64)
		a.Err = fmt.Errorf("%w: the number in the store is %d, not %d", second.ErrTooManyPermits, a.Permits, c.Permits)
		return nil
	case !token.Valid:
		a.Outcome, a.InGracePeriod = queue.Locked, quiet > 0
		return nil
	}
	v := queue.View{ID: c.ID, Known: true, Token: token.Int64, At: s.now(), Reads: c.Reads, Of: c.Permits}
	a.Removed, a.View = removal[removed], s.grant(v, first)
	return nil
}

// quietSQL returns how many milliseconds of the grace period are left, and when it began. It writes nothing. If the last start of the
// server is not recorded yet, the grace period counts as just begun.
const quietSQL = `SELECT CASE WHEN life = '' THEN 0 WHEN life = @tierlock_life
	THEN GREATEST(0, LEAST(longest_ms, longest_ms + (since - moment) DIV 1000 + 1))
	ELSE longest_ms END, CASE WHEN life IN ('', @tierlock_life) THEN since ELSE moment END
	FROM tierlock_state, (SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS moment) m`

// list reads the queue in one snapshot. In a grace period, a contender at the head of the queue counts as the holder only if it entered
// before the period began.
func (s *store) list(ctx context.Context, conn *conn, path string) ([]second.Contender, error) {
	var quiet, begun int64
	sent := time.Now()
	if err := conn.row(ctx, quietSQL, nil, &quiet, &begun); err != nil {
		return nil, err
	}
	s.noteGracePeriod(quiet, sent)
	_, queues, err := read(ctx, conn, lookSQL(1), path)
	list := queues[path]
	queue.Waiting(list)
	if quiet > 0 {
		second.InGracePeriod(list, func(i int) bool { return !list[i].Since.After(time.UnixMicro(begun)) })
	}
	return list, err
}

// noteGracePeriod records an answer of the server that it grants nothing for the next ms milliseconds. sent is when the request was sent.
func (s *store) noteGracePeriod(ms int64, sent time.Time) {
	const reason = "the server was started, or took over, and first used less than a lease ago"
	s.tier.InGracePeriod(time.Duration(ms)*time.Millisecond, sent, reason)
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

// store.now returns the value for At, by which views are ordered. For a view from an answer, it is called when the answer has arrived. For
// a view from a read of the queue, it is called before the read is sent.
func (s *store) now() int64 { return int64(s.tier.Now()) }

// keep waits for the turn, and calls do, which may use the keeper until it returns. If do returns an error, keep closes the keeper, except
// after errOver and errNew.
func (s *store) keep(ctx context.Context, do func() error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errBusy, context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	err := do()
	if err != nil && !errors.Is(err, errOver) && !errors.Is(err, errNew) && s.keeper != nil {
		s.keeper.discard()
		s.keeper = nil
		if !answered(err) {
			s.tier.Renew()
		}
	}
	return err
}

// onKeeper executes a command on the keeper. On a new keeper, the first command has to be a renewal or an Open. The tier has to create the
// renewal after the keeper was opened, because it has to name all contenders that depend on the keeper.
func (s *store) onKeeper(ctx context.Context, c queue.Command, a *queue.Answer) (err error) {
	if s.keeper == nil {
		if c.Op != queue.Open && c.Op != queue.Beat {
			return errNew
		}
		if s.keeper, err = s.connect(ctx); err != nil {
			return err
		}
		s.known = false
		if c.Op == queue.Beat {
			return errNew
		}
	}
	a.Outcome = queue.Done
	switch {
	case c.Op == queue.Open:
		return s.open(ctx, a)
	case c.Op == queue.Beat:
		return s.beat(ctx, c, a)
	case !s.known:
		return errNew
	case c.Op == queue.Audit:
		a.Present, err = s.present(ctx, c.Session)
	case c.Op == queue.Drop:
		var ids []string
		for _, r := range c.Among[:min(len(c.Among), maxDrops)] {
			ids = append(ids, r.ID)
		}
		err = s.keeper.row(ctx, dropSQL, []any{strings.Join(ids, ",")}, new(int))
	case c.Op == queue.Look:
		var views []queue.View
		views, err = s.look(ctx, []queue.Ref{c.Ref})
		if err == nil {
			a.View = views[0]
		}
	}
	return err
}

// open begins a session.
func (s *store) open(ctx context.Context, a *queue.Answer) error {
	s.known = false
	if err := versions.check(ctx, s.keeper.Conn); err != nil {
		return err
	}
	if err := s.keeper.checkRights(ctx); err != nil {
		return err
	}
	id := s.Name("")
	ttl, self := s.settings.TTL.Milliseconds(), s.self
	if err := s.keeper.exec(ctx, "CALL tierlock_open(?, ?, ?, ?, ?)", id, ttl, self.Host, self.PID, self.Label); err != nil {
		return err
	}
	if err := s.beat(ctx, queue.Command{Session: id}, a); err != nil { // its answer shows whether there is a grace period
		return err
	}
	a.Name, a.TTL = id, s.settings.TTL
	if s.listener != nil {
		s.listener()
	}
	ears, stop := context.WithCancel(s.ctx)
	s.listener = stop
	s.tasks.Go(func() { s.listen(ears, id) })
	return nil
}

// beat renews a session. A new keeper may lead to another server. Before the first renewal on a keeper, beat therefore reads which
// contenders the server has. The server may lack contenders of this process, and must not renew their leases. It may also still have
// contenders that were deleted.
func (s *store) beat(ctx context.Context, c queue.Command, a *queue.Answer) (err error) {
	if a.Doubt = !s.known; a.Doubt {
		if a.Views, err = s.absent(ctx, c); err != nil {
			return err
		}
	}
	var alive bool
	var quiet int64
	var stale string
	sent := time.Now()
	ttl := s.settings.TTL.Milliseconds()
	if err := s.keeper.row(ctx, "CALL tierlock_beat(?, ?)", []any{c.Session, ttl}, &alive, &quiet, &stale); err != nil {
		return err
	}
	s.noteGracePeriod(quiet, sent)
	if !alive {
		return errOver
	}
	a.Outcome, s.known = queue.Done, true
	s.mu.Lock()
	for _, f := range s.followers { // the listener may have missed news
		s.stale[f.path] = true
	}
	s.mu.Unlock()
	s.wakeReader()
	if stale != "" { // the IDs of contenders of an expired session
		s.tier.Spawn(func() { s.reap(stale) })
	}
	return nil
}

// reap deletes contenders whose sessions have expired.
func (s *store) reap(ids string) {
	ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
	defer cancel()
	var dropped int
	// After an error, the next renewal tries again.
	err := s.request(ctx, func(c *conn) error { return c.row(ctx, dropSQL, []any{ids}, &dropped) })
	if err == nil && dropped > 0 {
		s.tier.Renew() // the renewal finds more expired sessions, if any, behind whose contenders others may wait
	}
}

const dropSQL = "CALL tierlock_drop(?)"

// maxDrops is how many contenders one call deletes at most.
const maxDrops = 100

// absent returns views of those contenders in c.Among that the server does not have. Each view says that the contender is not in the queue.
func (s *store) absent(ctx context.Context, c queue.Command) (views []queue.View, err error) {
	asked := s.now()
	present, err := s.present(ctx, c.Session)
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
func (s *store) present(ctx context.Context, session string) (refs []queue.Ref, err error) {
	rows, err := s.keeper.query(ctx, "SELECT path, id FROM tierlock_contender WHERE session = ?", session)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r queue.Ref
		if err := rows.Scan(&r.Path, &r.ID); err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, rows.Err()
}
