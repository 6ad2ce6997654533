package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/second"
)

// A line is one connection. One at a time talks on it; while nobody does, somebody may listen.
type line struct {
	conn  *pgx.Conn
	wire  net.Conn // below pgx, for deadlines of our own: with a context, pgx starts a goroutine for each request
	pid   string   // of the server's process
	bound time.Duration

	turn  chan struct{} // has whoever talks or listens
	known bool          // the session in tables was renewed over it; of whoever talks
	spare time.Time     // since when nobody uses it; guarded by the store

	mu        sync.Mutex // guards the fields below
	wanted    int        // so many want to talk
	listening bool
	next      time.Time // when the listener is to do something else
	closed    error     // wraps errDropped, and why; nil as long as it is open
}

// dial makes a connection like those of a pool of [configLike], which is in none.
func dial(ctx context.Context, pool *pgxpool.Config, bound time.Duration, told func(*pgconn.Notification)) (*line, error) {
	l := &line{turn: make(chan struct{}, 1), bound: bound}
	config := pool.ConnConfig.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { told(n) }
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.AfterConnect(ctx, conn); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	l.conn, l.wire, l.pid = conn, conn.PgConn().Conn(), fmt.Sprint(conn.PgConn().PID())
	return l, nil
}

// answer reads what the statements up to the next sync have answered, and returns the last rows.
func answer(p *pgconn.Pipeline) (rows [][][]byte, failure error) {
	for {
		results, err := p.GetResults()
		switch r := results.(type) {
		case *pgconn.PipelineSync:
			return rows, failure
		case *pgconn.ResultReader:
			result := r.Read()
			rows, failure = result.Rows, cmp.Or(failure, result.Err)
		default:
			if failure = cmp.Or(err, errDropped); !refused(err) {
				return nil, failure
			}
		}
	}
}

// A call is a prepared statement with its parameters.
type call []string

func (c call) values() (values [][]byte) {
	for _, arg := range c[1:] {
		values = append(values, []byte(arg))
	}
	return values
}

// ask sends one statement, which does not wait, and returns its answer. Whoever calls it has the turn.
func (l *line) ask(bound time.Duration, c call) ([][][]byte, error) {
	l.wire.SetDeadline(time.Now().Add(bound))
	r := l.conn.PgConn().ExecPrepared(context.Background(), c[0], c.values(), nil, nil).Read()
	return r.Rows, r.Err
}

// refused reports whether the server has answered with an error, and the connection goes on.
func refused(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Severity != "FATAL" && refusal.Severity != "PANIC"
}

// begin waits for the turn to talk, which done gives back. An error says that the line is closed, or ctx done before.
func (l *line) begin(ctx context.Context) error {
	l.mu.Lock()
	l.wanted++
	l.interruptLocked()
	l.mu.Unlock()
	var err error
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted--
	if err == nil && l.closed != nil {
		l.done()
		return l.closed
	}
	return err
}

func (l *line) done() { <-l.turn }

// talk has f talk.
func (l *line) talk(ctx context.Context, f func() error) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.done()
	return f()
}

// interruptLocked has the listener stop.
func (l *line) interruptLocked() {
	if l.listening {
		l.wire.SetReadDeadline(time.Unix(1, 0))
	}
}

// hurry has the listener stop to do something else by then.
func (l *line) hurry(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.After(by) {
		l.next = by
		l.interruptLocked()
	}
}

func (l *line) schedule(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

var errDropped = errors.New("the connection is closed")

// attend listens, and does what is due, until it is over, or the connection is broken, which it returns.
func (l *line) attend(over func() bool, do func() error) error {
	for !over() {
		due, err := l.listen()
		if err == nil && due {
			err = do()
		}
		if err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// listen returns when it is time to do something else, which it reports, or somebody wants to talk. An error says that the connection
// is broken.
func (l *line) listen() (due bool, err error) {
	l.turn <- struct{}{}
	defer l.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if due = !time.Now().Before(l.next); l.closed != nil || due || l.wanted > 0 {
		return due, l.closed
	}
	l.wire.SetDeadline(l.next)
	l.listening = true
	l.mu.Unlock()
	err = l.conn.PgConn().WaitForNotification(context.Background())
	l.mu.Lock()
	l.listening = false
	l.wire.SetDeadline(time.Time{})
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = nil
	}
	return !time.Now().Before(l.next), err
}

// drop closes the connection, whoever is at it, and returns what is said to whoever comes.
func (l *line) drop(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = fmt.Errorf("%w: %w", errDropped, why)
	}
	l.wire.Close()
	return l.closed
}

// close says goodbye if the server can hear it. Whoever is at it has a moment to come to an end.
func (l *line) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.bound)
	defer cancel()
	l.talk(ctx, func() error {
		l.wire.SetDeadline(time.Now().Add(l.bound))
		return l.conn.PgConn().Close(ctx)
	})
	l.drop(second.ErrClosed)
}

// An ear is the connection over which a store hears, and asks for all of the process. Once it breaks, the next renewal makes another.
type ear struct {
	at            string // the addresses of the servers
	dial          func(context.Context) (*line, error)
	due           func(*line) error // does what is due there
	lost          func()            // is told once it breaks
	*second.Tasks                   // every goroutine of the store: some outlast those of the tier

	mu      sync.Mutex // guards the fields below
	line    *line      // nil while there is none
	problem error      // why there is none, nil before the first
}

// open makes one if there is none, and reports whether it did. It is called by one at a time.
func (e *ear) open(ctx context.Context) (fresh bool, err error) {
	if l, _ := e.now(); l != nil {
		return false, nil
	}
	l, err := e.dial(ctx)
	if err != nil {
		e.lose(nil, err)
		return false, err
	}
	e.mu.Lock()
	e.line, e.problem = l, nil
	e.mu.Unlock()
	e.Go(func() { e.lose(l, l.attend(func() bool { return false }, func() error { return e.due(l) })) })
	return true, nil
}

// now returns the connection, or nil, and why there is none.
func (e *ear) now() (*line, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line, e.problem
}

// away says that the servers cannot be reached, or do not serve.
func (e *ear) away(why error) error {
	return fmt.Errorf("PostgreSQL at %s cannot be reached: %w", e.at, why)
}

// lose says that there is no connection any more, or still none.
func (e *ear) lose(l *line, why error) {
	e.mu.Lock()
	mine := e.line == l
	if mine {
		e.line, e.problem = nil, e.away(why)
	}
	e.mu.Unlock()
	if l != nil && mine {
		l.drop(why)
		e.lost()
	}
}

// talk has f talk on the connection, if there is one.
func (e *ear) talk(ctx context.Context, f func(*line) error) error {
	l, problem := e.now()
	if l == nil {
		return cmp.Or(problem, errDropped)
	}
	return l.talk(ctx, func() error {
		err := f(l)
		if err != nil && l.conn.IsClosed() {
			e.lose(l, err)
		}
		return err
	})
}

// hurry has what is due done by then.
func (e *ear) hurry(by time.Time) {
	if l, _ := e.now(); l != nil {
		l.hurry(by)
	}
}

// close comes after the last command. It leaves no goroutine of the store.
func (e *ear) close() {
	e.mu.Lock()
	l := e.line
	e.line = nil // nobody loses it
	e.mu.Unlock()
	if l != nil {
		l.close()
	}
	e.End()
	e.Wait()
}
