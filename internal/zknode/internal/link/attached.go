package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/lease"
	"github.com/tierlock/tierlock/internal/retry"
)

// pollConnection is how often the state of a lost connection is checked. The library informs only the callback with which the connection
// was made.
const pollConnection = 20 * time.Millisecond

// pollClosed is how often the link asks the library whether the connection was closed, while a goroutine waits for a lock or holds one.
// Nothing is sent for that.
const pollClosed = 100 * time.Millisecond

// attached is the transport over a connection that the program has made. It knows what the library reports: the state of the connection
// and the session id. There is no lease, because the library reports neither the negotiated timeout nor the time of the last answer.
//
// It has no goroutine of its own unless a goroutine waits for a lock or holds one, so a closed and dropped connection can be collected.
type attached struct {
	link *Link
	id   func() int64 // of the connection's session, 0 while there is none

	mu      sync.Mutex // guards the field below; never held across a client call
	current *Session
}

// Attach makes conn the connection of the link. id returns its session, which is conn.SessionID.
func (l *Link) Attach(conn *zk.Conn, id func() int64) {
	l.Conn, l.transport = conn, &attached{link: l, id: id}
	l.heard.Set()
	l.admitted.Set()  // the maker of the connection presents credentials
	l.tasks.Spare = 0 // programs need not close such a link, which would end idle goroutines
}

func (l *attached) Session() *Session {
	l.mu.Lock()
	// The id is read under the mutex. Ids have no order, so an older one could otherwise replace a newer session.
	id := l.id()
	old := l.current
	if old != nil && old.ID == id {
		l.mu.Unlock()
		return old
	}
	l.current = nil
	if id != 0 {
		// This replaces a lease: a lost connection alone loses nothing. The caller holds the session's mutex, so the function must not end the
		// session.
		vouches := func() bool { return l.id() == id }
		l.current = newSession(l.link, id, l.link.config.TTL, l.link.Now(), lease.Forever, vouches)
	}
	s := l.current
	l.mu.Unlock()
	if old != nil {
		old.End(zk.ErrSessionExpired)
	}
	return s
}

func (l *attached) disconnected() error {
	if state := l.link.Conn.State(); state != zk.StateHasSession {
		// The error does not name the server, because Conn.Server waits for the program's host provider.
		return fmt.Errorf("%w: %v", zk.ErrNoServer, state)
	}
	return nil
}

func (l *attached) awaitConnection(ctx context.Context) error {
	if l.disconnected() == nil {
		return nil
	}
	defer l.PollClose()()
	for l.disconnected() != nil {
		if err := retry.Pause(ctx, pollConnection); err != nil {
			return err
		}
	}
	return nil
}

// PollClose asks the library whether the connection was closed, until stopPolling is called.
func (l *attached) PollClose() (stopPolling func()) {
	done, stopPolling := context.WithCancel(l.link.ctx)
	l.link.Spawn(func() {
		again := time.NewTicker(pollClosed)
		defer again.Stop()
		for done.Err() == nil && !l.Closed() {
			select {
			case <-again.C:
			case <-done.Done():
			}
		}
	})
	return stopPolling
}

// Closed reports whether the program closed the connection. The library has no such query: after the close it refuses each request with
// this error. A live connection that keeps breaking refuses any number of requests in a row with the same error, but never a request that
// cannot be encoded. The library finds that out before it needs a connection, and does not send the request, so it cannot be lost with one.
//
// No event could replace this query. The state after a close is that after a loss of the connection. The channel of events belongs to the
// program: an event taken from it is missing there, and it is full unless the program reads it. A watch ends with zk.ErrClosing, but
// there is none while the connection is down. Its node would have to be readable, and with a server that hangs it ends two thirds of a
// session timeout later.
func (l *attached) Closed() bool {
	_, err := l.link.Conn.Multi((*zk.CheckVersionRequest)(nil))
	closed := errors.Is(err, zk.ErrConnectionClosed)
	if closed {
		l.link.End()
	}
	return closed
}

func (l *attached) Leased() bool { return false }

// Ask makes one call of the library for each request: reads together, writes one after the other. No write waits for a read.
func (l *attached) Ask(requests ...Request) []Answer {
	answers := make([]Answer, len(requests))
	var reads sync.WaitGroup
	for i, q := range requests {
		if _, reading := q.(read); reading && i < len(requests)-1 {
			reads.Go(func() { answers[i] = q.call(l) })
			continue
		}
		answers[i] = q.call(l)
	}
	reads.Wait()
	return answers
}

// Gather cannot send requests together.
func (l *attached) Gather(_ context.Context, _ string, requests ...Request) []Answer {
	return l.Ask(requests...)
}

// forward passes on the event of one watch, since there is no callback.
func (l *attached) forward(events <-chan zk.Event) {
	l.link.Spawn(func() {
		select {
		case ev := <-events: // without a path if the channel was closed
			l.link.Events.fire(ev)
		case <-l.link.ctx.Done():
		}
	})
}

// Close waits for a second for calls of the library, which it cannot end.
func (l *attached) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	WaitFor(ctx, l.link.tasks.Wait)
}
