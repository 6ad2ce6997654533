package zknode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

// An attempt is one try to acquire a lock. It runs in a goroutine of its own, because
// calls of the client library cannot be cancelled: a caller whose context ends abandons it, and it
// goes on until its call returns and then undoes what nobody wants any more.
//
//	enqueue: create and list, look up what an unanswered create left
//	climb:   watch the two right ahead and the node itself, wait, list …
//
// It begins anew, with a new node, when the node is lost on the way.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when nobody wants the lock, or with the client
	once   bool            // do not wait for anything
	wait   *second.Wait    // whom to tell where the node stands

	// old is given up in one transaction with the first create. Whoever takes it out sees to its end.
	old atomic.Pointer[Node]

	beside   []link.Request            // what else to read right behind the queue
	fits     func([]link.Answer) error // whether a try is worth a node, by the answers to beside; nil if it is
	listed   *listed                   // what was asked for right behind the latest create
	inTurn   []link.Answer             // to beside, if the node was the first then; else nil
	reported bool                      // that there are foreign children

	orphan  bool                  // the path was missing at some time
	trouble atomic.Pointer[error] // what the attempt is waiting to get over, nil if nothing
}

// A listed is a look at the queue.
type listed struct {
	link.Answer
	asked  time.Duration // when, on the client's clock
	beside []link.Answer // to what was asked for behind it
}

func (l *Lock) attempt(w *second.Wait) *attempt {
	a := &attempt{lock: l, client: l.client, wait: w}
	w.Tries(a.lastFailure)
	return a
}

// run waits for what f comes to, or the end of ctx; what is for its errors. As no call of the library can be ended, f goes on without a
// caller who leaves, and is then undone. The next attempt on the same path waits for that, so that callers who come and go while a call is
// stuck do not pile up stuck calls.
func run[T any](ctx context.Context, a *attempt, what string, f func(*attempt) (T, error), undo func(T) error) (value T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("zklock: %s: %w", what, err)
		}
	}()
	l, abandoned := a.client.link, &a.client.abandoned
	if a.once {
		if err := l.ErrOnceHeard(ctx); err != nil {
			return value, err
		}
	}
	defer l.PollClose()()
	ctx, cancel := l.Scope(ctx)
	defer cancel()
	if last, found := abandoned.Load(a.lock.path); found {
		select {
		case <-last.(chan struct{}):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return value, l.Explain(context.Cause(ctx))
	}
	a.ctx = ctx
	var got struct {
		value T
		err   error
	}
	var settled atomic.Bool // by whoever is first: f, which has come to something, or the caller, who leaves
	done := make(chan struct{})
	if !l.Spawn(func() {
		defer close(done)
		if got.value, got.err = f(a); !settled.Swap(true) {
			return
		}
		if got.err == nil {
			undo(got.value)
		}
		abandoned.CompareAndDelete(a.lock.path, done)
	}) {
		return value, second.ErrClosed
	}
	select {
	case <-done:
	case <-ctx.Done():
		abandoned.Store(a.lock.path, done) // before anybody can find that nobody waits
		if !settled.Swap(true) {
			return value, a.explain(context.Cause(ctx))
		}
		abandoned.CompareAndDelete(a.lock.path, done)
		<-done
	}
	return got.value, got.err
}

// explain adds to the end of a wait what it was for, if that was trouble.
func (a *attempt) explain(cause error) error { return a.client.explain(cause, a.lastFailure()) }

// lastFailure is what the attempt is waiting to get over although there is a session, nil if it waits for nothing but others.
func (a *attempt) lastFailure() error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return *trouble
	}
	return nil
}

// pause waits before another try, after err, and for the connection to be back. A try that is made once only ends with err.
func (a *attempt) pause(pace *retry.Pace, err error) error {
	if a.ctx.Err() != nil { // err may say that nothing was sent for that reason
		return a.explain(context.Cause(a.ctx))
	}
	if a.once {
		return errors.Join(err, a.client.Err())
	}
	if err != nil {
		a.trouble.Store(&err)
	}
	if cause := retry.Pause(a.ctx, pace.NextBackOff()); cause != nil {
		return a.explain(cause)
	}
	_, cause := a.awaitSession()
	if cause == nil && err != nil && !errors.Is(err, errGone) { // the connection is no reason, or not any more
		a.client.refusals.Refused("acquire", a.lock.path, err)
	}
	return cause
}

