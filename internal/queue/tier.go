package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Config describes a store and the settings of its session.
type Config struct {
	Package string // that logs, and begins errors
	Store   string // its name
	second.Settings
	Lost      func(Ref) string   // what has become of a contender that is missing
	Paths     func(string) error // what paths follow besides; see [second.CheckPath]
	Trouble   func() error       // why the store cannot be reached, as known without a command; nil if that is never known
	Elsewhere string             // what has semaphores, and breaks locks, as there is neither here; "" if there is
	Apart     bool               // each contender has a session of its own, which answers that say how it stands renew
	OwnTTL    bool               // a contender stays for a TTL from when a Beat names it, whatever becomes of the session
	Record    func(Record)       // for tests; nil: that of all
}

// Recorder records all commands, answers and notifications between the tiers of this process and their stores. Set it before the first
// tier is opened.
var Recorder = func(Record) {}

// A Tier is the connection of this process to a store: its session, and the contenders under it.
type Tier struct {
	*notice.Connection
	config   Config
	store    Store
	log      notice.Log
	refusals notice.Refusals // of acquisitions and releases, while renewals are answered
	flush    func()          // has the logger write what was logged so far
	follower Follower        // nil if the store tells unasked
	clock    *clock.Clock    // of the leases

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc

	status     atomic.Pointer[status] // changed by learn alone
	contenders sync.Map               // by ID, those that may be in a queue
	left       atomic.Int64           // of these, those that could not be removed so far
	renew      mutexbool.Bool         // the session is to be renewed at once
	commands   atomic.Int64           // that were sent

	closing sync.Once
	mu      sync.Mutex    // guards changes of the status; never held across a command
	tasks   *second.Tasks // every goroutine
}

// A status is what this process knows about the state of the store.
type status struct {
	session *session // the newest, nil before the first
	away    error    // why the store does not answer, or serve; a renewal then finds out whether that is so
	silent  bool     // it has not answered the last renewal
	refused error    // why there will be no session as things stand
	deaf    error    // why no news can come as things stand, although there is a session

	gracePeriod *second.GracePeriodError // the last one; nil before the first
	warned      time.Time                // until when there is one, as was logged

	changed chan struct{} // closed when something else is known
}

// New returns a tier that does nothing before Start.
func New(config Config, store Store) *Tier {
	if config.Record == nil {
		config.Record = Recorder
	}
	t := &Tier{config: config, store: store, clock: clock.New(), tasks: second.NewTasks()}
	t.config.Logger, t.flush = notice.Aside(config.Logger)
	t.log = notice.Log{Logger: t.config.Logger, Package: config.Package}
	t.follower, _ = store.(Follower)
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.status.Store(&status{silent: true, changed: make(chan struct{})})
	t.refusals = notice.Refusals{Log: t.log, Spawn: t.Spawn, Fades: func() time.Duration { return 10*time.Second + t.Patience() }}
	t.Connection = notice.NewConnection(notice.Config{
		Logger: t.config.Logger, Package: config.Package, Store: config.Store, Why: t.Err,
		Patience: func() time.Duration { return t.ttl() / 3 },
	})
	return t
}

// Start begins the first session.
func (t *Tier) Start() {
	t.Spawn(func() { t.Run(t.ctx) })
	t.Spawn(t.keep)
}

// Ready waits for the first session until ctx is done. Ready returns at once, with the reason, if the store refuses to open a session.
// After an error the tier is closed.
func (t *Tier) Ready(ctx context.Context) error {
	err := t.await(ctx, func(s *status) bool { return s.session != nil || s.refused != nil })
	if s := t.status.Load(); err == nil && s.session == nil {
		err = s.refused
	}
	if err != nil {
		t.Close()
	}
	return err
}

// Claim returns the handle that queues for the lock at path.
func (t *Tier) Claim(path string, o second.Options) (second.Claim, error) {
	if err := second.CheckPath(t.config.Package, path, t.config.Paths); err != nil {
		return nil, err
	}
	if len(o.Own) > 0 {
		return nil, fmt.Errorf("%s: lock %s: option of type %T; want a tier.Option", t.config.Package, path, o.Own[0])
	}
	return &claim{tier: t, path: path, mode: o.Mode, linger: o.MayLinger}, nil
}

// Semaphore returns the handle that queues for permits at path.
func (t *Tier) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	if there := t.config.Elsewhere; there != "" {
		return nil, fmt.Errorf("%s: semaphore %s: this store has no semaphores; use %s: %w", t.config.Package, path, there, errors.ErrUnsupported)
	}
	l, err := t.Claim(path, o)
	if err != nil {
		return nil, err
	}
	s := semaphore{l.(*claim)}
	s.given, s.permits = permits, new(atomic.Int64)
	s.learn(permits)
	return s, nil
}

