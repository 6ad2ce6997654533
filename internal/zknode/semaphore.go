package zknode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

// A semaphore has the layout of Curator's InterProcessSemaphoreV2: below its path, a process that takes permits holds the lock "locks", and
// each taken permit is an ephemeral child of "leases". All children there count, whichever client created them.
type semaphore struct {
	*Client
	path     string       // on the server
	given    int          // the number that the program gave; the first user writes it to the path
	permits  atomic.Int64 // how many there are, as far as this process knows
	locks    *Lock
	leases   *Lock       // the parent of the permits' nodes; no queue
	unmarked atomic.Bool // the number may not be written
}

func (t secondTier) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	queue, err := t.Claim(path+"/locks", second.Options{Own: o.Own})
	if err != nil {
		return nil, err
	}
	locks := queue.(claim).lock
	locks.of = parentOf(locks.path)
	leases := *locks
	leases.path = locks.of + "/leases"
	s := &semaphore{Client: t.Client, path: locks.of, given: permits, locks: locks, leases: &leases}
	s.permits.Store(int64(permits))
	return s, nil
}

// Permits returns the number at the path, as it was read last, and before that the number that the program gave.
func (s *semaphore) Permits() int { return int(s.permits.Load()) }

// SetPermits writes the number to the path, and creates the path if it is missing.
func (s *semaphore) SetPermits(ctx context.Context, n int) error {
	_, err := ask(ctx, s.Client, "set the permits of "+s.path, func() (struct{}, error) { return struct{}{}, s.setPermits(n) })
	if err == nil {
		s.permits.Store(int64(n))
	}
	return err
}

func (s *semaphore) setPermits(n int) error {
	_, err := s.link.Conn.Set(s.path, marking(n), -1)
	if classify(err) != missing {
		return zkqueue.Lacking("WRITE", s.path, err)
	}
	above := *s.locks
	above.path = parentOf(s.path)
	a := above.attempt(new(second.Wait))
	a.ctx, a.orphan = s.link.Context(), true
	create := &zk.CreateRequest{Path: s.path, Data: marking(n), Acl: s.locks.acl, Flags: zk.FlagContainer}
	if s.plain.Load() { // the server has no containers
		create.Flags = 0
	}
	return a.send("CREATE", link.Transaction{create}, false).Err
}

func (s *semaphore) Equal(other second.Semaphore) bool {
	o, ok := other.(*semaphore)
	return ok && s.locks.equal(o.locks)
}

// Acquire starts again at the tail of the queue when its place there is lost.
func (s *semaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	return permitsOf(run(ctx, s.attempt(&d.Wait), "acquire "+s.path, func(a *attempt) ([]*Node, error) {
		for pace := retry.New(); ; {
			turn, err := a.acquire()
			if err != nil {
				return nil, err
			}
			a.trouble.Store(nil)
			taken, err := s.newPermitWait(a, turn, d).take()
			if !errors.Is(err, errGone) {
				return taken, err
			}
			if err := a.pause(pace, nil); err != nil {
				return nil, err
			}
		}
	}, s.release))
}

// TryAcquire reads the permits before it writes.
func (s *semaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	a := s.attempt(new(second.Wait))
	a.once = true
	a.fits = func(answers []link.Answer) error {
		seen, err := s.see(answers)
		if err == nil {
			_, err = s.compare(seen.path)
		}
		switch {
		case err != nil:
		case k > s.Permits():
			err = fmt.Errorf("%w: %d of %d", second.ErrTooManyPermits, k, s.Permits())
		case seen.free < k:
			err = second.ErrLocked
		}
		return err
	}
	all := second.Demand{Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}}
	taken, err := run(ctx, a, "try "+s.path, func(a *attempt) ([]*Node, error) {
		turn, err := a.try()
		if err != nil {
			return nil, err
		}
		return s.newPermitWait(a, turn, &all).take()
	}, s.release)
	return permitsOf(taken, tried(ctx, err))
}

// attempt returns an attempt to become the first in the queue (to get the turn). attempt reads the permits right after the queue, so the
// first in the queue need not read them again.
func (s *semaphore) attempt(w *second.Wait) *attempt {
	a := s.locks.attempt(w)
	a.beside = s.looks()
	return a
}

func permitsOf(taken []*Node, err error) ([]second.Permit, error) {
	if err != nil {
		return nil, err
	}
	return each(taken, func(n *Node) second.Permit { return grant{n} }), nil
}

