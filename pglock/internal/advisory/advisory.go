// Package advisory is a store over PostgreSQL's session advisory locks. What is promised of it, and what is not, is said at
// pglock.NewAdvisory.
//
// What is particular: each contender has a session at the server of its own, in which it waits for the advisory lock of its path and
// holds it, and which the server ends when it is idle for the TTL; so each has a lease of its own, and all that a command may leave
// goes with a connection that is closed.
//
// Sessions that nobody uses are kept for others for a while. One more connection, the ear, hears who waits and who is asked, and looks
// after those that wait: their own connections are busy.
package advisory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A Config is what the store has to know of the server and of its user.
type Config struct {
	Pool   *pgxpool.Pool // says how to connect
	TTL    time.Duration
	Margin time.Duration // how long before its end at the server a lease counts as over
	Logger *slog.Logger
	Label  string
	// CheckSchema says whether the database has what the store needs.
	CheckSchema func(context.Context, *pgx.Conn) error
	// Permanent reports whether retrying cannot fix an error.
	Permanent func(error) bool
}

// KeyOf is the key of the advisory lock of a path: the first eight bytes of the SHA-256 of its name here. Two paths with the same key
// exclude each other, no more.
func KeyOf(path string) int64 {
	sum := sha256.Sum256([]byte("tierlock:" + path))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// A Store is the advisory locks of a database as this process sees them.
type Store struct {
	config Config
	tier   *queue.Tier
	host   string // for people to read

	names   atomic.Int64 // of contenders, so far
	views   atomic.Int64 // that were told, so far
	entries sync.Map     // by ID

	mu      sync.Mutex // guards the fields below; never held across a request
	closed  bool
	tasks   sync.WaitGroup // every goroutine of the store
	ear     *line          // nil while there is none
	problem error          // why there is none, nil before the first
	heard   time.Duration  // what the server has answered last on the ear was sent then
	opened  int            // sessions of the tier so far
	spares  []*line
}

// Open returns a tier on a store that begins to connect.
func Open(c Config) *queue.Tier {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	s := &Store{config: c, host: strings.ReplaceAll(host, " ", "_")}
	s.tier = queue.New(queue.Config{
		Package: "pglock", Store: "PostgreSQL", TTL: c.TTL, Margin: c.Margin, Logger: c.Logger, Apart: true, Paths: second.Components,
		Elsewhere: "pglock.New, which keeps locks in tables,",
		Lost:      func(queue.Ref) string { return errUnseen.Error() },
	}, s)
	s.tier.Start()
	return s.tier
}

var errUnseen = errors.New("the server does not know any more that this session waits, or has the lock")

// Name is for this process alone: others know the contender by the server's process.
func (s *Store) Name(string) string { return strconv.FormatInt(s.names.Add(1), 10) }

// Do executes a command. Enter takes a second round trip if it has to wait. What is not answered is undone by the server once it knows
// that the connection is closed: so nothing is unknown, and there is nothing to audit, to drop, or to say at the end.
func (s *Store) Do(ctx context.Context, c queue.Command) queue.Answer {
	a := s.execute(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Outcome != queue.Denied { // which is an answer, and at once
		a.Away = s.problem
	}
	return a
}

func (s *Store) execute(ctx context.Context, c queue.Command) queue.Answer {
	switch c.Op {
	case queue.Open:
		return s.open(ctx)
	case queue.Beat:
		return s.beat(ctx)
	case queue.Enter, queue.Try:
		return s.enter(ctx, c)
	case queue.Leave:
		return s.leave(ctx, c)
	case queue.Look: // for somebody who wants to know now, and of those who come soon
		return s.tend(ctx, c, func(e *entry) error {
			e.stir()
			return e.look()
		})
	case queue.Share:
		return s.tend(ctx, c, (*entry).share)
	case queue.List:
		return s.list(ctx, KeyOf(c.Path))
	case queue.Ask:
		return s.ask(ctx, KeyOf(c.Path))
	}
	return queue.Answer{Outcome: queue.Done}
}

// failed is the answer to what was not executed, or is undone.
func (s *Store) failed(err error) queue.Answer {
	if s.config.Permanent(err) || errors.Is(err, errors.ErrUnsupported) {
		return queue.Answer{Outcome: queue.Denied, Err: err}
	}
	return queue.Answer{Outcome: queue.Failed, Err: err}
}

// open begins a session of the tier: that is the time for which the server hears of this process.
func (s *Store) open(ctx context.Context) queue.Answer {
	ear, err := s.listener(ctx)
	if err != nil {
		return s.failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return queue.Answer{Outcome: queue.Done, Name: fmt.Sprint(ear, " ", s.opened), TTL: s.config.TTL}
}

// beat has the server answer on the ear, or on a new one. After a TTL without that no session of ours is left.
func (s *Store) beat(ctx context.Context) queue.Answer {
	s.mu.Lock()
	heard := s.heard
	s.mu.Unlock()
	_, err := s.listener(ctx)
	if err == nil {
		err = s.lookAround(ctx)
	}
	switch {
	case err == nil && s.tier.Now()-heard > s.config.TTL, err != nil && s.config.Permanent(err):
		return queue.Answer{Outcome: queue.Expired, Err: cmp.Or(err, errors.New("the server has not been heard for a whole TTL"))}
	case err != nil:
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done}
}

// listener returns the ear, and makes one if there is none. It is called by one at a time.
func (s *Store) listener(ctx context.Context) (*line, error) {
	s.mu.Lock()
	ear := s.ear
	s.mu.Unlock()
	if ear != nil {
		return ear, nil
	}
	sent := s.tier.Now()
	ear, err := s.dial(ctx, func(_ *pgconn.PgConn, n *pgconn.Notification) { s.told(n) })
	if err == nil {
		if _, err = ear.conn.Exec(ctx, "LISTEN tierlock"); err != nil {
			ear.drop()
		}
	}
	if err != nil {
		s.deafen(nil, err)
		return nil, err
	}
	ear.schedule(time.Now().Add(s.config.TTL))
	s.mu.Lock()
	s.ear, s.problem, s.heard = ear, nil, sent
	s.mu.Unlock()
	s.spawn(func() { s.hear(ear) })
	return ear, nil
}

// deafen says that there is no ear any more, or still none.
func (s *Store) deafen(ear *line, why error) {
	s.mu.Lock()
	mine := s.ear == ear
	if mine {
		s.ear, s.problem = nil, fmt.Errorf("PostgreSQL cannot be reached: %w", why)
	}
	s.mu.Unlock()
	if ear != nil && mine {
		ear.drop()
		s.dropSpares(true)
		s.tier.Renew()
	}
}

// hear listens, and looks at the queues in which somebody waits, until the ear breaks.
func (s *Store) hear(ear *line) {
	for {
		due, err := ear.listen()
		if err == nil && due {
			err = s.lookAround(context.Background())
		}
		if err != nil {
			s.deafen(ear, err)
			return
		}
	}
}

// told takes a notification, which may be late or never come: there is somebody who waits for a lock, or who asks for it.
func (s *Store) told(n *pgconn.Notification) {
	verb, rest, _ := strings.Cut(n.Payload, " ")
	who, what, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseInt(who, 10, 64)
	for e := range s.all {
		switch {
		case err != nil:
		case verb == "waits" && e.key == number && e.session.pid != n.PID:
			e.stir()
		case verb == "asked" && int64(e.session.pid) == number:
			e.revoke(what)
		}
	}
}

// hurry has the ear look around soon, but not for waits that are short.
func (s *Store) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ear != nil {
		s.ear.hurry(time.Now().Add(s.config.TTL / 24))
	}
}

// lookAround looks at the queues in which somebody waits, or just has the server answer.
func (s *Store) lookAround(ctx context.Context) error {
	var waiting []*entry
	var keys []int64
	for e := range s.all {
		if e.token.Load() == 0 {
			waiting, keys = append(waiting, e), append(keys, e.key)
		}
	}
	sent := s.tier.Now()
	queues, err := s.look(ctx, keys...)
	if err != nil {
		return err
	}
	next := s.config.TTL // which is never, as a beat comes before
	if len(waiting) > 0 {
		next = s.config.TTL / 12
	}
	s.mu.Lock()
	s.heard = sent
	if s.ear != nil {
		s.ear.schedule(time.Now().Add(next))
	}
	s.mu.Unlock()
	for _, e := range waiting {
		e.seen(queues[e.key])
	}
	s.dropSpares(false)
	return nil
}

// talk asks on the ear, if there is one.
func (s *Store) talk(ctx context.Context, c call) (rows [][][]byte, err error) {
	s.mu.Lock()
	ear, problem := s.ear, s.problem
	s.mu.Unlock()
	if ear == nil {
		return nil, cmp.Or(problem, errDropped)
	}
	err = ear.talk(ctx, func() (err error) {
		if rows, err = ear.ask(ear.bound, c); err != nil && !refused(err) {
			s.deafen(ear, err)
		}
		return err
	})
	return rows, err
}

// look asks who has or wants the locks of these keys, the holder first.
func (s *Store) look(ctx context.Context, keys ...int64) (map[int64][]place, error) {
	rows, err := s.talk(ctx, call{"look", []string{array(keys...)}})
	queues := make(map[int64][]place)
	for _, p := range places(rows) {
		queues[p.key] = append(queues[p.key], p)
	}
	return queues, err
}

// list reads the lock table of the server once. Those that wait have no token yet. In a quarantine, all that the server has granted
// was granted since that began.
func (s *Store) list(ctx context.Context, key int64) queue.Answer {
	queues, err := s.look(ctx, key)
	if err != nil {
		return s.failed(err)
	}
	a := queue.Answer{Outcome: queue.Done}
	for _, p := range queues[key] {
		d := p.describe()
		d.Quarantined = s.tier.Quarantine() != nil && p.granted && p.ours()
		a.Queue = append(a.Queue, d)
	}
	return a
}

// ask notifies those that have the lock. A notification can be lost, so it is sent again until each shows in its name that it knows,
// or has given the lock up; after a moment, in the background.
func (s *Store) ask(ctx context.Context, key int64) queue.Answer {
	unaware, err := s.askOnce(ctx, key)
	for end := time.Now().Add(s.config.TTL / 8); err == nil && unaware && time.Now().Before(end); {
		if err = retry.Pause(ctx, s.config.TTL/100); err == nil {
			unaware, err = s.askOnce(ctx, key)
		}
	}
	if err != nil {
		return s.failed(err)
	}
	if unaware {
		s.spawn(func() { s.keepAsking(key) })
	}
	return queue.Answer{Outcome: queue.Done}
}

// keepAsking gives up after a lease, by when whoever had the lock and is not heard from has lost it.
func (s *Store) keepAsking(key int64) {
	ctx, cancel := context.WithTimeout(s.tier.Context(), s.config.TTL)
	defer cancel()
	for pace := retry.New(); retry.Pause(ctx, pace.NextBackOff()) == nil; {
		if unaware, err := s.askOnce(ctx, key); err == nil && !unaware {
			return
		}
	}
}

// askOnce asks those that do not know it yet, and reports whether there was one.
func (s *Store) askOnce(ctx context.Context, key int64) (unaware bool, err error) {
	queues, err := s.look(ctx, key)
	for _, p := range queues[key] {
		d := p.describe()
		switch {
		case !p.granted || d.Asked:
			continue
		case !p.ours():
			return false, fmt.Errorf("server process %d is not of this package, and would not hear of it: %w", p.pid, errors.ErrUnsupported)
		}
		unaware = true
		if _, err := s.talk(ctx, call{"ask", []string{d.ID + " " + strconv.FormatInt(d.Token, 10)}}); err != nil {
			return false, err
		}
	}
	return unaware, err
}

// Close closes all connections, with which the server gives the locks away.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	lines := s.spares
	if s.ear != nil {
		lines = append(lines, s.ear)
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, x := range lines {
		all.Go(x.close)
	}
	for e := range s.all {
		all.Go(e.close)
	}
	all.Wait()
	s.tasks.Wait()
}

// spawn runs f as a task of the store, whose end Close waits for. It does nothing once the store is closed.
func (s *Store) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Go(f)
	}
}

// session returns a connection that nobody uses, the one that was used last, so that the others grow old; or a new one.
func (s *Store) session(ctx context.Context) (*line, error) {
	s.dropSpares(false)
	s.mu.Lock()
	if n := len(s.spares); n > 0 {
		defer s.mu.Unlock()
		x := s.spares[n-1]
		s.spares = s.spares[:n-1]
		return x, nil
	}
	s.mu.Unlock()
	return s.dial(ctx, nil)
}

// keep keeps a connection whose session has neither lock nor contender for others.
func (s *Store) keep(x *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.spare = time.Now()
	s.spares = append(s.spares, x)
}

// dropSpares closes the connections that nobody has used for so long that the server may have ended their sessions, or all.
func (s *Store) dropSpares(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = slices.DeleteFunc(s.spares, func(x *line) bool {
		drop := all || time.Since(x.spare) >= s.config.TTL/2
		if drop && !s.closed {
			s.tasks.Go(x.close)
		}
		return drop
	})
}
