// Package agent serves the locks of a registry to the processes of a host, over a socket. docs/agent.md has the protocol.
//
// The gate of package tier is the queue of the host: each client that waits is a goroutine of the agent that waits there. Local hand-off,
// fairness, readers and permits are therefore those of any process. This package adds what a goroutine does not need: clients can die, can
// be stopped, and can lose their connection.
package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

// A Config has the settings of an agent.
type Config struct {
	Label   string             // the label of the registry, by which the agent finds itself in a queue
	Lease   time.Duration      // how long a hold lasts that its client does not renew
	Clients int                // how many connections of one user can hold or wait
	Check   func(string) error // returns an error for a path that the store refuses
	Allow   *Rules             // which processes may use which paths; nil if every process that can connect may use all
	Secret  string             // what requests have to present as a bearer token; "" if they need none
	Logger  *slog.Logger
}

// LeastLease is the shortest lease. A shorter one would end on a busy machine although the client is alive.
const LeastLease = 300 * time.Millisecond

// An Agent serves the locks of one registry.
type Agent struct {
	config Config
	locks  *tier.Registry
	clock  *clock.Clock
	server http.Server

	closing atomic.Bool     // no hold begins any more
	evicted context.Context // ends when the remaining holds have to end
	evict   context.CancelFunc

	waiting  atomic.Int64 // requests that wait for a hold
	ends     record
	failures throttle     // of log lines about holds that have ended without a release
	refusals throttle     // of log lines about refused holds
	renewals atomic.Int64 // the serial of the newest renewal; it starts with the time of day, above the serials of earlier agents

	mu     sync.Mutex // guards the fields below; never locked during a call of the registry
	holds  map[string]*hold
	places map[place]map[*seat]bool
	users  map[int]int // the number of connections of each user
}

// A place is a lock, or a semaphore. A semaphore and a lock at the same path are independent.
type place struct {
	path    string
	permits bool
}

// A seat is a client at one place: it waits, or it holds.
type seat struct {
	peer  *peer
	label string
	reads bool
	since time.Time
	hold  *hold // nil while the client waits
}

// New returns an agent for the locks of a registry. The registry is the agent's: [Agent.Shutdown] closes it.
func New(locks *tier.Registry, config Config) *Agent {
	a := &Agent{
		config: config, locks: locks, clock: clock.New(),
		holds: make(map[string]*hold), places: make(map[place]map[*seat]bool), users: make(map[int]int),
	}
	a.failures.most, a.failures.what, a.refusals.most = 20, leftOut, 1
	a.renewals.Store(time.Now().UnixMicro())
	a.evicted, a.evict = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(*request) (any, error){
		"POST /v1/renew":     a.renew,
		"POST /v1/release":   a.release,
		"POST /v1/listen":    a.listen,
		"POST /v1/downgrade": a.downgrade,
		"PUT /v1/value":      a.save,
		"DELETE /v1/value":   a.forget,
		"GET /v1/who":        a.who,
		"GET /v1/locks":      a.list,
		"POST /v1/permits":   a.setPermits,
		"POST /v1/revoke":    a.revoke,
		"POST /v1/break":     a.breakHold,
		"GET /v1/status":     a.status,
	} {
		mux.Handle(pattern, a.answering(handle))
	}
	mux.Handle("GET /v1/value", a.serving(a.load))
	mux.Handle("POST /v1/hold", a.serving(a.hold))
	mux.Handle("/", a.serving(func(http.ResponseWriter, *request) error {
		return &failure{http.StatusNotFound, "invalid", errUnknownRequest}
	}))
	a.server = http.Server{
		Handler: mux, ConnContext: withPeer, ConnState: a.count,
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	return a
}

var errUnknownRequest = errors.New("no such request; docs/agent.md lists them")

// Serve answers the requests of the connections that l accepts. It returns when the agent is closed or l fails.
func (a *Agent) Serve(l net.Listener) error {
	err := a.server.Serve(listener{l})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// count counts the connections of each user, and closes those beyond twice the limit: they would use up the descriptors of the agent. Up to
// there a user who can get no new hold can still renew and release.
func (a *Agent) count(conn net.Conn, state http.ConnState) {
	p := conn.(*peer)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state {
	case http.StateNew:
		a.users[p.uid]++
		if a.users[p.uid] > 2*a.config.Clients {
			conn.Close() // the server then counts it as closed
		}
	case http.StateClosed, http.StateHijacked:
		if a.users[p.uid]--; a.users[p.uid] == 0 {
			delete(a.users, p.uid)
		}
	}
}

// full reports whether the user of a client has too many connections for another hold.
func (a *Agent) full(p *peer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.users[p.uid] > a.config.Clients
}

// Shutdown refuses new holds, ends the waits, and returns when all holds have ended and the registry is closed. When ctx ends, Shutdown
// tells the remaining clients that their holds are lost. Each hold then keeps its lock until its client closes the connection, or until the
// lease of the hold ends. No other host gets the lock before that.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.closing.Store(true)
	defer a.server.Close()
	stop := context.AfterFunc(ctx, a.evict)
	defer stop()
	last, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(a.config.Lease+time.Second, cancel) })()
	err := a.locks.Shutdown(last)
	answered, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = a.server.Shutdown(answered) // the last releases are still being answered; Close ends what takes longer
	return err
}