// A permitWait is the wait for enough free permits, while this process has the turn. No other process may take permits meanwhile, so free
// permits stay free, and each lease that goes is one more.
type permitWait struct {
	*semaphore
	attempt   *attempt
	turn      *Node
	demand    *second.Demand
	contended <-chan struct{}
	changed   mutexbool.Bool // look again
	path      link.Watcher
	taken     watchlist    // the taken permits, each with a watch
	list      link.Watcher // of the list of permits, if byList
	byList    bool         // too many permits are taken, one may not be read, requests have no order, or several waiters are served one by one
}

func (s *semaphore) newPermitWait(a *attempt, turn *Node, d *second.Demand) *permitWait {
	w := &permitWait{semaphore: s, attempt: a, turn: turn, demand: d, byList: !s.link.Leased()}
	w.path.Notify, w.list.Notify = w.changed.Set, w.changed.Set
	w.taken = newWatchlist(s.leases, w.changed.Set)
	return w
}

// take returns the nodes of the taken permits. A try does not wait. The turn is given up in any case; errGone means that it was lost.
func (w *permitWait) take() ([]*Node, error) {
	defer w.turn.Release() // unless it is exchanged
	defer w.end()
	w.demand.Contest(w.turn.beside)
	var seen sight
	answers := w.attempt.inTurn // to a look in this turn, if there was one
	for pace := retry.New(); ; answers = nil {
		w.changed.Clear() // before the look: later changes end the wait
		var err error
		if answers != nil {
			seen, err = w.see(answers)
		} else {
			seen, err = w.look(seen.taken)
		}
		if err == nil {
			err = w.mark(seen.path)
		}
		if err == nil && w.demand.Want != nil { // a try has checked the number already
			if k := w.demand.Want(); k > w.Permits() {
				err = fmt.Errorf("%w: %d of %d", second.ErrTooManyPermits, k, w.Permits())
			}
		}
		again := w.turn.session.Recheck() // watches can be lost
		switch {
		case err == nil:
			pace.Reset()
			w.attempt.trouble.Store(nil)
		case w.attempt.once, classify(err) == permanent, errors.Is(err, second.ErrTooManyPermits), errors.Is(err, errNoNumber):
			return nil, err
		default:
			if w.attempt.fails(err); w.Err() == nil {
				w.refusals.Refused("acquire", w.semaphore.path, err)
			}
			again, seen = pace.NextBackOff(), sight{heard: true}
		}
		k, err := w.wait(seen, again)
		switch {
		case err != nil:
			return nil, err
		case k > 0:
			return w.exchange(w.attempt.ctx, w.turn, k, seen)
		}
	}
}

// wait returns how many of the free permits to take, or 0 when it is time to look again.
func (w *permitWait) wait(seen sight, again time.Duration) (k int, err error) {
	look := time.After(again)
	for {
		w.demand.Changed.Clear() // before choose reads the demand
		w.taken.departed.Clear()
		switch k, decided := w.choose(seen); {
		case k == 0 && w.attempt.once:
			return 0, second.ErrLocked
		case decided:
			return k, nil
		}
		if w.contended == nil { // set late: without a wait it is not needed
			w.contended = w.turn.contended.C()
		}
		select {
		case <-w.demand.Changed.C():
		case <-w.taken.departed.C():
		case <-w.contended:
			w.demand.Contest(1)
			w.contended = make(chan struct{})
		case <-w.changed.C():
			return 0, nil
		case <-look:
			return 0, nil
		case <-w.turn.Lost():
			return 0, errGone
		case <-w.attempt.ctx.Done():
			return 0, w.attempt.explain(context.Cause(w.attempt.ctx))
		}
	}
}

// choose decides how many permits to take; 0 and true means to look again. Permits that have gone since the look are free without another
// look, unless the process wants more than are free then: others may be about to go with them.
func (w *permitWait) choose(seen sight) (k int, decided bool) {
	gone := 0
	for _, name := range seen.taken {
		if w.taken.gone(name) {
			gone++
		}
	}
	k = w.wanted(seen.free + gone)
	if k > 0 && gone > 0 && k < w.wanted(w.Permits()) {
		return 0, true
	}
	return k, k > 0 || !seen.heard
}

// wanted is how many permits to take if that many are free.
func (w *permitWait) wanted(free int) int { return w.demand.Take(min(free, w.Most())) }

// mostHeard is the number of taken permits up to which each gets a watch of its own: a watch costs a read and an event.
const mostHeard = 16

