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

// pollConnection is the interval at which the state of a lost connection is checked. The link has to poll it, because the library reports
// changes only to the callback that the program passed when it connected.
const pollConnection = 20 * time.Millisecond

// pollClosed is the interval at which the link asks the library whether the connection was closed. It asks only while a goroutine waits for
// a lock or holds one. Asking sends no request.
const pollClosed = 100 * time.Millisecond

// An attached is the transport over a connection that the program has made. It knows only the state of the connection and the session id,
// which the library reports. There is no lease, because the library reports neither the negotiated timeout nor the time of the last answer.
//
// It runs goroutines only while a goroutine waits for a lock or holds one. Therefore a closed connection to which the program has no
// reference can be collected.
type attached struct {
	link *Link
	id   func() int64 // returns the id of the connection's session, or 0 if there is none

	mu      sync.Mutex // guards the field below; never locked during a call of the client
	current *Session
}

// Attach makes conn the connection of the link. The function id returns the id of its session; it is conn.SessionID.
func (l *Link) Attach(conn *zk.Conn, id func() int64) {
	l.Conn, l.transport = conn, &attached{link: l, id: id}
	l.heard.Set()
	l.admitted.Set()  // the program that made the connection presents the credentials
	l.tasks.Spare = 0 // the link keeps no idle goroutines: programs need not close it, and only Close would end them
}

func (l *attached) Session() *Session {
	l.mu.Lock()
	// The id is read under the mutex. Ids have no order, so an old id could otherwise replace a newer session.
	id := l.id()
	old := l.current
	if old != nil && old.ID == id {
		l.mu.Unlock()
		return old
	}
	l.current = nil
	if id != 0 {
		// The function vouches replaces the lease. The loss of the connection alone does not end a hold. It is called while the session's
		// mutex is locked, so it must not end the session.
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

// PollClose asks the library at intervals whether the connection was closed, until stopPolling is called.
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

// Closed reports whether the program has closed the connection. The library has no query for that, but after the close it refuses each
// request with ErrConnectionClosed. A connection that breaks again and again can refuse any number of requests with the same error.
// Therefore Closed submits a request that cannot be encoded. The library notices that before it needs a connection, so only a closed
// connection refuses this request with ErrConnectionClosed. Nothing is sent.
//
// Events could not replace this query. After a close the state is the same as after a loss of the connection. The channel of events belongs
// to the program. If the link took an event, the program would miss it, and the channel is full if the program does not read it. A close
// ends a watch with zk.ErrClosing, but while the connection is down there is no watch. A watch would also need a node that this client may
// read. With a server that hangs, it would end two thirds of a session timeout after the close.
func (l *attached) Closed() bool {
	_, err := l.link.Conn.Multi((*zk.CheckVersionRequest)(nil))
	closed := errors.Is(err, zk.ErrConnectionClosed)
	if closed {
		l.link.End()
	}
	return closed
}

func (l *attached) Leased() bool { return false }

// Ask makes one call of the library for each request. The writes are sent one after the other, and the reads at the same time. No write
// waits for a read.
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

// Gather is the same as Ask, because this transport cannot combine requests.
func (l *attached) Gather(_ context.Context, _ string, requests ...Request) []Answer {
	return l.Ask(requests...)
}

// forward delivers the event of one watch, because there is no callback that does so.
func (l *attached) forward(events <-chan zk.Event) {
	l.link.Spawn(func() {
		select {
		case ev := <-events: // has no path if the channel was closed
			l.link.Events.fire(ev)
		case <-l.link.ctx.Done():
		}
	})
}

// Close waits up to a second for calls of the library, because it cannot end them.
func (l *attached) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	WaitFor(ctx, l.link.tasks.Wait)
}
