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

// An attempt is one acquisition of a lock. It runs in its own goroutine, because calls of the client library cannot be cancelled. If the
// context of the caller ends, the caller returns. The attempt then finishes its pending call, and deletes the node that it may have
// created.
//
//	enqueue: create and list, look up what an unanswered create left
//	climb:   watch the two right ahead and the node itself, wait, list …
//
// If its node is lost on the way, it starts again with a new node.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when the caller has left, or when the client is closed
	once   bool            // the attempt does not wait for anything
	wait   *second.Wait    // tells the caller the place of the node

	// The node old is given up in the transaction of the first create. The code that swaps it out has to end it.
	old atomic.Pointer[Node]

	beside   []link.Request            // further reads, directly after the list of the queue
	fits     func([]link.Answer) error // checks the answers to the reads in beside; a try creates a node only if fits returns nil
	listed   *listed                   // the list that was sent directly after the latest create
	inTurn   []link.Answer             // the answers to beside if the node was first in the queue at that time; otherwise nil
	reported bool                      // a message about foreign children was logged

	orphan  bool                  // a request has found that the path does not exist
	trouble atomic.Pointer[error] // the error after which the attempt waits before it tries again; nil if there is none
}

// A listed is the answer to a request for the list of the queue.
type listed struct {
	link.Answer
	asked  time.Duration // when it was requested, on the client's clock
	beside []link.Answer // the answers to the reads that were sent after it
}

func (l *Lock) attempt(w *second.Wait) *attempt {
	a := &attempt{lock: l, client: l.client, wait: w}
	w.Tries(a.lastFailure)
	return a
}

// run waits for the result of f, or until ctx ends. The parameter what describes the call in errors. Calls of the library cannot be
// cancelled. If the caller leaves, f therefore continues, and run calls undo for its result. The next attempt for the same path waits until
// that is done. Therefore stuck calls do not accumulate when callers give up again and again.
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
	// Set by f when it has a result, and by the caller when it leaves. If f is first, the caller gets the result. Otherwise f undoes it.
	var settled atomic.Bool
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
		abandoned.Store(a.lock.path, done) // stored before settled is set: when f sees settled, it deletes this entry
		if !settled.Swap(true) {
			return value, a.explain(context.Cause(ctx))
		}
		abandoned.CompareAndDelete(a.lock.path, done)
		<-done
	}
	return got.value, got.err
}

// explain adds the last failure to cause, the reason for the end of the wait.
func (a *attempt) explain(cause error) error { return a.client.explain(cause, a.lastFailure()) }

// The method fails records err as the last failure. It stores a copy, because the caller may reuse its variable.
func (a *attempt) fails(err error) { a.trouble.Store(&err) }

// lastFailure returns the error after which the attempt waits before it tries again. It returns nil if there is no session, or if the
// attempt waits only for other contenders.
func (a *attempt) lastFailure() error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return *trouble
	}
	return nil
}

// pause waits after err, before the next try, and until the connection is back. If the attempt may not wait, pause returns err.
func (a *attempt) pause(pace *retry.Pace, err error) error {
	if a.ctx.Err() != nil { // then err may say only that nothing was sent, so the end of ctx is reported
		return a.explain(context.Cause(a.ctx))
	}
	if a.once {
		return errors.Join(err, a.client.Err())
	}
	if err != nil {
		a.fails(err)
	}
	if cause := retry.Pause(a.ctx, pace.NextBackOff()); cause != nil {
		return a.explain(cause)
	}
	_, cause := a.awaitSession()
	if cause == nil && err != nil && !errors.Is(err, errGone) { // the connection did not cause err, or it is back by now
		a.client.refusals.Refused("acquire", a.lock.path, err)
	}
	return cause
}

// awaitSession waits for a session. If the attempt may not wait, it returns the present session or an error.
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
	if err := a.client.Err(); err != nil { // checked again: while this attempt waited for an abandoned one, the connection may have ended
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
	case missing: // the parents are missing as well, or most of them
		a.orphan = true
	default:
		return nil, zkqueue.Lacking("READ", a.lock.path, queue.Err)
	}
	return a.acquire()
}