// Err returns nil if the store answers, opens sessions, and can send notifications. Once the tier is closed it returns
// [second.ErrClosed].
func (t *Tier) Err() error { return cmp.Or(t.outage(), t.status.Load().deaf) }

// outage returns why no lock can be acquired at the moment.
func (t *Tier) outage() error { return cmp.Or(t.unreachable(), t.status.Load().refused) }

// unreachable returns why it is useless to send a command at the moment.
func (t *Tier) unreachable() error {
	if t.ctx.Err() != nil {
		return second.ErrClosed
	}
	if away := t.status.Load().away; away != nil || t.config.Trouble == nil {
		return away
	}
	return second.Unavailable(t.config.Trouble())
}

// Refusal returns why acquisitions or releases are refused, or not answered, although renewals are.
func (t *Tier) Refusal() error { return second.Unavailable(t.refusals.Err()) }

// explain adds to the error of a wait why the store could not be reached, if it could not.
func (t *Tier) explain(cause error) error { return t.explainBy(cause, nil) }

// explainBy is explain for a wait whose last request failed, even if the cause affects that request alone.
func (t *Tier) explainBy(cause, refusal error) error {
	problem := t.Err()
	if refusal != nil && !t.status.Load().silent && t.ctx.Err() == nil {
		problem = refusal
	}
	if problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// Groups returns zeros: each command is a request of its own.
func (t *Tier) Groups() (requests, commands int64) { return 0, 0 }

// Now reads the clock of the leases.
func (t *Tier) Now() time.Duration { return t.clock.Now() }

// Logger returns the logger of warnings.
func (t *Tier) Logger() *slog.Logger { return t.config.Logger }

// Context returns a context that ends when the tier is closed.
func (t *Tier) Context() context.Context { return t.ctx }

// Renew makes the tier renew its session at once.
func (t *Tier) Renew() { t.renew.Set() }

// Deafen records why the store can send no notifications, nil if it can.
func (t *Tier) Deafen(why error) {
	before, now := t.learn(func(s *status) {
		if why == nil || s.session != nil { // else what keeps one from beginning counts
			s.deaf = why
		}
	})
	if before.deaf == nil && now.deaf != nil {
		t.config.Logger.Warn(t.config.Package+": lock notifications are unavailable; this process may learn of a grant a quarter of the TTL late",
			"err", why)
	}
}

// InGracePeriod records that the store grants nothing for the time left, according to an answer to a request that was sent at the given
// time. The answer may have been delayed. The answer extends the known grace period only if it still does so when counted from the time
// of the request.
func (t *Tier) InGracePeriod(left time.Duration, sent time.Time, reason string) {
	if left <= 0 {
		return
	}
	q := &second.GracePeriodError{Until: time.Now().Add(left), Reason: reason}
	before, now := t.learn(func(s *status) {
		if s.gracePeriod == nil || q.Until.After(s.gracePeriod.Until) {
			s.gracePeriod = q
		}
		if sent.Add(left).After(s.warned.Add(time.Second)) {
			s.warned = q.Until
		}
	})
	if now.warned != before.warned {
		t.log.InGracePeriod(q)
	}
}

// GracePeriod returns the known grace period of the store, nil if there is none.
func (t *Tier) GracePeriod() *second.GracePeriodError {
	if q := t.status.Load().gracePeriod; q != nil && time.Now().Before(q.Until) {
		return q
	}
	return nil
}

// Close loses every grant and removes all contenders of this process from the queues, unless the store cannot be reached. Close takes a
// second at most.
func (t *Tier) Close() error {
	t.closing.Do(func() {
		t.End()
		t.tasks.Wait()
		t.sayGoodbye()
		t.store.Close()
		t.flush()
	})
	return nil
}

func (t *Tier) sayGoodbye() {
	x := t.status.Load().session
	if x == nil {
		return
	}
	goodbye := Command{Op: Goodbye, Session: x.name}
	t.contenders.Range(func(_, c any) bool {
		goodbye.Among = append(goodbye.Among, c.(*Contender).Ref())
		return true
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	t.do(ctx, goodbye) // if that fails, the session expires
}

// End loses every grant and refuses new acquisitions.
func (t *Tier) End() {
	t.cancel(second.ErrClosed) // first: who finds that nothing begins any more sends nothing
	t.tasks.End()
	t.contenders.Range(func(_, c any) bool {
		c.(*Contender).session.End(second.ErrClosed)
		return true
	})
}

// Spawn runs f as a task of the tier, whose end Close waits for. Spawn reports false when the tier is closed.
func (t *Tier) Spawn(f func()) bool { return t.tasks.Go(f) }

// do sends a command once, and waits for its answer for [Tier.Patience] at most.
func (t *Tier) do(ctx context.Context, c Command) Answer {
	patience := t.Patience()
	if c.Op == Open { // no lease depends on it, and some stores take ten round trips
		patience = t.ttl() / 2
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	number, begun := t.commands.Add(1), t.Now()
	t.config.Record(Record{Number: number, Sent: true, Begun: begun, Command: c})
	a := t.store.Do(bounded, c)
	t.config.Record(Record{Number: number, Begun: begun, Ended: t.Now(), Command: c, Answer: a})
	t.account(c, a)
	switch {
	case a.Outcome == Expired: // which is handled first
	case a.Away == nil || ctx.Err() == nil:
		t.noteAway(a.Away, c.Op == Open || c.Op == Beat)
	case a.Outcome == Unknown || a.Outcome == Failed:
		a.Err = context.Cause(ctx)
	}
	return a
}

// account records requests that are refused or not answered although renewals are answered.
func (t *Tier) account(c Command, a Answer) {
	var what string
	switch c.Op {
	case Open, Beat:
		t.refusals.Reached(a.Away == nil)
		return
	case Enter, Try:
		what = "acquire"
	case Leave:
		what = "release"
	default:
		return
	}
	switch refusal := a.refusal(); {
	case a.Outcome == Done || a.Outcome == Locked:
		t.refusals.Served(what)
	case refusal == nil || t.ctx.Err() != nil:
	case a.Away == nil:
		t.refusals.Refused(what, c.Path, refusal)
	default:
		t.refusals.Suspect(what, c.Path, refusal)
	}
}

// repeat sends a command until it is answered, or ctx is done.
func (t *Tier) repeat(ctx context.Context, send func() Answer) (Answer, error) {
	for pace := retry.New(); ; {
		if t.ctx.Err() != nil {
			return Answer{}, second.ErrClosed
		}
		a := send()
		if a.Outcome != Unknown && a.Outcome != Failed {
			return a, a.Err
		}
		err := retry.Pause(ctx, pace.NextBackOff())
		if err = cmp.Or(err, t.answering(ctx)); err != nil {
			if ctx.Err() != nil {
				err = t.explainBy(context.Cause(ctx), a.refusal())
			}
			return Answer{}, err
		}
	}
}

// learn changes the status, and wakes all goroutines that wait for a change.
func (t *Tier) learn(change func(*status)) (before, now *status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := *t.status.Load()
	change(&s)
	s.changed = make(chan struct{})
	before = t.status.Swap(&s)
	t.Reach(!s.silent)
	close(before.changed)
	return before, &s
}

// await waits until enough accepts the status.
func (t *Tier) await(ctx context.Context, enough func(*status) bool) error {
	for {
		s := t.status.Load()
		if enough(s) {
			return nil
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return t.explain(context.Cause(ctx))
		case <-t.ctx.Done():
			return second.ErrClosed
		}
	}
}

// answering waits until the store answers.
func (t *Tier) answering(ctx context.Context) error {
	return t.await(ctx, func(s *status) bool { return s.away == nil })
}

// noteAway records why the store cannot be used, nil if it can. The next renewal finds out when it is back. Only renewals report the
// state of the connection, since a single request may fail for its own reason.
func (t *Tier) noteAway(why error, renewal bool) {
	why = second.Unavailable(why)
	if s := t.status.Load(); why != nil || s.away != nil || renewal && s.silent { // most often none of these
		t.learn(func(s *status) {
			s.away = why
			if renewal {
				s.silent = why != nil
			}
		})
	}
	if why != nil {
		t.renew.Set()
	}
}

// Patience returns how long a single try of a command may take. It is a fraction of the TTL, since several tries have to fit into the
// time that a lease survives without a renewal.
func (t *Tier) Patience() time.Duration { return max(t.ttl()/6, 500*time.Millisecond) }

// ttl returns the TTL of the present session, or the one to ask for.
func (t *Tier) ttl() time.Duration {
	if x := t.status.Load().session; x != nil {
		return x.ttl
	}
	return t.config.TTL
}

// Tell delivers a notification about a contender. Tell drops a notification for a contender without an owner, also if another contender
// has the same name by now.
func (t *Tier) Tell(v View) {
	now := t.Now()
	t.config.Record(Record{Begun: now, Ended: now, Answer: Answer{View: v}})
	t.tell(v)
}

func (t *Tier) tell(v View) {
	if c, ok := t.contenders.Load(v.ID); ok && (t.follower == nil || v.Token == c.(*Contender).Token()) {
		c.(*Contender).apply(v)
	}
}
