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
	Package string // the package name that begins errors and log lines
	Store   string // the name of the store
	second.Settings
	Lost      func(Ref) string   // describes what has happened to a contender that is missing
	Paths     func(string) error // the store's own rule for paths; see [second.CheckPath]
	Trouble   func() error       // returns why the store cannot be reached, without a command; nil if only the answers to commands show that
	Elsewhere string             // the package to use for semaphores and Break, if this store has neither; otherwise ""
	Apart     bool               // each contender has its own lease, and each answer with a view of the contender renews it
	Evicts    func() error       // returns why the store may lose values that were saved; nil if it never does
	OwnTTL    bool               // the store keeps a contender for a TTL after a Beat that names it, even if the session ends
	Record    func(Record)       // for tests; nil means Recorder
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
	refusals notice.Refusals // acquisitions and releases that the store refused although it answered renewals
	flush    func()          // waits until the logger has written all lines so far
	follower Follower        // nil if the store reports all contenders without being asked
	clock    *clock.Clock    // of the leases

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc

	status     atomic.Pointer[status] // only the method learn changes it
	contenders sync.Map               // by ID, the contenders that may be in a queue
	quitters   sync.Map               // by path of a semaphore, the contender that was the last one to stop waiting, until it is removed
	left       atomic.Int64           // the number of contenders whose removal has failed so far
	renew      mutexbool.Bool         // set when the session has to be renewed at once
	commands   atomic.Int64           // how many were sent

	closing sync.Once
	mu      sync.Mutex    // guards changes of the status; never held across a command
	tasks   *second.Tasks // all goroutines of the tier
}

// A status is what this process knows about the state of the store.
type status struct {
	session *session // the newest session; nil before the first
	away    error    // why the last command failed to reach the store; a renewal then checks whether it can be reached
	silent  bool     // the store has not answered the last renewal
	refused error    // why the store refuses to open or renew a session
	renewal bool     // refused is about a renewal, so the store may still open a session
	deaf    error    // why the store can send no notifications, although there is a session

	gracePeriod *second.GracePeriodError // the last grace period; nil before the first
	warned      time.Time                // the end of the grace period according to the last warning

	changed chan struct{} // closed when the status is replaced
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

// explain returns the error of a wait. If the store cannot be used, explain adds the reason.
func (t *Tier) explain(cause error) error { return t.explainBy(cause, nil) }

// explainBy is explain for a wait whose last request failed. The reason that it adds is refusal, the error of that request.
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

// Groups returns zeros, because no request carries more than one command.
func (t *Tier) Groups() (requests, commands int64) { return 0, 0 }

// Now reads the clock of the leases.
func (t *Tier) Now() time.Duration { return t.clock.Now() }

// Logger returns the logger of warnings.
func (t *Tier) Logger() *slog.Logger { return t.config.Logger }

// Context returns a context that ends when the tier is closed.
func (t *Tier) Context() context.Context { return t.ctx }

// Renew makes the tier renew its session at once.
func (t *Tier) Renew() { t.renew.Set() }

// Deafen records why the store can send no notifications. A nil reason means that it can.
func (t *Tier) Deafen(why error) {
	before, now := t.learn(func(s *status) {
		if why == nil || s.session != nil { // without a session, the reason for that is reported instead
			s.deaf = why
		}
	})
	if before.deaf == nil && now.deaf != nil {
		t.config.Logger.Warn(t.config.Package+": lock notifications are unavailable; this process may learn of a grant a quarter of the TTL late",
			"err", why)
	}
}

// InGracePeriod records that the store grants nothing for the time left, according to the answer to a request. sent is when the request was
// sent. If the answer was delayed, the grace period ends earlier than it seems. InGracePeriod therefore logs a new end only if left,
// counted from sent, also ends later than the logged end.
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

// GracePeriod returns the present grace period of the store, as far as this process knows. It returns nil if there is none.
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
	t.do(ctx, goodbye) // if this fails, the session expires in the store
}

// End loses every grant and refuses new acquisitions.
func (t *Tier) End() {
	t.cancel(second.ErrClosed) // before tasks.End: a caller whose task is refused then finds the tier closed, and sends nothing
	t.tasks.End()
	t.contenders.Range(func(_, c any) bool {
		c.(*Contender).session.End(second.ErrClosed)
		return true
	})
}

// Spawn runs f as a task of the tier. Close waits for the end of all tasks. If the tier is closed, Spawn does not run f, and returns false.
func (t *Tier) Spawn(f func()) bool { return t.tasks.Go(f) }

// do sends a command once. It waits for the answer no longer than [Tier.Patience], or half of the TTL if the command is Open.
func (t *Tier) do(ctx context.Context, c Command) Answer {
	patience := t.Patience()
	if c.Op == Open { // no lease can run out during an Open, and some stores need ten round trips for it
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
	case a.Outcome == Expired: // the caller handles this before anything else
	case a.Away == nil || ctx.Err() == nil:
		t.noteAway(a.Away, c.Op == Open || c.Op == Beat)
	case a.Outcome == Unknown || a.Outcome == Failed:
		a.Err = context.Cause(ctx)
	}
	return a
}

// account records whether a request was served, refused or not answered. The refusals tell whether the store refuses requests although it
// answers renewals.
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

// await waits until the function enough returns true for the status.
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

// answering waits until the store can be reached, as far as the status shows.
func (t *Tier) answering(ctx context.Context) error {
	return t.await(ctx, func(s *status) bool { return s.away == nil })
}

// noteAway records why the store cannot be used, and nil if it can. If it cannot, noteAway requests a renewal, which finds out whether the
// store can be used again. Only renewals change the reported state of the connection, since any other request may fail for its own reason.
func (t *Tier) noteAway(why error, renewal bool) {
	why = second.Unavailable(why)
	if s := t.status.Load(); why != nil || s.away != nil || renewal && s.silent { // usually there is nothing to change
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

// Patience returns how long a single try of a command may take. It is a fraction of the TTL: the time that a lease survives without a
// renewal has to suffice for several tries.
func (t *Tier) Patience() time.Duration { return max(t.ttl()/6, 500*time.Millisecond) }

// ttl returns the TTL of the newest session. Before the first session, it returns the TTL in the settings.
func (t *Tier) ttl() time.Duration {
	if x := t.status.Load().session; x != nil {
		return x.ttl
	}
	return t.config.TTL
}

// Tell delivers a notification about a contender of this process. It drops notifications about contenders that this process does not know
// any more. On a store that is a [Follower], it also drops one whose token shows that it is about an earlier contender of the same name.
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
