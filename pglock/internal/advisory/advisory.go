// Package advisory is a store over PostgreSQL's session advisory locks. What is promised of it, and what is not, is said at
// pglock.NewAdvisory.
//
// What is particular: each contender has a session at the server of its own, in which it waits for the advisory lock of its path and
// holds it, and which the server ends when it is idle for the TTL; so each has a lease of its own, and all that a command may leave
// goes with a connection that is closed.
//
// Sessions that nobody uses are kept for others for a while. One more connection, the ear, hears who waits and who is asked, and looks
// at the queues: a connection that waits is busy. A connection that holds is read for its end, and has the server answer for the lease.
package advisory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
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
	second.Settings
	Pool *pgxpool.Pool // says how to connect
	// CheckSchema says whether the database has what the store needs.
	CheckSchema func(context.Context, *pgx.Conn) error
	// Permanent reports whether retrying cannot fix an error.
	Permanent func(error) bool
}

// KeyOf is the key of the advisory lock of a path: the first eight bytes of the SHA-256 of its name here. Two paths with the same key
// exclude each other, no more.
func KeyOf(path string) string {
	sum := sha256.Sum256([]byte("tierlock:" + path))
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:8])), 10)
}

// A Store is the advisory locks of a database as this process sees them.
type Store struct {
	config Config
	tier   *queue.Tier
	self   second.Description

	names   atomic.Int64 // of contenders and sessions, so far
	entries sync.Map     // by ID
	soon    atomic.Bool  // holders will be attended
	heard   atomic.Int64 // on the tier's clock, when that was sent what the server has answered last on the ear

	tasks *second.Tasks // every goroutine of the store, for waits outlast those of the tier

	mu      sync.Mutex    // guards the fields below; never held across a request
	ear     *line         // nil while there is none
	problem error         // why there is none, nil before the first
	pause   time.Duration // until its next look, which grows
	spares  []*line
}

// Open returns a tier on a store that begins to connect.
func Open(c Config) *queue.Tier {
	c.Margin = cmp.Or(c.Margin, c.TTL/3)
	self := second.Describe(c.Label)
	self.Host, _, _ = strings.Cut(self.Host, ".")
	s := &Store{config: c, self: self, pause: c.TTL, tasks: second.NewTasks()}
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
func (s *Store) Do(ctx context.Context, c queue.Command) (a queue.Answer) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.Outcome != queue.Denied { // which is an answer, and at once
			a.Away = s.problem
		}
	}()
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
		s.stir(0)
		return s.tend(ctx, c, (*entry).beat)
	case queue.Share:
		return s.tend(ctx, c, (*entry).share)
	case queue.List:
		return s.list(ctx, KeyOf(c.Path))
	case queue.Ask:
		return s.ask(ctx, KeyOf(c.Path))
	case queue.Audit, queue.Drop, queue.Goodbye: // a contender goes with its connection
		return queue.Answer{Outcome: queue.Done}
	}
	return queue.Answer{Outcome: queue.Denied, Err: errors.ErrUnsupported}
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
	if err := s.listen(ctx); err != nil {
		return s.failed(err)
	}
	return queue.Answer{Outcome: queue.Done, Name: s.Name(""), TTL: s.config.TTL}
}

// beat has the server answer on the ear, or on a new one. After a TTL without that no session of ours is left.
func (s *Store) beat(ctx context.Context) queue.Answer {
	heard := time.Duration(s.heard.Load())
	err := s.listen(ctx)
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

// listen makes an ear if there is none. It is called by one at a time.
func (s *Store) listen(ctx context.Context) error {
	s.mu.Lock()
	listens := s.ear != nil
	s.mu.Unlock()
	if listens {
		return nil
	}
	sent := s.tier.Now()
	ear, err := s.dial(ctx)
	if err == nil {
		if _, err = ear.conn.Exec(ctx, "LISTEN tierlock"); err != nil {
			ear.drop(err)
		}
	}
	if err != nil {
		s.deafen(nil, err)
		return err
	}
	s.mu.Lock()
	s.ear, s.problem = ear, nil
	s.mu.Unlock()
	s.heard.Store(int64(sent))
	s.tasks.Go(func() { // it looks at the queues until the ear breaks
		s.deafen(ear, ear.attend(func() bool { return false }, func() error { return s.lookAround(context.Background()) }))
	})
	return nil
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
		ear.drop(why)
		s.dropSpares(true)
		s.tier.Renew()
	}
}

// told takes a notification, which may be late or never come: there is somebody who waits for a lock, or who asks for it.
func (s *Store) told(n *pgconn.Notification) {
	verb, rest, _ := strings.Cut(n.Payload, " ")
	who, what, _ := strings.Cut(rest, " ")
	for e := range s.all {
		switch {
		case verb == "waits" && e.key == who && e.session.pid != fmt.Sprint(n.PID) && e.token.Load() != 0 && !e.over.Load():
			s.stir(0)
		case verb == "asked" && e.session.pid == who:
			e.revoke(what)
		}
	}
}

