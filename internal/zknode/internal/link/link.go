// Package link is a client's connection to ZooKeeper: sessions and their leases, requests to the servers, and watch events. It works around
// the hazards of the client library. It knows nothing about locks, only the members of a session.
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
	second.Settings // their TTL is the session timeout that the client requests
	Dial            func(ctx context.Context, network, address string) (net.Conn, error)
	LookUp          LookUp      // nil if Dial takes names
	TLS             *tls.Config // the connection of Dial is wrapped in TLS; nil for no TLS
	Auth            []Credential
}

// A Credential is presented to the servers before any caller gets a session.
type Credential struct {
	Scheme string
	Secret []byte
}

// A Link is the connection of a client, with its sessions and all requests that have no answer yet.
type Link struct {
	transport
	Conn   *zk.Conn
	Events Events
	Notice *notice.Connection

	Groups  atomic.Int64 // the number of sent requests that combined several batches
	Grouped atomic.Int64 // the number of batches in these requests

	heard    mutexbool.Bool        // set when the first attempt to connect has succeeded or failed, or the link has ended
	admitted mutexbool.Bool        // set when the credentials were presented, see [Link.Present]
	refused  atomic.Pointer[error] // why the credentials were refused; nil if that is unknown

	config Config
	clock  *clock.Clock // the clock of the leases

	ctx    context.Context // ends with the link, with cause ErrClosed
	cancel context.CancelCauseFunc

	tasks *second.Tasks // has every goroutine of the client, except those of the library
}

// A transport is the connection and session of a link. There are two: dialed over connections that the link makes, and attached over a
// connection that the program has made, which it knows less about.
type transport interface {
	// Session returns the newest session, or nil if there is none.
	Session() *Session
	// disconnected returns nil while there is a session and a connection, and otherwise the reason.
	disconnected() error
	// awaitConnection waits until there is a session and a connection. If ctx ends first, it returns the cause of ctx.
	awaitConnection(ctx context.Context) error
	// PollClose polls whether the program has closed the connection, and then ends the link. It polls until stopPolling is called.
	PollClose() (stopPolling func())
	// Closed reports whether the program has closed the connection. In that case Closed also ends the link.
	Closed() bool
	// Ask sends requests and waits for the answers, or for the end of the connection. It registers the requested watches before the caller
	// gets the answers.
	Ask(...Request) []Answer
	// Gather is like Ask, but its requests may leave together with others; see [dialed.Gather].
	Gather(ctx context.Context, path string, requests ...Request) []Answer
	// Leased reports whether sessions have a lease. If they have, requests are executed in order and answered within one round trip, and
	// answers contain the transaction and the session.
	Leased() bool
	// If the link has made the connection, Close ends it, and then waits for the end of the tasks. Over a connection that the program has
	// made, Close does not wait.
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
	// The context is not derived from that of Dial, because the link outlives Dial.
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that ends with the link, with cause ErrClosed.
func (l *Link) Context() context.Context { return l.ctx }

// End ends all holds and refuses new ones.
func (l *Link) End() {
	l.cancel(second.ErrClosed)
	l.tasks.End()
	l.heard.Set()
	if s := l.Session(); s != nil {
		s.End(second.ErrClosed)
	}
}

// Spawn runs f as a task. Close waits for the end of each task. When the link has ended, Spawn returns false and does not run f.
func (l *Link) Spawn(f func()) bool { return l.tasks.Go(f) }

// Now returns the time of the clock of the leases.
func (l *Link) Now() time.Duration { return l.clock.Now() }

// Clock returns the clock of the leases. It is for tests.
func (l *Link) Clock() *clock.Clock { return l.clock }

// Margin returns the margin of a lease for a session timeout.
func (l *Link) Margin(timeout time.Duration) time.Duration { return cmp.Or(l.config.Margin, timeout/3) }

// Timeout returns the session timeout. While there is no session, it returns the timeout that will be requested.
func (l *Link) Timeout() time.Duration {
	if s := l.Session(); s != nil {
		return s.Negotiated()
	}
	return l.config.TTL
}

// Scope returns a context that ends with ctx or with the link, and a function that cancels it.
func (l *Link) Scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(second.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Err returns nil while the link is connected. Otherwise it returns the reason.
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

// ErrOnceHeard is like Err, but first waits until the first attempt to connect has succeeded or failed.
func (l *Link) ErrOnceHeard(ctx context.Context) error {
	if err := l.heard.Wait(ctx); err != nil {
		return l.Explain(err)
	}
	return l.Err()
}

// AwaitSession waits until the credentials have been presented and a session is established, and returns the session. The error combines
// the cause of ctx with the reason why there is no session.
func (l *Link) AwaitSession(ctx context.Context) (*Session, error) {
	for {
		err := l.admitted.Wait(ctx)
		if err == nil {
			err = l.awaitConnection(ctx)
		}
		if s := l.Session(); err == nil && s != nil {
			return s, nil
		}
		// The session has just expired, and the library is about to report the end of the connection.
		if err = retry.Pause(ctx, time.Millisecond); err != nil {
			return nil, l.Explain(err)
		}
	}
}

// Explain returns cause, the error of a wait. If ZooKeeper cannot be reached, it adds the reason for that.
func (l *Link) Explain(cause error) error {
	if problem := l.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// WaitFor calls wait and returns when wait has returned. If ctx ends first, WaitFor returns at once.
func WaitFor(ctx context.Context, wait func()) {
	waiting, done := context.WithCancel(ctx)
	go func() {
		wait()
		done()
	}()
	<-waiting.Done()
}
