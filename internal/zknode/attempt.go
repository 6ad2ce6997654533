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
// caller's context ends, the caller returns, and the attempt finishes its pending call and then deletes the node that it may have created.
//
//	enqueue: create and list, look up what an unanswered create left
//	climb:   watch the two right ahead and the node itself, wait, list …
//
// If its node is lost on the way, it starts again with a new node.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when no caller wants the lock, or with the client
	once   bool            // do not wait for anything
	wait   *second.Wait    // shows the caller the place of the node

	// old is given up in one transaction with the first create. The code that swaps it out is responsible for its end.
	old atomic.Pointer[Node]

	beside   []link.Request            // further reads right behind the list of the queue
	fits     func([]link.Answer) error // checks the answers to beside; a try creates a node only if it returns nil
	listed   *listed                   // the list right behind the latest create
	inTurn   []link.Answer             // the answers to beside, if the node was the first then; else nil
	reported bool                      // foreign children were logged

	orphan  bool                  // the path was missing at some time
	trouble atomic.Pointer[error] // the error after which the attempt waits to try again, nil if none
}

// A listed is an answered list of the queue.
type listed struct {
	link.Answer
	asked  time.Duration // when it was requested, on the client's clock
	beside []link.Answer // to the reads behind it
}

func (l *Lock) attempt(w *second.Wait) *attempt {
	a := &attempt{lock: l, client: l.client, wait: w}
	w.Tries(a.lastFailure)
	return a
}

// run waits for the result of f, or the end of ctx; what is for its errors. Calls of the library cannot be cancelled: if the caller leaves,
// f goes on, and run then undoes its result. The next attempt on the same path waits for that. Callers that come and go while a call is
// stuck therefore do not pile up stuck calls.
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
	var settled atomic.Bool // set by the first of two: f with a result, or the caller that leaves
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
		abandoned.Store(a.lock.path, done) // before f can see that the caller has left
		if !settled.Swap(true) {
			return value, a.explain(context.Cause(ctx))
		}
		abandoned.CompareAndDelete(a.lock.path, done)
		<-done
	}
	return got.value, got.err
}

// explain adds the last failure to the cause of the end of a wait.
func (a *attempt) explain(cause error) error { return a.client.explain(cause, a.lastFailure()) }

// fails keeps a copy of err, which the caller may use for other errors later.
func (a *attempt) fails(err error) { a.trouble.Store(&err) }

// lastFailure is the error after which the attempt waits to try again although there is a session, nil if it only waits for other
// contenders.
func (a *attempt) lastFailure() error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return *trouble
	}
	return nil
}