// nearest is the time between two looks at first.
const nearest = 2 * time.Millisecond

// stir has the ear look around soon, and from then on ever more rarely: whoever is expected may still be on the way.
func (s *Store) stir(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = min(s.pause, max(after, nearest))
	if s.ear != nil {
		s.ear.hurry(time.Now().Add(after))
	}
}

// lookAround looks at the queues of our entries, or just has the server answer. Who holds is looked after by each beat besides.
func (s *Store) lookAround(ctx context.Context) error {
	var all []*entry
	var keys []string
	longest := s.config.TTL // which is never, as a beat comes before
	for e := range s.all {
		all, keys = append(all, e), append(keys, e.key)
		if e.token.Load() == 0 {
			longest = s.config.TTL / 12
		}
	}
	sent := s.tier.Now()
	s.mu.Lock()
	s.pause = min(4*s.pause, longest)
	if s.ear != nil {
		s.ear.schedule(time.Now().Add(s.pause))
	}
	s.mu.Unlock()
	queues, err := s.look(ctx, keys...)
	if err != nil {
		return err
	}
	s.heard.Store(int64(sent))
	for _, e := range all {
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
func (s *Store) look(ctx context.Context, keys ...string) (map[string][]place, error) {
	rows, err := s.talk(ctx, call{"look", "{" + strings.Join(keys, ",") + "}"})
	return places(rows), err
}

// list reads the lock table of the server once. Those that wait have no token yet. In a quarantine, all that the server has granted
// was granted since that began.
func (s *Store) list(ctx context.Context, key string) queue.Answer {
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
func (s *Store) ask(ctx context.Context, key string) queue.Answer {
	unaware, err := s.askOnce(ctx, key)
	if err != nil {
		return s.failed(err)
	}
	moment, cancel := context.WithTimeout(ctx, s.config.TTL/8)
	defer cancel()
	second.Do(moment, s.tasks.Go, func() (any, error) {
		ctx, cancel := context.WithTimeout(s.tier.Context(), s.config.TTL) // after which whoever had the lock and is not heard from has lost it
		defer cancel()
		for pace := retry.New(); (unaware || err != nil) && retry.Pause(ctx, pace.NextBackOff()) == nil; {
			unaware, err = s.askOnce(ctx, key)
		}
		return nil, nil
	}, func(cause error) error { return cause })
	return queue.Answer{Outcome: queue.Done}
}

// askOnce asks those that do not know it yet, and reports whether there was one.
func (s *Store) askOnce(ctx context.Context, key string) (unaware bool, err error) {
	queues, err := s.look(ctx, key)
	for _, p := range queues[key] {
		d := p.describe()
		switch {
		case !p.granted || d.Asked:
			continue
		case !p.ours():
			return false, fmt.Errorf("server process %s is not of this package, and would not hear of it: %w", p.pid, errors.ErrUnsupported)
		}
		unaware = true
		if _, err := s.talk(ctx, call{"ask", d.ID + " " + strconv.FormatInt(d.Token, 10)}); err != nil {
			return false, err
		}
	}
	return unaware, err
}

// Close gives all locks up, and closes all connections.
func (s *Store) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), s.tier.Patience())
	defer cancel()
	var all sync.WaitGroup
	for e := range s.all {
		all.Go(func() {
			if s.leave(ctx, queue.Command{Ref: queue.Ref{ID: e.id}}).Outcome != queue.Done {
				e.session.drop(second.ErrClosed)
			}
		})
	}
	all.Wait()
	s.mu.Lock()
	if s.ear != nil {
		s.spares = append(s.spares, s.ear)
	}
	for _, x := range s.spares {
		s.tasks.Go(x.close)
	}
	s.mu.Unlock()
	s.tasks.End()
	s.tasks.Wait()
}

// soon after the grant, a hold is no longer a short one.
const soon = 20 * time.Millisecond

// attendSoon has the sessions of holders looked after a moment later, of all at once: a short hold costs nothing, not even a timer.
func (s *Store) attendSoon() {
	if s.soon.Swap(true) {
		return
	}
	time.AfterFunc(soon, func() {
		s.soon.Store(false) // first: of those who come meanwhile some are not seen
		for e := range s.all {
			if e.token.Load() != 0 && !e.attended.Swap(true) {
				s.tasks.Go(e.attend)
			}
		}
	})
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
	return s.dial(ctx)
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
		if drop {
			s.tasks.Go(x.close)
		}
		return drop
	})
}