// look counts the taken permits. look watches the end of permits that were known before or, by list, any change.
func (w *permitWait) look(known []string) (sight, error) {
	known = slices.DeleteFunc(known, w.taken.gone) // before the list: a node of the same name would be another one
	requests := w.looks()
	if w.byList = w.byList || len(known) > mostHeard || w.wanted(w.wanted(w.Permits())-1) > 0; w.byList {
		requests[0], known = w.link.Listing(w.leases.path, &w.list), nil
	}
	w.taken.follow(known...)
	requests[1] = w.link.Reading(w.semaphore.path, &w.path)
	names, reads := w.taken.readings()
	answers := w.link.Ask(append(requests, reads...)...)
	seen, err := w.see(answers)
	seen.heard = w.byList || !slices.ContainsFunc(seen.taken, func(name string) bool { return w.taken.watchers[name] == nil })
	for i, name := range names {
		switch classify(answers[len(requests)+i].Err) {
		case done:
		case missing: // since the list
			w.taken.watchers[name].Gone.Store(true)
		default:
			w.byList, seen.heard = true, false
		}
	}
	return seen, err
}

func (w *permitWait) end() {
	w.link.Events.Ignore(w.leases.path, &w.list)
	w.link.Events.Ignore(w.semaphore.path, &w.path)
	w.taken.follow()
}

const leaseMarker = "lease-"

// maxWrite leaves room in the megabyte that a server takes in one request by default.
const maxWrite = 900 << 10

// Most is how many permits fit into one transaction.
func (s *semaphore) Most() int {
	one := len(s.leases.path) + len(s.leases.contentOf(0)) + 128 // name, flags, header
	for _, acl := range s.leases.acl {
		one += len(acl.Scheme) + len(acl.ID) + 16
	}
	return max(maxWrite/one, 1)
}

// exchange gives the turn up for k permits, in one transaction. exchange takes effect as a whole or not at all, and only while this
// process has the turn. The turn is given up then, unless no request was sent. After errGone no permit was taken, and another turn is
// needed.
func (s *semaphore) exchange(ctx context.Context, turn *Node, k int, seen sight) ([]*Node, error) {
	if turn.lossNow() != nil {
		return nil, errGone
	}
	a := s.leases.attempt(new(second.Wait))
	a.ctx, a.orphan = ctx, seen.missing
	turn.leave() // so that its end is no loss
	defer turn.stepAside()
	prefixes := make([]string, k)
	var creates []any
	for i := range prefixes {
		prefixes[i] = zkqueue.NewID() + leaseMarker
		creates = append(creates, s.leases.creates(prefixes[i:i+1])...)
	}
	made, err := a.exchange(turn, prefixes, creates, false)
	if err != nil {
		return nil, err
	}
	return s.adopt(a, turn, made)
}

// adopt puts the taken permits under the lease of the session, all or none. If their session is not known, it reads it.
func (s *semaphore) adopt(a *attempt, turn *Node, made link.Answer) ([]*Node, error) {
	taken := make([]*Node, len(made.Created))
	var err error
	for i, path := range made.Created {
		n := newNode(s.leases, turn.session, link.Answer{Created: []string{path}, Session: made.Session})
		taken[i] = n
		switch {
		case err != nil:
		case made.Session != nil:
			err = n.bind(made.Session, turn.token)
		default:
			err = a.verify(n, n.znodes[0], s.link.Ask(n.readings(n.znodes)...)[0])
			n.token = turn.token
		}
		if err == nil && !n.grant(standing{}) {
			err = errGone
		}
	}
	if err == nil {
		return taken, nil
	}
	s.release(taken)
	if classify(err) == permanent {
		return nil, err
	}
	return nil, errGone
}

// Release deletes the nodes of permits in one transaction.
func (s *semaphore) Release(permits []second.Permit) error {
	return s.release(each(permits, func(p second.Permit) *Node { return p.(grant).Node }))
}

func (s *semaphore) release(nodes []*Node) error {
	for _, n := range nodes {
		n.leave()
	}
	giveUp(nodes...)
	if err := await(nodes...); err != nil {
		return fmt.Errorf("zklock: release permits of %s: %w", s.path, err)
	}
	return nil
}

// A sight is the result of a look at a semaphore.
type sight struct {
	free    int
	taken   []string    // names of nodes
	heard   bool        // every taken permit is watched
	missing bool        // the parent of the permits does not exist
	path    link.Answer // its content may be the number of permits
}

// looks are the requests of a look.
func (s *semaphore) looks() []link.Request {
	return []link.Request{link.List(s.leases.path), link.Get(s.path)}
}

// see counts the taken permits. While this process has the turn, a server that lags may show too many of them, never too few.
func (s *semaphore) see(answers []link.Answer) (sight, error) {
	leases, path := answers[0], answers[1]
	seen := sight{taken: leases.Children, missing: classify(leases.Err) == missing, path: path}
	if leases.Err != nil && !seen.missing {
		return seen, fmt.Errorf("list %s: %w", s.leases.path, zkqueue.Lacking("READ", s.leases.path, leases.Err))
	}
	s.learn(path)
	seen.free = s.Permits() - len(seen.taken)
	if path.Err != nil && classify(path.Err) != missing && !errors.Is(path.Err, zk.ErrNoAuth) {
		return seen, fmt.Errorf("read %s: %w", s.path, path.Err)
	}
	return seen, nil
}