// acquire creates a node and waits for its grant.
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

// rebuilds is how many times an attempt creates the parents again without a pause. Other clients may delete parents that have no children
// yet.
const rebuilds = 5

// enqueue creates a node at the tail of the queue. It tries until a node is known to exist, the context ends, or an error is permanent.
// After an error the reaper deletes the nodes that unanswered creates may have left.
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

// The method prefixes returns the beginnings of the names of a new node.
func (a *attempt) prefixes() []string {
	return zkqueue.NewPrefixes(a.lock.mode, a.client.options.kazoo)
}

// send sends a transaction, and creates the parents if they are missing. If list is true, a list of the queue follows. Over a connection of
// our own, this takes one round trip. The parameter permission is the name of the permission that the transaction needs.
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

// exchange replaces the node old by new nodes, in one transaction. If it returns errGone, no nodes were created, and another create may
// succeed.
func (a *attempt) exchange(old *Node, prefixes []string, creates []any, list bool) (made link.Answer, err error) {
	zs, unpin := old.pin()
	if zs == nil || a.client.Err() != nil { // the names of its znodes are unknown, or there is no connection: the reaper deletes all of them
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
	case unknown: // the whole transaction was executed, or nothing of it
		old.finish(old.unknownFate(made.Err))
		return a.lookUp(prefixes, made.Err)
	}
	deleteTogether(old)
	if answer == permanent {
		return made, made.Err
	}
	return made, errGone
}

// lookUp finds the outcome of a create whose answer was lost. The parameter cause says why the answer was lost. If the node does not exist
// and will not exist later, lookUp returns errGone.
func (a *attempt) lookUp(prefixes []string, cause error) (created link.Answer, err error) {
	for pace := retry.New(); ; {
		// An API error usually means that the library could not decode an answer, which is no reason to pause; see [link.Transaction].
		if !errors.Is(cause, zk.ErrAPIError) {
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
			err = errGone // another client deleted one znode of the pair
			fallthrough
		case permanent:
			a.reap(prefixes)
			return created, err
		}
		cause = err
	}
}

// reap makes the reaper delete the nodes that a create with these prefixes may have left.
func (a *attempt) reap(prefixes []string) {
	a.client.reaper.add(remains{parent: a.lock.path, prefixes: prefixes})
}

// climb waits until the node is at the head of the queue, and then makes it the holder. If the field once of the attempt is set, climb
// does not wait.
func (a *attempt) climb(n *Node) error {
	ahead := &predecessors{attempt: a, node: n, watchlist: newWatchlist(a.lock, n.wake.Set)}
	defer a.wait.Forget()
	defer ahead.follow()
	s, err := a.enter(n)
	for pace := retry.New(); ; {
		var granted bool
		switch {
		case err != nil:
			if a.ctx.Err() != nil { // then err may say only that nothing was sent, so the end of ctx is reported
				return a.explain(context.Cause(a.ctx))
			}
			if a.once || classify(err) == permanent || errors.Is(err, errGone) || errors.Is(err, ErrSequenceExhausted) {
				return err
			}
			err = a.pause(pace, err)
		case s.ahead == 0: // before the other cases, because it is the most frequent one
			granted, err = a.atHead(n, s, pace)
		default:
			granted, err = a.behind(n, s, ahead)
		}
		if granted {
			return nil
		}
		if err == nil {
			if s, err = a.list(n); err == nil {
				pace.Reset()
				a.trouble.Store(nil)
			}
		}
	}
}

// atHead makes a node at the head of the queue the holder. If the lease has run out, atHead asks for a new proof of the lease and pauses.
func (a *attempt) atHead(n *Node, s standing, pace *retry.Pace) (granted bool, err error) {
	switch {
	case n.grant(s):
		return true, nil
	case a.once:
		return false, a.client.link.Explain(fmt.Errorf("the lease has ended and is not yet renewed: %w", zk.ErrNoServer))
	}
	member{n}.Prove()
	return false, a.pause(pace, nil)
}

// behind waits for the contenders ahead of a node. If they have left, so that the node is at the head, behind makes it the holder.
func (a *attempt) behind(n *Node, s standing, ahead *predecessors) (granted bool, err error) {
	if a.once {
		return false, second.ErrLocked
	}
	head, err := ahead.wait(s)
	return head && n.grant(s), err
}