// awaitSession waits for a session, unless the attempt waits for nothing.
func (a *attempt) awaitSession() (*link.Session, error) {
	if !a.once {
		return a.client.link.AwaitSession(a.ctx)
	}
	s := a.client.link.Session()
	if err := a.client.Err(); err != nil || s == nil {
		return nil, errors.Join(err, zk.ErrNoServer)
	}
	return s, nil
}

// try acquires the lock if it is free.
func (a *attempt) try() (*Node, error) {
	if err := a.client.Err(); err != nil { // after the wait for an abandoned attempt
		return nil, err
	}
	answers := a.client.link.Ask(append([]link.Request{link.List(a.lock.path)}, a.beside...)...)
	if a.fits != nil {
		if err := a.fits(answers[1:]); err != nil {
			return nil, err
		}
	}
	queue := answers[0]
	switch classify(queue.Err) {
	case done:
		taken, err := occupied(queue.Children, a.lock.mode)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, second.ErrLocked
		}
	case missing: // the parents are, too, or most of them
		a.orphan = true
	default:
		return nil, zkqueue.Lacking("READ", a.lock.path, queue.Err)
	}
	return a.acquire()
}

// acquire runs the life of a node up to the grant.
func (a *attempt) acquire() (*Node, error) {
	for pace := retry.New(); ; {
		if a.ctx.Err() != nil {
			return nil, context.Cause(a.ctx)
		}
		n, err := a.enqueue()
		if err != nil {
			return nil, err
		}
		a.trouble.Store(nil)
		a.client.refusals.Served("acquire")
		err = a.climb(n)
		if err == nil {
			return n, nil
		}
		n.discard()
		if !errors.Is(err, errGone) {
			return nil, err
		}
		if err := a.pause(pace, err); err != nil {
			return nil, err
		}
	}
}

// rebuilds is how often the parents are made anew without a pause: others may take them away while they are empty.
const rebuilds = 5