// pause waits before another try, after err, and until the connection is back. If the attempt does not wait, pause returns err.
func (a *attempt) pause(pace *retry.Pace, err error) error {
	if a.ctx.Err() != nil { // then err may only say that nothing was sent
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
	if cause == nil && err != nil && !errors.Is(err, errGone) { // the connection is not, or no longer, the reason
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

// rebuilds is how often the parents are created again without a pause: other clients may delete them while they are empty.
const rebuilds = 5

// enqueue creates a node at the tail of the queue. enqueue tries until a node is known to exist, the context ends, or an error is
// permanent. After an error the reaper deletes what an unanswered create may have left.
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

// send requests a transaction, with the parents that it may need, and behind it a list of the queue if list is set: one round trip over a
// connection of our own. Permission names what the transaction needs.
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

// exchange replaces old by new nodes, in one transaction. After errGone none were created, and another create may succeed.
func (a *attempt) exchange(old *Node, prefixes []string, creates []any, list bool) (made link.Answer, err error) {
	zs, unpin := old.pin()
	if zs == nil || a.client.Err() != nil { // the names are unknown, or there is no connection: all go to the reaper
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
	case unknown: // the transaction was executed as a whole, or not at all
		old.finish(old.unknownFate(made.Err))
		return a.lookUp(prefixes, made.Err)
	}
	deleteTogether(old)
	if answer == permanent {
		return made, made.Err
	}
	return made, errGone
}

// lookUp finds out what became of a create whose answer was lost, for the reason cause. lookUp returns errGone when there is no such node
// and never will be.
func (a *attempt) lookUp(prefixes []string, cause error) (created link.Answer, err error) {
	for pace := retry.New(); ; {
		if !errors.Is(cause, zk.ErrAPIError) { // no reason to pause, see [link.Transaction]
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
			err = errGone // another client deleted one of the pair
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

// climb waits until the node is at the head of the queue, and makes it the holder. With once it does not wait.
func (a *attempt) climb(n *Node) error {
	ahead := &predecessors{attempt: a, node: n, watchlist: newWatchlist(a.lock, n.wake.Set)}
	defer a.wait.Forget()
	defer ahead.follow()
	s, err := a.enter(n)
	for pace := retry.New(); ; {
		var granted bool
		switch {
		case err != nil:
			if a.ctx.Err() != nil { // then err may only say that nothing was sent
				return a.explain(context.Cause(a.ctx))
			}
			if a.once || classify(err) == permanent || errors.Is(err, errGone) || errors.Is(err, ErrSequenceExhausted) {
				return err
			}
			err = a.pause(pace, err)
		case s.ahead == 0: // most often
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

// atHead makes a node at the head of the queue the holder. If its lease has run out, it asks for a new proof of the lease and pauses.
func (a *attempt) atHead(n *Node, s standing, pace *retry.Pace) (granted bool, err error) {
	switch {
	case n.grant(s):
		return true, nil
	case a.once:
		return false, a.client.link.Explain(fmt.Errorf("the lease has run out and is yet to be renewed: %w", zk.ErrNoServer))
	}
	member{n}.Prove()
	return false, a.pause(pace, nil)
}

// behind waits for the contenders ahead of a node, and makes it the holder if that has brought it to the head.
func (a *attempt) behind(n *Node, s standing, ahead *predecessors) (granted bool, err error) {
	if a.once {
		return false, second.ErrLocked
	}
	head, err := ahead.wait(s)
	return head && n.grant(s), err
}

// enter finds the place of a new node. If the batch of its create has listed the queue, the answer to the create shows its session.
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

// list reads the queue, and the node itself as long as its session is not certain.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // before the read: later changes end the wait
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

// verify takes session and token of the node from a read of one of its znodes. A create that was looked up, or queued while the connection
// was down, may have been executed under a newer session than that of the call. The owner of the znode therefore decides.
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

// predecessors are the contenders right ahead of a waiting node. Two of them are watched: a node that becomes second in line thus learns,
// while another one has the lock, that no other is ahead. The departure of the last one then makes it the head without another read.
type predecessors struct {
	attempt *attempt
	node    *Node
	watchlist
}

// wait returns when the predecessors have gone and the node is the head, or when there is another reason to list the queue again.
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
	// Watches can be lost: setting them again after a reconnect may fail without a sign.
	ctx, cancel := context.WithTimeout(a.ctx, n.session.Recheck())
	defer cancel()
	for {
		p.departed.Clear() // before the check: later departures end the wait
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
			return false, context.Cause(a.ctx) // nil if it is only time to list again
		}
	}
}

// tellStanding sets the function that returns the place of the node. The read that watches the node right ahead has its description.
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

// seen is the description of a watched contender, without another read.
func (p *predecessors) seen(name string) zkqueue.Contender {
	kind, _, _ := zkqueue.ParseName(name)
	c := zkqueue.Contender{Node: name, Kind: kind}
	if a, ok := p.attempt.client.link.Events.Seen(p.path(name)); ok {
		c.Take(a.Data, &a.Stat)
	}
	return c
}

// watch sets the watches on the predecessors and on the node itself, in one round trip. The grant depends on both.
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

// watchUnreadable watches the queue for the end of a foreign node that this client may not read. A server sends no event about that node
// (CVE-2024-23944), and from 3.8.4 and 3.9.2 on it does not report that it exists (ZOOKEEPER-2590). But the queue can be watched, since it
// could be listed.
func (p *predecessors) watchUnreadable(queue *link.Watcher, name string) error {
	children, err := p.attempt.client.link.WatchQueue(p.attempt.ctx, p.attempt.lock.path, queue)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}

// A watchlist has the watches on nodes below a path whose end a goroutine waits for. Their events need no further read.
type watchlist struct {
	lock     *Lock                    // whose path it is
	departed mutexbool.Bool           // one has gone
	wake     func()                   // called when a watch is used up or lost
	watchers map[string]*link.Watcher // by name
}

func newWatchlist(l *Lock, wake func()) watchlist {
	return watchlist{lock: l, wake: wake}
}

// follow makes names the watched nodes, and no others. A node that is known to be gone stays so, even if an earlier list shows it.
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

// readings are the requests for the missing watches, and the names of their nodes.
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
