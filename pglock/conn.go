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

// A serverConn is a connection to the server. One goroutine at a time sends requests on it. Between requests, one goroutine may wait for
// notifications on it.
type serverConn struct {
	conn  *pgx.Conn
	wire  net.Conn      // the network connection, whose deadlines limit requests: for a context, pgx would start a goroutine for each request
	pid   string        // the process ID of the server process
	bound time.Duration // limits each request

	turn  chan struct{} // full while a goroutine uses the connection; that goroutine has the turn
	known bool          // for locks in tables: the tier's session was renewed over this connection; guarded by turn
	spare time.Time     // since when the connection is unused; guarded by the mutex of the store

	mu        sync.Mutex // guards the fields below
	wanted    int        // the number of goroutines that wait for the turn in order to send requests
	listening bool
	next      time.Time // when the goroutine that listens has to do its other work, such as reading the queues
	closed    error     // wraps errDropped and the reason; nil while it is open
}

// dial opens a connection that belongs to no pool. pool is a result of [configLike], and its settings apply to the connection.
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

// answer reads the answers to all statements up to the next sync, and returns the rows of the last one.
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

// ask sends a statement that does not block in the server, and returns its rows. The caller has the turn.
func (l *serverConn) ask(bound time.Duration, c call) ([][][]byte, error) {
	l.wire.SetDeadline(time.Now().Add(bound))
	r := l.conn.PgConn().ExecPrepared(context.Background(), c[0], c.values(), nil, nil).Read()
	return r.Rows, r.Err
}

// refused reports whether err is an error that the server has returned, and after which it keeps the connection open.
func refused(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Severity != "FATAL" && refusal.Severity != "PANIC"
}

// begin waits until the caller has the turn. The caller then has to call done. begin returns an error if the connection is closed, or if
// ctx ends first.
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

// talk waits for the turn, and calls f while it has the turn.
func (l *serverConn) talk(ctx context.Context, f func() error) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.done()
	return f()
}

// interruptLocked makes a call of listen return, if one is in progress.
func (l *serverConn) interruptLocked() {
	if l.listening {
		l.wire.SetReadDeadline(time.Unix(1, 0))
	}
}

// hurry makes sure that the goroutine that listens begins its other work by the given time.
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

// attend listens for notifications until over returns true. Whenever the time for other work has come, attend calls do. It returns an error
// if the connection breaks.
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

// listen waits for notifications until the time for other work has come, or a goroutine waits for the turn. It returns true if the time has
// come. An error means that the connection is broken.
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

// drop closes the connection, even while a goroutine uses it. It returns the error that later callers get.
func (l *serverConn) drop(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = fmt.Errorf("%w: %w", errDropped, why)
	}
	l.wire.Close()
	return l.closed
}

// close tells the server that the connection ends, if possible, and closes it. It gives a goroutine that uses the connection a short time
// to finish.
func (l *serverConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.bound)
	defer cancel()
	l.talk(ctx, func() error {
		l.wire.SetDeadline(time.Now().Add(l.bound))
		return l.conn.PgConn().Close(ctx)
	})
	l.drop(second.ErrClosed)
}

// A notifyConn owns the connection on which a store receives notifications, and renews the session of the process. After the connection
// breaks, the next renewal opens a new one.
type notifyConn struct {
	at            string // the addresses of the servers
	dial          func(context.Context) (*serverConn, error)
	due           func(*serverConn) error // does the other work, such as to read the queues
	lost          func()                  // is called when the connection breaks
	*second.Tasks                         // all goroutines of the store; some of them run longer than the tier's

	mu      sync.Mutex  // guards the fields below
	line    *serverConn // nil while there is none
	problem error       // why there is no connection; nil before the first
}

// open opens a connection if there is none. It returns true if it has opened one. Only one goroutine at a time calls it.
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

// notifyConn.now returns the present connection. If there is none, it returns nil and the reason.
func (e *notifyConn) now() (*serverConn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line, e.problem
}

// away returns an error that says that the servers cannot be reached, and names their addresses.
func (e *notifyConn) away(why error) error {
	return fmt.Errorf("PostgreSQL at %s cannot be reached: %w", e.at, why)
}

// lose records that the connection l is broken. If l is nil, it records why no connection could be opened.
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

// talk waits for the turn on the present connection, and calls f while it has the turn. If there is no connection, it returns an error.
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

// hurry makes sure that the other work on the connection begins by the given time.
func (e *notifyConn) hurry(by time.Time) {
	if l, _ := e.now(); l != nil {
		l.hurry(by)
	}
}

// close is called after the last command. It returns when all goroutines of the store have ended.
func (e *notifyConn) close() {
	e.mu.Lock()
	l := e.line
	e.line = nil // so that lose ignores the end of this connection
	e.mu.Unlock()
	if l != nil {
		l.close()
	}
	e.End()
	e.Wait()
}