// enqueue creates a node at the tail of the queue. It tries until it knows of one node, the context ends, or it cannot be done. What an
// unanswered create may have left is then in the reaper's hands.
func (a *attempt) enqueue() (n *Node, err error) {
	if old := a.old.Swap(nil); old != nil {
		prefixes := a.prefixes()
		created, err := a.exchange(old, prefixes, a.lock.creates(prefixes), true)
		if err == nil {
			return newNode(a.lock, old.session, created), nil
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
	if !a.once {
		if err := a.client.awaitRenewal(a.ctx, a.lock.path); err != nil {
			return nil, err
		}
	}
	built := 0
	for pace := retry.New(); ; {
		s, err := a.awaitSession()
		if err != nil {
			return nil, err
		}
		if err := a.client.reaper.room(a.ctx); err != nil {
			return nil, a.explain(err)
		}
		prefixes := a.prefixes()
		created := a.send("CREATE", a.lock.creates(prefixes), true)
		err = created.Err
		switch classify(err) {
		case done:
			return newNode(a.lock, s, created), nil
		case missing:
			a.orphan = true
			if built++; built <= rebuilds {
				continue
			}
			err = fmt.Errorf("%s was deleted again: %w", a.lock.path, err)
		case permanent:
			return nil, err
		case unknown:
			created, err := a.lookUp(prefixes, err)
			if err == nil {
				return newNode(a.lock, s, created), nil
			}
			if !errors.Is(err, errGone) {
				return nil, err
			}
			continue
		}
		if err := a.pause(pace, err); err != nil {
			return nil, err
		}
	}
}

// prefixes begin the names of a new node.
func (a *attempt) prefixes() []string {
	return zkqueue.NewPrefixes(a.lock.mode, a.client.options.kazoo)
}

// send asks for a transaction, with the parents that it may need, and, if it is to list the queue, for that behind it: one round
// trip over a connection of our own. It takes a permission.
func (a *attempt) send(permission string, ops link.Transaction, list bool) link.Answer {
	requests := a.ways(ops)
	ways := len(requests)
	if list = list && a.client.link.Leased(); list {
		requests = append(append(requests, link.List(a.lock.path)), a.beside...)
	}
	asked := a.client.link.Now()
	answers := a.client.link.Gather(a.ctx, a.lock.path, requests...)
	if a.listed, a.inTurn = nil, nil; list {
		reads := answers[ways:]
		a.listed = &listed{reads[0], asked, reads[1:]}
	}
	return a.taken(permission, answers[:ways])
}

// exchange gives old up for others, in one transaction. With errGone none were made, and another time they may be.
func (a *attempt) exchange(old *Node, prefixes []string, creates []any, list bool) (made link.Answer, err error) {
	zs, unpin := old.pin()
	if zs == nil || a.client.Err() != nil { // nobody knows their names, or has to wait for a connection: all goes to the reaper
		unpin()
		old.finish(old.unknownFate(nil))
		return made, errGone
	}
	made = a.send("CREATE or DELETE", append(zs.deletes(), creates...), list)
	answer := classify(made.Err)
	if answer == done {
		zs.deleted(done)
	}
	unpin()
	switch answer {
	case done:
		old.finish(nil)
		return made, nil
	case unknown: // all of it was done, or nothing
		old.finish(old.unknownFate(made.Err))
		return a.lookUp(prefixes, made.Err)
	}
	deleteTogether(old)
	if answer == permanent {
		return made, made.Err
	}
	return made, errGone
}

// lookUp finds out what became of a create whose answer was lost, for the reason cause.
// It returns errGone when there is no such node and never will be.
func (a *attempt) lookUp(prefixes []string, cause error) (created link.Answer, err error) {
	for pace := retry.New(); ; {
		if !errors.Is(cause, zk.ErrAPIError) { // which is no trouble, see [link.Transaction]
			if err := a.pause(pace, cause); err != nil {
				a.reap(prefixes)
				return created, err
			}
		}
		paths, err := find(a.client.link, a.lock.path, prefixes...)
		switch classify(err) {
		case done:
			switch len(paths) {
			case len(prefixes):
				return link.Answer{Created: paths}, nil
			case 0:
				return created, errGone
			}
			err = errGone // somebody deleted one of two
			fallthrough
		case permanent:
			a.reap(prefixes)
			return created, err
		}
		cause = err
	}
}

// reap gives up what a create with these prefixes may have left.
func (a *attempt) reap(prefixes []string) {
	a.client.reaper.add(remains{parent: a.lock.path, prefixes: prefixes})
}

// climb waits until the node is at the head of the queue, and holds it. A try that is made once only does not wait.
func (a *attempt) climb(n *Node) error {
	ahead := &predecessors{attempt: a, node: n, watchlist: newWatchlist(a.lock, n.wake.Set)}
	defer a.wait.Forget()
	defer ahead.follow()
	s, err := a.enter(n)
	for pace := retry.New(); ; {
		switch {
		case err != nil && a.ctx.Err() != nil: // err may say that nothing was sent for that reason
			return a.explain(context.Cause(a.ctx))
		case err != nil && (a.once || classify(err) == permanent || errors.Is(err, errGone) || errors.Is(err, ErrSequenceExhausted)):
			return err
		case err != nil:
			err = a.pause(pace, err)
		case s.ahead == 0 && n.grant(s): // most often
			return nil
		case s.ahead > 0 && a.once:
			return second.ErrLocked
		case s.ahead > 0:
			var head bool
			if head, err = ahead.wait(s); head && n.grant(s) {
				return nil
			}
		case a.once:
			return a.client.link.Explain(fmt.Errorf("the lease has run out and is yet to be renewed: %w", zk.ErrNoServer))
		default: // the lease ran out
			member{n}.Prove()
			err = a.pause(pace, nil)
		}
		if err == nil {
			if s, err = a.list(n); err == nil {
				pace.Reset()
				a.trouble.Store(nil)
			}
		}
	}
}

// enter finds the place of a fresh node. If its queue was listed in the batch of its create, the answer to that says whose it is.
func (a *attempt) enter(n *Node) (standing, error) {
	if a.listed == nil || n.token == 0 {
		return a.list(n)
	}
	if err := n.bind(n.session, n.token); err != nil {
		return standing{}, err
	}
	s, err := a.stand(n, *a.listed)
	if err == nil && s.ahead == 0 {
		a.inTurn = a.listed.beside
	}
	return s, err
}

// list looks at the queue, and at the node itself as long as it is not known whose that is.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // before the look: what comes later ends the wait
	if n.life.Err() != nil {
		return standing{}, errGone
	}
	asked := a.client.link.Now()
	requests := []link.Request{link.List(a.lock.path)}
	if !n.bound.Load() {
		requests = append(requests, n.readings(n.znodes)...)
	}
	answers := a.client.link.Gather(a.ctx, a.lock.path, requests...)
	for i, seen := range answers[1:] {
		if err := a.verify(n, n.znodes[i], seen); err != nil {
			return standing{}, err
		}
	}
	return a.stand(n, listed{Answer: answers[0], asked: asked})
}

// verify takes what a look at one of the znodes says of its owner and token. A create that was looked up, or queued while the connection
// was down, may have been executed under a newer session than the one it was asked for, so the owner decides, not the time of the call.
func (a *attempt) verify(n *Node, z *znode, seen link.Answer) error {
	if err := z.unseen(seen.Err); err != nil {
		return err
	}
	s := n.session
	if seen.Stat.EphemeralOwner != s.ID {
		if s = a.client.link.Session(); s == nil || seen.Stat.EphemeralOwner != s.ID {
			return errGone
		}
	}
	return n.bind(s, seen.Stat.Czxid)
}

// stand finds the place of the node in a list of the queue.
func (a *attempt) stand(n *Node, l listed) (standing, error) {
	switch classify(l.Err) {
	case done:
	case missing:
		return standing{}, errGone
	default:
		return standing{}, fmt.Errorf("list %s: %w", a.lock.path, zkqueue.Lacking("READ", a.lock.path, l.Err))
	}
	s, err := stand(l.Children, n.znodes.names()...)
	if err != nil {
		return s, err
	}
	n.heard.Store(int64(l.asked))
	if s.foreign > 0 && !a.reported { // once per attempt, and not more often than the logger wants
		a.reported = true
		a.client.options.Logger.Info("zklock: ignoring children of a lock path that are not queue entries",
			"path", a.lock.path, "count", s.foreign)
	}
	return s, nil
}

// predecessors are the contenders right ahead of a node that queues. It watches two of them, so that whoever becomes second in line can
// learn before its turn comes that nobody else is ahead; the departure of the last one then makes it the head without another look.
type predecessors struct {
	attempt *attempt
	node    *Node
	watchlist
}

// wait returns when those ahead have gone and the node is the head, or when there is another reason to look again.
func (p *predecessors) wait(s standing) (head bool, err error) {
	a, n := p.attempt, p.node
	p.follow(s.nearest[:]...)
	p.tellStanding(s)
	for name := range p.watchers {
		if stuck := a.client.reaper.stuck(p.path(name)); stuck != nil {
			a.trouble.Store(&stuck)
		}
	}
	queue := &link.Watcher{Notify: n.wake.Set}
	defer a.client.link.Events.Ignore(a.lock.path, queue)
	if err := p.watch(queue); err != nil {
		return false, err
	}
	// Watches can be lost: setting them again after a reconnect may fail unseen.
	ctx, cancel := context.WithTimeout(a.ctx, n.session.Recheck())
	defer cancel()
	for {
		p.departed.Clear() // before the look: what comes later ends the wait
		switch s.after(p.gone) {
		case first:
			return true, nil
		case lookAgain:
			return false, nil
		}
		select {
		case <-p.departed.C():
		case <-n.wake.C():
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(a.ctx) // nil if it is only time to look again
		}
	}
}

// tellStanding says how to learn where the node stands. What is known of the one right ahead came with its watch.
func (p *predecessors) tellStanding(s standing) {
	watchers := [2]*link.Watcher{p.watchers[s.nearest[0]], p.watchers[s.nearest[1]]}
	p.attempt.wait.Stands(func() second.Standing {
		now := second.Standing{Ahead: s.ahead}
		for i, name := range s.nearest {
			switch {
			case name == "":
			case watchers[i].Gone.Load():
				now.Ahead--
			case now.Nearest.ID == "":
				now.Nearest = p.seen(name).ForGate()
			}
		}
		return now
	})
}

// seen is what is known of a contender that is watched, without another read.
func (p *predecessors) seen(name string) zkqueue.Contender {
	kind, _, _ := zkqueue.ParseName(name)
	c := zkqueue.Contender{Node: name, Kind: kind}
	if a, ok := p.attempt.client.link.Events.Seen(p.path(name)); ok {
		c.Take(a.Data, &a.Stat)
	}
	return c
}

// watch sees to it that the end of those ahead and of the node itself are heard of, in one
// round trip. On the former the grant rests, and so it does on the latter.
func (p *predecessors) watch(queue *link.Watcher) error {
	l, n := p.attempt.client.link, p.node
	names, requests := p.readings()
	own := n.unwatched()
	requests = append(requests, n.readings(own)...)
	if len(requests) == 0 {
		return nil
	}
	answers := l.Gather(p.attempt.ctx, p.attempt.lock.path, requests...)
	var failed error
	for i, name := range names {
		err := answers[i].Err
		if errors.Is(err, zk.ErrNoAuth) {
			err = p.watchUnreadable(queue, name)
		}
		switch classify(err) {
		case done:
		case missing:
			p.watchers[name].Gone.Store(true) // since the list
		default:
			failed = fmt.Errorf("watch %s: %w", p.path(name), err)
		}
	}
	for i, z := range own {
		if err := z.unseen(answers[len(names)+i].Err); err != nil {
			return err
		}
	}
	return failed
}

// watchUnreadable lets queue hear of the end of a foreign node that we may not read. A server sends no event about it (CVE-2024-23944), nor
// does it say that it exists, from 3.8.4 and 3.9.2 on (ZOOKEEPER-2590); but the queue can be watched, since it could be listed.
func (p *predecessors) watchUnreadable(queue *link.Watcher, name string) error {
	children, err := p.attempt.client.link.WatchQueue(p.attempt.ctx, p.attempt.lock.path, queue)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}

// A watchlist is nodes below a path whose end somebody waits for. He hears of it, without another look.
type watchlist struct {
	lock     *Lock                    // whose path it is
	departed mutexbool.Bool           // one has gone
	wake     func()                   // called when a watch is used up or lost
	watchers map[string]*link.Watcher // by name
}

func newWatchlist(l *Lock, wake func()) watchlist {
	return watchlist{lock: l, wake: wake}
}

// follow has those that are given watched, and nobody else. Whoever was known to have gone is
// still known for that, even if a list that was made before shows it.
func (l *watchlist) follow(names ...string) {
	for name, w := range l.watchers {
		if !slices.Contains(names, name) {
			l.lock.client.link.Events.Ignore(l.path(name), w)
			delete(l.watchers, name)
		}
	}
	for _, name := range names {
		if name == "" || l.watchers[name] != nil {
			continue
		}
		if l.watchers == nil {
			l.watchers = make(map[string]*link.Watcher)
		}
		w := new(link.Watcher)
		w.Notify = func() {
			if w.Gone.Load() {
				l.departed.Set()
			} else {
				l.wake()
			}
		}
		l.watchers[name] = w
	}
}

// readings are the requests for the watches that are missing, and what they are about.
func (l *watchlist) readings() (names []string, requests []link.Request) {
	for _, name := range slices.Sorted(maps.Keys(l.watchers)) {
		if q := l.lock.client.link.Reading(l.path(name), l.watchers[name]); q.Watch {
			names, requests = append(names, name), append(requests, q)
		}
	}
	return names, requests
}

func (l *watchlist) path(name string) string { return l.lock.path + "/" + name }

func (l *watchlist) gone(name string) bool {
	w := l.watchers[name]
	return w != nil && w.Gone.Load()
}
