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

// A serverConn is one connection. One goroutine at a time sends requests on it. In between, one goroutine may wait for notifications.
type serverConn struct {
	conn  *pgx.Conn
	wire  net.Conn // below pgx, for deadlines of our own: with a context, pgx starts a goroutine for each request
	pid   string   // of the server's process
	bound time.Duration

	turn  chan struct{} // full while a goroutine uses the connection, to talk or to listen
	known bool          // the session in tables was renewed over it; guarded by turn
	spare time.Time     // since when it is unused; guarded by the store

	mu        sync.Mutex // guards the fields below
	wanted    int        // goroutines that wait to talk
	listening bool
	next      time.Time // when the listener has to stop for other work
	closed    error     // wraps errDropped and the reason; nil while it is open
}

// dial opens a connection with the settings of a pool of [configLike], but outside of any pool.
func dial(ctx context.Context, pool *pgxpool.Config, bound time.Duration, notified func(*pgconn.Notification)) (*serverConn, error) {
	l := &serverConn{turn: make(chan struct{}, 1), bound: bound}
	config := pool.ConnConfig.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { notified(n) }
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

// answer reads the answers of the statements up to the next sync, and returns the last rows.
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

// ask sends one statement, which does not block in the server, and returns its answer. The caller has the turn.
func (l *serverConn) ask(bound time.Duration, c call) ([][][]byte, error) {
	l.wire.SetDeadline(time.Now().Add(bound))
	r := l.conn.PgConn().ExecPrepared(context.Background(), c[0], c.values(), nil, nil).Read()
	return r.Rows, r.Err
}

// refused reports whether the server has answered with an error and keeps the connection.
func refused(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Severity != "FATAL" && refusal.Severity != "PANIC"
}

// begin waits until the caller may use the connection; done passes it on. begin returns an error if the connection is closed or ctx ends
// first.
func (l *serverConn) begin(ctx context.Context) error {
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

func (l *serverConn) done() { <-l.turn }

// talk calls f while the caller owns the connection.
func (l *serverConn) talk(ctx context.Context, f func() error) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.done()
	return f()
}

// interruptLocked makes the goroutine that listens return.
func (l *serverConn) interruptLocked() {
	if l.listening {
		l.wire.SetReadDeadline(time.Unix(1, 0))
	}
}

// hurry makes the goroutine that listens stop for other work by the given time at the latest.
func (l *serverConn) hurry(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.After(by) {
		l.next = by
		l.interruptLocked()
	}
}

func (l *serverConn) schedule(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

var errDropped = errors.New("the connection is closed")

// attend listens for notifications, and calls do whenever work is due, until over reports true. attend returns the error of a broken
// connection.
func (l *serverConn) attend(over func() bool, do func() error) error {
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

// listen waits for notifications until other work is due, which it reports, or a goroutine wants to talk. An error means that the
// connection is broken.
func (l *serverConn) listen() (due bool, err error) {
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

// drop closes the connection, also while it is in use, and returns the error for later callers.
func (l *serverConn) drop(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = fmt.Errorf("%w: %w", errDropped, why)
	}
	l.wire.Close()
	return l.closed
}

// close ends the connection with a message to the server, if it can. A goroutine that uses the connection has a moment to finish.
func (l *serverConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.bound)
	defer cancel()
	l.talk(ctx, func() error {
		l.wire.SetDeadline(time.Now().Add(l.bound))
		return l.conn.PgConn().Close(ctx)
	})
	l.drop(second.ErrClosed)
}

// A notifyConn is the connection of a store for notifications, and for the requests of the whole process. After it breaks, the next
// renewal opens another one.
type notifyConn struct {
	at            string // the addresses of the servers
	dial          func(context.Context) (*serverConn, error)
	due           func(*serverConn) error // does the work that is due
	lost          func()                  // is called when the connection breaks
	*second.Tasks                         // every goroutine of the store: some outlast those of the tier

	mu      sync.Mutex  // guards the fields below
	line    *serverConn // nil while there is none
	problem error       // why there is none, nil before the first
}

// open opens a connection if there is none, and reports whether it did. One goroutine at a time calls it.
func (e *notifyConn) open(ctx context.Context) (fresh bool, err error) {
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
func (e *notifyConn) now() (*serverConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line, e.problem
}

// away returns the error while the servers cannot be reached, or do not serve.
func (e *notifyConn) away(why error) error {
	return fmt.Errorf("PostgreSQL at %s cannot be reached: %w", e.at, why)
}

// lose records that there is no connection any more, or still none.
func (e *notifyConn) lose(l *serverConn, why error) {
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

// talk calls f while the caller owns the connection, if there is one.
func (e *notifyConn) talk(ctx context.Context, f func(*serverConn) error) error {
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

// hurry makes the connection do its work by the given time at the latest.
func (e *notifyConn) hurry(by time.Time) {
	if l, _ := e.now(); l != nil {
		l.hurry(by)
	}
}

// close is called after the last command. close returns when the store has no goroutine left.
func (e *notifyConn) close() {
	e.mu.Lock()
	l := e.line
	e.line = nil // so that its end is no loss
	e.mu.Unlock()
	if l != nil {
		l.close()
	}
	e.End()
	e.Wait()
}
