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

// A semaphore has the layout of Curator's InterProcessSemaphoreV2. Below its path there are two nodes: "locks" is the path of a lock that a
// process holds while it takes permits, and "leases" is the parent of the permits. Each taken permit is an ephemeral child of "leases". All
// these children count, whichever client created them.
type semaphore struct {
	*Client
	path     string       // on the server
	given    int          // the number that the program gave; the first process that uses the semaphore writes its number to the path
	permits  atomic.Int64 // the number of permits, as far as this process knows
	locks    *Lock
	leases   *Lock       // the parent of the nodes of permits; it has no queue
	unmarked atomic.Bool // this client may not write the number
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

// Permits returns the number at the path as it was last read. Before the first read, it returns the number that the program gave.
func (s *semaphore) Permits() int { return int(s.permits.Load()) }

// SetPermits writes the number to the path. It creates the path if it is missing.
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
	if s.plain.Load() { // the server does not support container nodes
		create.Flags = 0
	}
	return a.send("CREATE", link.Transaction{create}, false).Err
}

func (s *semaphore) Equal(other second.Semaphore) bool {
	o, ok := other.(*semaphore)
	return ok && s.locks.equal(o.locks)
}

// Acquire queues again at the tail of the queue if it has lost its place.
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

// TryAcquire reads the permits first, and writes only if they suffice.
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

// The method attempt returns an attempt to get the lock "locks"; a process that has it is first in the queue, and has the turn. The attempt
// reads the permits directly after the queue, so that the first process in the queue need not read them again.
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

// A permitWait waits until enough permits are free, while this process has the turn. No other process takes permits during a turn.
// Therefore free permits stay free, and each permit that another process releases becomes free, too.
type permitWait struct {
	*semaphore
	attempt   *attempt
	turn      *Node
	demand    *second.Demand
	contended <-chan struct{}
	changed   mutexbool.Bool // set when the permits have to be read again
	path      link.Watcher
	taken     watchlist    // has a watch on each taken permit
	list      link.Watcher // watches the list of permits, if byList is true
	byList    bool         // the list is watched, and not each permit: see look
}

func (s *semaphore) newPermitWait(a *attempt, turn *Node, d *second.Demand) *permitWait {
	w := &permitWait{semaphore: s, attempt: a, turn: turn, demand: d, byList: !s.link.Leased()}
	w.path.Notify, w.list.Notify = w.changed.Set, w.changed.Set
	w.taken = newWatchlist(s.leases, w.changed.Set)
	return w
}