// enter finds the place of a new node. If the queue was listed in the batch of the create, the answer to the create already shows the
// session of the node.
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

// The method list reads the queue. Until the session of the node is certain, it also reads the node.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // cleared before the read, so that a later change ends the wait
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

// verify takes the session and the token of the node from a read of one of its znodes. The create may have been looked up, or may have
// waited for a connection. In both cases a newer session than that of the call may have executed it, so the owner of the znode decides.
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
	if s.foreign > 0 && !a.reported { // logged once per attempt
		a.reported = true
		a.client.options.Logger.Info("zklock: ignoring children of a lock path that are not queue entries",
			"path", a.lock.path, "count", s.foreign)
	}
	return s, nil
}

// The predecessors are the contenders directly ahead of a waiting node. The node watches the nearest two. It therefore learns of the
// departure of the nearer one while the farther one has the lock. When the holder leaves, the node knows that it is at the head, and needs
// no further read.
type predecessors struct {
	attempt *attempt
	node    *Node
	watchlist
}

// The method wait returns when the predecessors have left and the node is at the head. It also returns when the queue has to be listed
// again for another reason.
func (p *predecessors) wait(s standing) (head bool, err error) {
	a, n := p.attempt, p.node
	p.follow(s.nearest[:]...)
	p.tellStanding(s)
	for name := range p.watchers {
		if stuck := a.client.reaper.stuck(p.path(name)); stuck != nil {
			a.fails(stuck)
		}
	}
	queue := &link.Watcher{Notify: n.wake.Set}
	defer a.client.link.Events.Ignore(a.lock.path, queue)
	if err := p.watch(queue); err != nil {
		return false, err
	}
	// The wait has a time limit, because watches can be lost: after a reconnect, setting them again may fail unnoticed.
	ctx, cancel := context.WithTimeout(a.ctx, n.session.Recheck())
	defer cancel()
	for {
		p.departed.Clear() // cleared before the check, so that a later departure ends the wait
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
			return false, context.Cause(a.ctx) // nil if the queue only has to be listed again
		}
	}
}

// tellStanding sets the function that returns the place of the node. The read that sets the watch on the node directly ahead also returns
// the description of that node.
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

// The method seen returns the description of a watched contender, without another read.
func (p *predecessors) seen(name string) zkqueue.Contender {
	kind, _, _ := zkqueue.ParseName(name)
	c := zkqueue.Contender{Node: name, Kind: kind}
	if a, ok := p.attempt.client.link.Events.Seen(p.path(name)); ok {
		c.Take(a.Data, &a.Stat)
	}
	return c
}

// watch sets the watches on the predecessors and on the node itself, in one round trip, because the grant depends on both.
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
			p.watchers[name].Gone.Store(true) // the node was deleted after the list
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

// watchUnreadable is called for a foreign node that this client may not read. It watches the queue for the end of that node. A server sends
// no event about that node (CVE-2024-23944), and from 3.8.4 and 3.9.2 on it does not report that the node exists (ZOOKEEPER-2590). But this
// client may watch the queue, because it was able to list it.
func (p *predecessors) watchUnreadable(queue *link.Watcher, name string) error {
	children, err := p.attempt.client.link.WatchQueue(p.attempt.ctx, p.attempt.lock.path, queue)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}

// A watchlist has the watches on nodes below a path. A goroutine waits for the end of these nodes. Their events need no further read.
type watchlist struct {
	lock     *Lock                    // the lock at whose path the nodes are
	departed mutexbool.Bool           // set when one of the nodes was deleted
	wake     func()                   // called when a watch is used up or lost
	watchers map[string]*link.Watcher // the key is the name of the node
}

func newWatchlist(l *Lock, wake func()) watchlist {
	return watchlist{lock: l, wake: wake}
}

// follow sets the names of the nodes to watch; other nodes are not watched any more. If a node is known to be deleted, it stays so, even if
// an earlier list shows the node.
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

// readings returns the requests that set the missing watches, and the names of the watched nodes.
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