// learn adopts the number of permits at the path, or that of the program if there is none. If the path cannot be read, the known number
// stays.
func (s *semaphore) learn(path link.Answer) {
	if path.Err != nil && classify(path.Err) != missing {
		return
	}
	n := s.given
	if text, marked := strings.CutPrefix(string(path.Data), zkqueue.PermitsMark); marked {
		if number, err := strconv.Atoi(text); err == nil && number > 0 {
			n = number
		}
	}
	s.permits.Store(int64(n))
}

// compare reports whether the number of permits has still to be written to the path, or refuses content that is no such number.
func (s *semaphore) compare(path link.Answer) (blank bool, err error) {
	text := string(path.Data)
	switch {
	case path.Err != nil: // nothing can be compared
		return false, nil
	case path.Stat.DataLength == 0, text == zkqueue.ContainerData:
		return true, nil
	}
	if number, marked := strings.CutPrefix(text, zkqueue.PermitsMark); marked && number != strconv.Itoa(s.Permits()) {
		return false, fmt.Errorf("%w: the content of %s is %q; call SetPermits", errNoNumber, s.path, second.Text(text))
	}
	if _, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return false, fmt.Errorf("%w: the content of %s is %q, as of kazoo's Semaphore, which cannot share permits with this one; "+
			"use another path",
			errNoNumber, s.path, text)
	}
	return false, nil
}

// errNoNumber means that the content of a path cannot be a number of permits.
var errNoNumber = errors.New("no number of permits")

// errRewritten means that another client has just written to the path.
var errRewritten = errors.New("the number of permits was changed")

// mark compares the number of permits at the path, and writes it if there is none and this client may.
func (s *semaphore) mark(path link.Answer) error {
	blank, err := s.compare(path)
	if !blank || s.unmarked.Load() {
		return err
	}
	_, err = s.link.Conn.Set(s.path, marking(s.given), path.Stat.Version)
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		s.unmarked.Store(true)
		return nil
	case errors.Is(err, zk.ErrBadVersion):
		return errRewritten
	case err != nil:
		return fmt.Errorf("write the number of permits to %s: %w", s.path, wire.Named(err))
	}
	return nil
}

// marking is the content of a path with n permits.
func marking(n int) []byte { return []byte(zkqueue.PermitsMark + strconv.Itoa(n)) }

// Contenders returns a process that has permits and waits for more in both places.
func (s *semaphore) Contenders(ctx context.Context) ([]second.Contender, error) {
	return ask(ctx, s.Client, "contenders of "+s.path, func() ([]second.Contender, error) { return s.survey(ctx) })
}

// survey reads the queue first: a process that exchanges its turn for permits meanwhile then appears twice rather than not at all.
func (s *semaphore) survey(ctx context.Context) ([]second.Contender, error) {
	queue, err := s.locks.queue().Contenders(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := s.see(s.link.Ask(s.looks()...))
	if err != nil {
		return nil, err
	}
	of := 0
	if number, marked := strings.CutPrefix(string(seen.path.Data), zkqueue.PermitsMark); marked {
		of, _ = strconv.Atoi(number)
	}
	holders, err := s.leaseholders(ctx, seen.taken)
	all := each(append(holders, queue...), zkqueue.Contender.ForGate)
	for i := range all {
		all[i].Of = of
	}
	return all, err
}

// Break looks at the waiting processes first: a process may exchange its place for permits meanwhile, and these have another token.
func (s *semaphore) Break(ctx context.Context, token int64) error {
	err := s.breakAt(ctx, s.locks.queue(), token)
	if errors.Is(err, second.ErrReleased) {
		permits := s.leases.queue()
		permits.Permits = true
		err = s.breakAt(ctx, permits, token)
	}
	return err
}

// leaseholders returns the holders of permits with these node names, in the order in which they took them. The nodes of one transaction are
// permits that were taken together, and its id is their token.
func (s *semaphore) leaseholders(ctx context.Context, names []string) (holders []zkqueue.Contender, err error) {
	leases, err := s.leases.queue().ReadAll(ctx, each(names, func(name string) zkqueue.Contender { return zkqueue.Contender{Node: name} }))
	slices.SortFunc(leases, zkqueue.ByToken)
	for _, lease := range leases {
		last := len(holders) - 1
		if last < 0 || lease.Token == 0 || holders[last].Token != lease.Token { // 0 is that of a node that may not be read
			last, holders = last+1, append(holders, lease)
		}
		holders[last].Permits++
	}
	return holders, err
}
