package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/mutexbool"
)

// pollConnection is how often a connection that is down is looked at. The library tells
// only the callback that it was made with.
const pollConnection = 20 * time.Millisecond

// pollClosed is how often it is asked, while somebody waits or holds, whether it was closed. That
// is a matter of the library alone: nothing is sent.
const pollClosed = 100 * time.Millisecond

// attached is the link of a client over a connection that somebody else made. It knows
// what can be asked of the library: the state of the connection and the session id.
// There is no lease, because neither the negotiated timeout nor the time of the last
// answer can be had.
//
// It has no goroutine of its own unless somebody waits or holds, so a connection that is
// closed and dropped is free to go.
type attached struct {
	client *Client
	id     func() int64 // of the connection's session, 0 while there is none

	mu      sync.Mutex // guards the fields below; never held across a client call
	current *session
	waiting int            // calls of attend that have not been ended: who waits, who holds
	asking  bool           // a goroutine asks whether the connection was closed
	alone   mutexbool.Bool // nobody does
}

// Attach returns a client over a connection that belongs to somebody else, for programs
// that cannot leave the dialing to [Dial]. It knows less: a lock counts as lost when
// the session has changed or its node was deleted, but there is no lease, and so no
// word of it while the server cannot be reached. [Node.Lost] is late by up to a look at
// the node. The library's hazards with hung and with broken servers remain.
// [WithSessionTimeout] should repeat the timeout of conn; options about dialing are
// ignored.
//
// The library returns from a request only with the answer, so those that need an order go
// one after the other: an acquisition takes two round trips, and on a path that is missing
// one more and one for each node of the path.
//
// When conn is closed the client is closed with it, a tenth of a second later while somebody
// waits for a lock or holds one, else as soon as somebody does: the library tells nobody, and
// has to be asked. Nothing is sent for that.
//
// Close gives up the client, not the connection. Locks should be released before, or their
// nodes stay as long as the session of conn. Calls that a server does not answer end with
// the connection that they were made on, and so do their goroutines, which Close does not
// wait for.
func Attach(conn *zk.Conn, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: attach: %w", err)
	}
	c := newClient(o)
	c.conn, c.link = conn, &attached{client: c, id: conn.SessionID}
	return c, nil
}

func (l *attached) session() *session {
	l.mu.Lock()
	// Read under the mutex: ids have no order, so one that was read before could take the
	// place of a newer session.
	id := l.id()
	old := l.current
	if old != nil && old.id == id {
		l.mu.Unlock()
		return old
	}
	l.current = nil
	if id != 0 {
		l.current = newUnleased(l.client, id, l.client.options.sessionTimeout)
	}
	s := l.current
	l.mu.Unlock()
	if old != nil {
		old.End(zk.ErrSessionExpired)
	}
	return s
}

func (l *attached) err() error {
	if state := l.client.conn.State(); state != zk.StateHasSession {
		return fmt.Errorf("%w: %v", zk.ErrNoServer, state)
	}
	return nil
}

func (l *attached) awaitConnection(ctx context.Context) error {
	if l.err() == nil {
		return nil
	}
	defer l.attend()()
	for l.err() != nil {
		if err := retry.Pause(ctx, pollConnection); err != nil {
			return err
		}
	}
	return nil
}

// attend has one goroutine ask for all who wait or hold.
func (l *attached) attend() (unattend func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	l.alone.Clear()
	if !l.asking {
		l.asking = l.client.spawn(l.poll)
	}
	return l.unattend
}

func (l *attached) unattend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		l.alone.Set()
	}
}

// poll goes on asking as long as anybody waits or holds.
func (l *attached) poll() {
	again := time.NewTicker(pollClosed)
	defer again.Stop()
	for l.wanted() {
		l.over()
		select {
		case <-again.C:
		case <-l.alone.C():
		case <-l.client.ctx.Done():
			return
		}
	}
}

// wanted reports whether the asking has to go on.
func (l *attached) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking = l.waiting > 0
	return l.asking
}

// over ends the client if the connection was closed.
func (l *attached) over() bool {
	if !l.closed() {
		return false
	}
	l.client.end()
	return true
}

// closed reports whether the connection was closed. The library tells only those who ask
// for something, all of whom it refuses with this error from then on (conn.go:936). A live
// connection that keeps breaking refuses any number of requests in a row with the same
// error, but never one that cannot be encoded: what is wrong with that is found out before
// a connection can be missing (719), and it is not sent, so it cannot be lost with one.
func (l *attached) closed() bool {
	_, err := l.client.conn.Multi((*zk.CheckVersionRequest)(nil))
	return errors.Is(err, zk.ErrConnectionClosed)
}

// vouches stands in for the lease. A connection that is down loses nothing by itself.
// It must not end a session: it is asked under the session's mutex.
func (l *attached) vouches(s *session) bool { return l.id() == s.id }

func (l *attached) leased() bool { return false }

func (l *attached) ordered() bool { return false }

// ask makes one call of the library for each request, all at a time.
func (l *attached) ask(requests ...request) []answer {
	answers := make([]answer, len(requests))
	var others sync.WaitGroup
	for i := 1; i < len(requests); i++ {
		others.Go(func() { answers[i] = requests[i].call(l.client) })
	}
	answers[0] = requests[0].call(l.client)
	others.Wait()
	return answers
}

// heardLasts is for how long an answer vouches for a session: less than the timeout of any.
const heardLasts = 250 * time.Millisecond

// confirm asks the library, too, about a close that is under way.
func (l *attached) confirm(n *Node) bool {
	if asked := l.client.now(); asked-time.Duration(n.heard.Load()) > min(heardLasts, n.session.negotiated()/3) {
		if _, err := l.client.transact(n.znodes.checks()...); err != nil {
			return false
		}
		n.heard.Store(int64(asked))
	}
	return !l.over()
}

// forward passes on the event of one watch, there being no callback.
func (l *attached) forward(events <-chan zk.Event) {
	l.client.spawn(func() {
		select {
		case ev := <-events: // without a path if the channel was closed
			l.client.events.fire(ev)
		case <-l.client.ctx.Done():
		}
	})
}

// close gives calls of the library a second to return, which are not ours to end.
func (l *attached) close() { waitFor(&l.client.tasks, time.Second) }
