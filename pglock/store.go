package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A store is the database as this process sees it. What the lease depends on goes over the connection of the keeper, what may have
// to wait for others over a few more.
type store struct {
	*keeper
	tier     *queue.Tier
	pool     *pgxpool.Pool // somebody else's
	requests *pgxpool.Pool
	options  options
	host     string // for people to read

	wires  context.Context // ends when nothing is to be said any more
	hangUp context.CancelFunc
}

// open returns a tier on a store that begins to ask for a session.
func open(pool *pgxpool.Pool, o options) (*queue.Tier, error) {
	s := &store{pool: pool, options: o}
	s.host, _ = os.Hostname()
	s.wires, s.hangUp = context.WithCancel(context.Background())
	var err error
	if s.requests, err = pgxpool.NewWithConfig(s.wires, requestsLike(s.wires, pool)); err != nil {
		s.hangUp()
		return nil, err
	}
	s.keeper = newKeeper(s)
	s.tier = queue.New(queue.Config{
		Package: "pglock", Store: "PostgreSQL", TTL: o.TTL, Margin: o.Margin, Logger: o.Logger, Paths: second.Components,
		Lost: func(r queue.Ref) string { return "contender " + r.ID + " was deleted" },
	}, s)
	s.tier.Start()
	return s.tier, nil
}

func (s *store) Name(string) string { return rand.Text() }

// Close takes a second at most.
func (s *store) Close() {
	defer time.AfterFunc(time.Second, s.hangUp).Stop()
	s.ear.close()
	s.requests.Close()
	s.hangUp()
}

// at is a contender in its queue. Permits have one of their own, which is at no path of a lock.
func at(r queue.Ref) queue.Ref {
	if r.Permits > 0 {
		r.Path += "\npermits"
	}
	return r
}

func (s *store) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	var err error
	c.Ref = at(c.Ref)
	switch c.Op {
	case queue.Open, queue.Beat, queue.Audit, queue.Drop, queue.Look:
		a, err = s.keep(ctx, c)
	case queue.Enter, queue.Try:
		a, err = s.enter(ctx, c)
	default:
		a, err = s.request(ctx, c)
	}
	if err != nil {
		a.Outcome, a.Err = classify(err), err
	}
	if !answered(err) {
		a.Away = fmt.Errorf("PostgreSQL cannot be reached: %w", err)
		if !errors.Is(ctx.Err(), context.Canceled) { // else nobody waits for the answer
			s.requests.Reset() // the other connections may be as dead
		}
	}
	return a
}

func (s *store) request(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	a.Outcome = queue.Done
	var present, all bool
	switch c.Op {
	case queue.Leave:
		err = s.requests.QueryRow(ctx, leaveSQL, c.Path, c.ID).Scan(&present)
		a.Removed = removal(present)
	case queue.Share, queue.Weigh:
		var has *bool // nil if it is not there
		shares := c.Op == queue.Share
		err = s.requests.QueryRow(ctx, "SELECT tierlock.change($1, $2, $3, $4)", c.Path, c.ID, shares, c.Weight).Scan(&has)
		a.View = s.grant(queue.View{ID: c.ID, Known: has != nil, Token: c.Token, At: s.now(), Reads: shares}, has != nil && *has)
		if shares { // a reader keeps others out than a writer
			s.stir(c.Path)
		}
	case queue.List:
		a.Queue, err = s.list(ctx, c.Path)
	case queue.Ask:
		_, err = s.requests.Exec(ctx, "SELECT tierlock.ask($1)", c.Path)
	case queue.Goodbye:
		for !all && err == nil {
			err = s.requests.QueryRow(ctx, "SELECT tierlock.finish($1)", c.Session).Scan(&all)
		}
	default:
		return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}, nil
	}
	return a, err
}

func removal(present bool) queue.Removal {
	if present {
		return queue.Removed
	}
	return queue.Missing
}

const leaveSQL = "SELECT tierlock.leave($1, $2)"

const enterSQL = `SELECT alive, number, coalesce(first, false), coalesce(removed, false), quiet
	FROM tierlock.enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func (s *store) enter(ctx context.Context, c queue.Command) (a queue.Answer, err error) {
	var alive, first, removed bool
	var number *int64 // none if it does not queue
	var quiet int64
	sent := time.Now()
	err = s.requests.QueryRow(ctx, enterSQL, c.Path, c.ID, c.Session, c.Reads, c.Linger.Milliseconds(), c.Old.ID, c.Op == queue.Try, c.Weight,
		c.Permits, c.Budget).Scan(&alive, &number, &first, &removed, &quiet)
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &refusal) && refusal.Code == "TL002":
		return a, fmt.Errorf("%w: %w", second.ErrPermits, err)
	case err != nil:
		return a, err
	}
	s.hush(quiet, sent)
	switch {
	case !alive:
		return a, errOver
	case number == nil:
		return queue.Answer{Outcome: queue.Locked, Quarantined: quiet > 0}, nil
	}
	v := queue.View{ID: c.ID, Known: true, Token: *number, At: s.now(), Reads: c.Reads}
	return queue.Answer{Outcome: queue.Done, Removed: removal(removed), View: s.grant(v, first)}, nil
}

// quietSQL is quiet_ms for one who only looks, and since when: of a promotion that nobody has noted, it begins now.
const quietSQL = `SELECT greatest(0, least(longest_ms,
	ceil(1000 * extract(epoch FROM begun + longest_ms * interval '1 ms' - clock_timestamp()))))::bigint, begun
	FROM tierlock.quarantine, LATERAL (SELECT CASE WHEN pg_is_in_recovery() THEN 'epoch' WHEN life = tierlock.timeline() THEN since
	ELSE clock_timestamp() END AS begun) b WHERE locks = 'tables'`

// list reads the queue as it was at one moment. In a quarantine, whoever is first has the lock if it was in the queue before
// that, as it then had it already.
func (s *store) list(ctx context.Context, path string) ([]second.Contender, error) {
	var quiet int64
	var begun time.Time
	sent := time.Now()
	if err := s.requests.QueryRow(ctx, quietSQL).Scan(&quiet, &begun); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	s.hush(quiet, sent)
	queues, err := look(ctx, s.requests, []string{path})
	list := queues[path]
	queue.Waiting(list)
	if quiet > 0 {
		second.Quarantined(list, func(i int) bool { return !list[i].Since.After(begun) })
	}
	return list, err
}

// hush takes over for how long a server has said that it gives no lock to anybody, in answer to what was sent then.
func (s *store) hush(ms int64, sent time.Time) {
	s.tier.Quarantined(time.Duration(ms)*time.Millisecond, sent, "the server was promoted, and first used less than a lease ago")
}

// grant completes how a contender stands that is first, or not. In a quarantine nobody is given a lock.
func (s *store) grant(v queue.View, first bool) queue.View {
	q := s.tier.Quarantine()
	v.Has, v.Quarantined = first && q == nil, q != nil
	if first && q != nil {
		v.Again = max(time.Until(q.Until), time.Millisecond)
	}
	return v
}

// now orders views: those of an answer or of a notification by when that came, those of a look by when it was asked.
func (s *store) now() int64 { return int64(s.tier.Now()) }