// validity is for how long a client may count on its hold after a request. The rest of the lease is the time for the client to stop.
func (a *Agent) validity() time.Duration { return a.config.Lease * 2 / 3 }

func (a *Agent) margin() time.Duration { return a.config.Lease - a.validity() }

// condition describes the connection to the store.
func (a *Agent) condition() (s condition) {
	s.State = "connected"
	err := a.locks.Err()
	grace := (*tier.GracePeriodError)(nil)
	switch {
	case a.closing.Load() || errors.Is(err, tier.ErrClosed):
		s.State, err = "closing", tier.ErrClosed
	case errors.As(err, &grace):
		s.State, s.Grace = "grace_period", max(time.Until(grace.Until).Milliseconds(), 1)
	case err != nil:
		s.State = "unavailable"
	}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// A condition is the state of the connection to the store.
type condition struct {
	State string `json:"state,omitempty"` // connected, unavailable, grace_period, closing
	Error string `json:"error,omitempty"`
	Grace int64  `json:"grace_ms,omitempty"` // how long the grace period still lasts
}

// A status is the answer to a question about the agent.
type status struct {
	Version int `json:"version"`
	condition
	PID         int   `json:"pid"`
	Lease       int64 `json:"lease_ms"`
	Holds       int   `json:"holds"`
	Waiting     int64 `json:"waiting"`
	Connections int   `json:"connections"`
}

func (a *Agent) status(*request) (any, error) {
	s := status{
		Version: 1, condition: a.condition(), PID: os.Getpid(), Lease: a.config.Lease.Milliseconds(), Waiting: a.waiting.Load(),
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Holds = len(a.holds)
	for _, n := range a.users {
		s.Connections += n
	}
	return s, nil
}

// clients returns the clients of this host at a place, the holders first, and then by how long they have been there.
func (a *Agent) clients(at place) []client {
	a.mu.Lock()
	var seats []seat
	for one := range a.places[at] {
		seats = append(seats, *one)
	}
	a.mu.Unlock()
	all := []client{}
	for _, one := range seats {
		c := client{
			PID: one.peer.pid, UID: one.peer.uid, Label: one.label, Since: one.since.UTC(),
			Holds: one.hold != nil, Shared: one.reads, peer: one.peer,
		}
		if c.Holds {
			tokens := one.hold.tokens()
			c.Token, c.Permits = cmp.Or(tokens.Token, tokens.Tokens[at.path]), one.hold.wish.permits
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y client) int {
		if x.Holds != y.Holds {
			return map[bool]int{true: -1, false: 1}[x.Holds]
		}
		return x.Since.Compare(y.Since)
	})
	return all
}
