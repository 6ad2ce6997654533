package advisory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A line is one connection. One at a time talks on it; while nobody does, somebody may listen.
type line struct {
	conn  *pgx.Conn
	wire  net.Conn // below pgx, for deadlines of our own: with a context, pgx starts a goroutine for each request
	pid   uint32   // of the server's process
	bound time.Duration

	calm    time.Duration // how long from its beginning on nobody is granted anything
	calling atomic.Bool   // further dials, of requests to cancel, are permitted
	turn    chan struct{} // has whoever talks or listens
	dying   func(error)   // called before the driver closes the connection as a context has ended; set before it is used

	mu        sync.Mutex // guards the fields below
	wanted    int        // so many want to talk
	listening bool
	next      time.Time // when the listener is to do something else
	closed    bool
}

// answer reads what the statements up to the next sync have answered, and returns the last rows.
func answer(p *pgconn.Pipeline) (rows [][][]byte, failure error) {
	for {
		results, err := p.GetResults()
		var refusal *pgconn.PgError
		switch {
		case errors.As(err, &refusal) && refusal.Severity != "FATAL":
			failure = err
			continue
		case err != nil:
			return nil, err
		}
		switch r := results.(type) {
		case *pgconn.PipelineSync:
			return rows, failure
		case *pgconn.ResultReader:
			result := r.Read()
			if failure == nil {
				failure = result.Err
			}
			rows = result.Rows
		case nil:
			return nil, errors.New("the pipeline is over")
		}
	}
}

// A call is a prepared statement with its parameters.
type call struct {
	statement string
	args      []string
}

func (l *line) send(calls ...call) (*pgconn.Pipeline, error) {
	p := l.conn.PgConn().StartPipeline(context.Background())
	for _, c := range calls {
		values := make([][]byte, len(c.args))
		for i, arg := range c.args {
			values[i] = []byte(arg)
		}
		p.SendQueryPrepared(c.statement, values, nil, nil)
		p.SendPipelineSync() // what is answered so far is sent before the next one waits
	}
	return p, p.Flush()
}

// ask sends one statement, which does not wait, and returns its answer. Whoever calls it has the turn.
func (l *line) ask(bound time.Duration, c call) (rows [][][]byte, err error) {
	l.wire.SetDeadline(time.Now().Add(bound))
	p, err := l.send(c)
	if err != nil {
		return nil, err
	}
	rows, err = answer(p)
	var refusal *pgconn.PgError
	if err != nil && !(errors.As(err, &refusal) && refusal.Severity != "FATAL") {
		return nil, err
	}
	if closing := p.Close(); closing != nil && err == nil {
		err = closing
	}
	return rows, err
}

// begin waits for the turn to talk, which done gives back. It is false on a line that is closed.
func (l *line) begin() bool {
	l.mu.Lock()
	l.wanted++
	l.interruptLocked()
	l.mu.Unlock()
	l.turn <- struct{}{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted--
	if l.closed {
		<-l.turn
	}
	return !l.closed
}

func (l *line) done() { <-l.turn }

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

// due reports whether it is time to do something else.
func (l *line) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.next)
}

func (l *line) schedule(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

var errDropped = errors.New("the connection is closed")

// listen returns when it is time to do something else, or somebody wants to talk. An error says that
// the connection is broken.
func (l *line) listen() error {
	l.turn <- struct{}{}
	defer l.done()
	l.mu.Lock()
	if l.closed || l.wanted > 0 || !time.Now().Before(l.next) {
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return errDropped
		}
		return nil
	}
	l.wire.SetDeadline(l.next)
	l.listening = true
	l.mu.Unlock()
	err := l.conn.PgConn().WaitForNotification(context.Background())
	l.mu.Lock()
	l.listening = false
	l.mu.Unlock()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

// cancel asks the server to end the statement under way, and reports whether it has tried to.
func (l *line) cancel() bool {
	ctx, end := context.WithTimeout(context.Background(), l.bound)
	defer end()
	l.calling.Store(true)
	defer l.calling.Store(false)
	return l.conn.PgConn().CancelRequest(ctx) == nil && ctx.Err() == nil
}

// drop closes the connection, whoever is at it.
func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wire.Close()
}

func (l *line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close says goodbye if the server can hear it. Whoever is at it has a moment to come to an end.
func (l *line) close() {
	impatience := time.AfterFunc(l.bound, l.drop)
	defer impatience.Stop()
	if l.begin() {
		l.wire.SetDeadline(time.Now().Add(l.bound))
		l.conn.PgConn().Close(context.Background())
		l.done()
	}
	l.drop()
}

func (l *line) String() string { return fmt.Sprintf("server process %d", l.pid) }