// take returns the nodes of the taken permits. A try does not wait. Whatever the result is, take gives the turn up. If take returns
// errGone, the turn was lost.
func (w *permitWait) take() ([]*Node, error) {
	defer w.turn.Release() // does nothing if exchange has given the turn up already
	defer w.end()
	w.demand.Contest(w.turn.beside)
	var seen sight
	answers := w.attempt.inTurn // the answers that came with the turn, if there were any
	for pace := retry.New(); ; answers = nil {
		w.changed.Clear() // cleared before the read, so that a later change ends the wait
		var err error
		if answers != nil {
			seen, err = w.see(answers)
		} else {
			seen, err = w.look(seen.taken)
		}
		if err == nil {
			err = w.mark(seen.path)
		}
		if err == nil && w.demand.Want != nil { // nil in a try, which has checked the number before
			if k := w.demand.Want(); k > w.Permits() {
				err = fmt.Errorf("%w: %d of %d", second.ErrTooManyPermits, k, w.Permits())
			}
		}
		again := w.turn.session.Recheck() // read again after this time, because watches can be lost
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

// wait returns how many of the free permits to take. It returns 0 when the permits have to be read again.
func (w *permitWait) wait(seen sight, again time.Duration) (k int, err error) {
	look := time.After(again)
	for {
		w.demand.Changed.Clear() // cleared before choose reads the demand
		w.taken.departed.Clear()
		switch k, decided := w.choose(seen); {
		case k == 0 && w.attempt.once:
			return 0, second.ErrLocked
		case decided:
			return k, nil
		}
		if w.contended == nil { // only a wait needs the signal, which costs a read
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

// choose decides how many permits to take. If it returns 0 and true, the permits have to be read again. Permits that were released since
// the last read count as free. But if the process wants more permits than are free now, they are read again, because more permits may be
// released at the same time.
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

// wanted returns how many permits to take if the given number is free.
func (w *permitWait) wanted(free int) int { return w.demand.Take(min(free, w.Most())) }

// mostHeard is the number of taken permits up to which each has a watch of its own. Each watch costs a read and an event.
const mostHeard = 16

// look reads and counts the taken permits. It watches the end of the permits that were known before. If byList is true, it watches the list
// for any change instead.
func (w *permitWait) look(known []string) (sight, error) {
	known = slices.DeleteFunc(known, w.taken.gone) // before the list is read: if a deleted name is in the list, it is a new node
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
		case missing: // the node was deleted after the list
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

// maxWrite is less than the megabyte that a server accepts in one request by default.
const maxWrite = 900 << 10

// Most returns how many permits fit into one transaction.
func (s *semaphore) Most() int {
	one := len(s.leases.path) + len(s.leases.contentOf(0)) + 128 // 128 bytes suffice for the name, the flags and the header
	for _, acl := range s.leases.acl {
		one += len(acl.Scheme) + len(acl.ID) + 16
	}
	return max(maxWrite/one, 1)
}

// exchange gives the turn up and takes k permits, in one transaction. The transaction takes effect as a whole or not at all, and only while
// this process has the turn. Afterwards the turn is given up, unless no request was sent. If exchange returns errGone, no permit was taken,
// and another turn is needed.
func (s *semaphore) exchange(ctx context.Context, turn *Node, k int, seen sight) ([]*Node, error) {
	if turn.lossNow() != nil {
		return nil, errGone
	}
	a := s.leases.attempt(new(second.Wait))
	a.ctx, a.orphan = ctx, seen.missing
	turn.leave() // called first, so that the end of the turn is no loss
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

// adopt puts the taken permits under the lease of their session: all of them or none. If their session is not known, adopt reads it.
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

// Release deletes the nodes of the permits in one transaction.
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

// A sight is the result of a read of a semaphore.
type sight struct {
	free    int
	taken   []string    // the names of the nodes
	heard   bool        // every taken permit is watched
	missing bool        // the parent of the permits does not exist
	path    link.Answer // the content of the path may be the number of permits
}

// The method looks returns the requests that read the semaphore.
func (s *semaphore) looks() []link.Request {
	return []link.Request{link.List(s.leases.path), link.Get(s.path)}
}

// see counts the taken permits. While this process has the turn, a server that lags behind may show too many taken permits, but never too
// few.
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

// learn stores the number of permits at the path. If the path has no number, it stores the number of the program. If the path cannot be
// read, learn changes nothing.
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

// compare reports in blank whether the number of permits still has to be written to the path. If the content of the path is not a number of
// permits, compare returns an error.
func (s *semaphore) compare(path link.Answer) (blank bool, err error) {
	text := string(path.Data)
	switch {
	case path.Err != nil: // the path was not read, so that there is nothing to compare
		return false, nil
	case path.Stat.DataLength == 0, text == zkqueue.ContainerData:
		return true, nil
	}
	if number, marked := strings.CutPrefix(text, zkqueue.PermitsMark); marked && number != strconv.Itoa(s.Permits()) {
		return false, fmt.Errorf("%w: the content of %s is %q; call SetPermits", errNoNumber, s.path, second.Text(text))
	}
	if _, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return false, fmt.Errorf("%w: %s contains %q, as kazoo's Semaphore writes it, which cannot share permits with this one; "+
			"use another path",
			errNoNumber, s.path, text)
	}
	return false, nil
}

// errNoNumber means that the content of a path cannot be a number of permits.
var errNoNumber = errors.New("no number of permits")

// errRewritten means that another client has just written to the path.
var errRewritten = errors.New("another process has changed the number of permits")

// mark compares the number of permits at the path. If there is no number yet, mark writes it, provided that this client may write.
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

// marking returns the content of a path with n permits.
func marking(n int) []byte { return []byte(zkqueue.PermitsMark + strconv.Itoa(n)) }

// Contenders lists a process that has permits and waits for more in both parts.
func (s *semaphore) Contenders(ctx context.Context) ([]second.Contender, error) {
	return ask(ctx, s.Client, "contenders of "+s.path, func() ([]second.Contender, error) { return s.survey(ctx) })
}

// survey reads the queue before the permits. A process that exchanges its turn for permits between the two reads therefore appears twice
// rather than not at all.
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

// Break looks for the token among the waiting processes first. A process may exchange its place for permits between the two steps, but the
// permits have another token.
func (s *semaphore) Break(ctx context.Context, token int64) error {
	err := s.breakAt(ctx, s.locks.queue(), token)
	if errors.Is(err, second.ErrReleased) {
		permits := s.leases.queue()
		permits.Permits = true
		err = s.breakAt(ctx, permits, token)
	}
	return err
}

// leaseholders returns the holders of the permits with these node names, in the order in which they took their permits. Nodes that one
// transaction created are permits that were taken together. The id of that transaction is their token.
func (s *semaphore) leaseholders(ctx context.Context, names []string) (holders []zkqueue.Contender, err error) {
	leases, err := s.leases.queue().ReadAll(ctx, each(names, func(name string) zkqueue.Contender { return zkqueue.Contender{Node: name} }))
	slices.SortFunc(leases, zkqueue.ByToken)
	for _, lease := range leases {
		last := len(holders) - 1
		if last < 0 || lease.Token == 0 || holders[last].Token != lease.Token { // a node that this process may not read has token 0
			last, holders = last+1, append(holders, lease)
		}
		holders[last].Permits++
	}
	return holders, err
}
