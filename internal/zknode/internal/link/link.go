// Package link is a client's connection to ZooKeeper: sessions and their leases, requests to the servers, and watch events. It works
// around the hazards of the client library. All that it knows of locks is that a session has members.
package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Config has the settings of a link.
type Config struct {
	second.Settings // the TTL is the session timeout to ask for
	Dial            func(ctx context.Context, network, address string) (net.Conn, error)
	LookUp          LookUp      // nil: Dial takes names
	TLS             *tls.Config // on top of Dial; nil for none
	Auth            []Credential
}

// A Credential is presented to the servers before any caller gets a session.
type Credential struct {
	Scheme string
	Secret []byte
}

// A Link is the connection of a client, with its sessions and all requests under way.
type Link struct {
	transport
	Conn   *zk.Conn
	Events Events
	Notice *notice.Connection

	Groups  atomic.Int64 // requests of several batches that were sent
	Grouped atomic.Int64 // requests that would else have been sent by themselves

	heard    mutexbool.Bool        // the first attempt to connect has come to something, or the link has ended
	admitted mutexbool.Bool        // the credentials were presented, see [Link.Present]
	refused  atomic.Pointer[error] // why they were refused, nil if unknown

	config Config
	clock  *clock.Clock // of the leases

	ctx    context.Context // ends, with cause ErrClosed, when the link does
	cancel context.CancelCauseFunc

	tasks *second.Tasks // every goroutine of the client, but those of the library
}

// A transport is the connection and session of a link. It knows everything if the link dials itself, and less over a connection that the
// program has made.
type transport interface {
	// Session returns the newest session, nil while there is none.
	Session() *Session
	// disconnected returns nil while there is a session and a connection.
	disconnected() error
	// awaitConnection waits for that, or the end of ctx, whose cause it returns.
	awaitConnection(ctx context.Context) error
	// PollClose makes the link end soon after its connection, until stopPolling is called.
	PollClose() (stopPolling func())
	// Closed reports whether the program has closed the connection, and then ends the link.
	Closed() bool
	// Ask sends requests and waits for the answers, or the end of the connection. It handles the requested watches before the caller gets
	// the answers.
	Ask(...Request) []Answer
	// Gather is Ask for requests that may leave together with others; see [dialed.Gather].
	Gather(ctx context.Context, path string, requests ...Request) []Answer
	// Leased reports whether sessions have a lease. If so, requests are executed in order and answered within one round trip, and answers
	// have the transaction and the session.
	Leased() bool
	// Close ends the connection, if it is the link's own, and then waits for the end of the tasks. Over a connection that the program has
	// made, it does not wait.
	Close()
}

// New returns a link without a connection; see [Link.Dial] and [Link.Attach].
func New(c Config) *Link {
	l := &Link{
		config: c,
		clock:  clock.New(),
		tasks:  second.NewTasks(),
		Events: Events{watches: make(map[string]*pathWatch)},
	}
	l.Notice = notice.NewConnection(notice.Config{
		Logger: c.Logger, Package: "zklock", Store: "ZooKeeper", Patience: func() time.Duration { return l.Timeout() / 3 }, Why: l.Err,
	})
	// The link outlives the context of Dial, which bounds the wait only.
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that ends, with cause ErrClosed, when the link does.
func (l *Link) Context() context.Context { return l.ctx }

// End loses all holds and refuses new ones.
func (l *Link) End() {
	l.cancel(second.ErrClosed)
	l.tasks.End()
	l.heard.Set()
	if s := l.Session(); s != nil {
		s.End(second.ErrClosed)
	}
}

// Spawn runs f as a task, whose end Close waits for. Spawn reports false when the link has ended.
func (l *Link) Spawn(f func()) bool { return l.tasks.Go(f) }

// Now reads the clock of the leases.
func (l *Link) Now() time.Duration { return l.clock.Now() }

// Clock is for tests.
func (l *Link) Clock() *clock.Clock { return l.clock }

// Margin returns the margin of a lease for a session timeout.
func (l *Link) Margin(timeout time.Duration) time.Duration { return cmp.Or(l.config.Margin, timeout/3) }

// Timeout returns the session timeout, or the one to ask for while there is no session.
func (l *Link) Timeout() time.Duration {
	if s := l.Session(); s != nil {
		return s.Negotiated()
	}
	return l.config.TTL
}

// Scope returns a context that ends with ctx or the link, and its cancel function.
func (l *Link) Scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(second.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Err returns nil while the link is connected, and otherwise why it is not.
func (l *Link) Err() error {
	if l.ctx.Err() != nil {
		return second.ErrClosed
	}
	if l.admitted.IsSet() {
		return l.disconnected()
	}
	if refused := l.refused.Load(); refused != nil {
		return *refused
	}
	return cmp.Or(l.disconnected(), errNotPresented)
}

// ErrOnceHeard is Err, but waits while the first attempt to connect is under way.
func (l *Link) ErrOnceHeard(ctx context.Context) error {
	if err := l.heard.Wait(ctx); err != nil {
		return l.Explain(err)
	}
	return l.Err()
}

// AwaitSession waits until the credentials were presented and a session is established, and returns the session. The error is the cause of
// ctx together with the reason why there is no session.
func (l *Link) AwaitSession(ctx context.Context) (*Session, error) {
	for {
		err := l.admitted.Wait(ctx)
		if err == nil {
			err = l.awaitConnection(ctx)
		}
		if s := l.Session(); err == nil && s != nil {
			return s, nil
		}
		// The session has expired meanwhile, and the library is about to report that it is disconnected.
		if err = retry.Pause(ctx, time.Millisecond); err != nil {
			return nil, l.Explain(err)
		}
	}
}

// Explain adds to the error of a wait why ZooKeeper could not be reached, if it could not.
func (l *Link) Explain(cause error) error {
	if problem := l.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// WaitFor calls wait, but returns when ctx ends.
func WaitFor(ctx context.Context, wait func()) {
	waiting, done := context.WithCancel(ctx)
	go func() {
		wait()
		done()
	}()
	<-waiting.Done()
}
