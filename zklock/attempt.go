package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// An attempt is one try to acquire a lock. It runs in a goroutine of its own, because
// calls of the client library cannot be cancelled: the caller leaves when its context
// ends, the attempt goes on until its call returns and then undoes what nobody wants
// any more.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when nobody wants the lock, or with the client
	once   bool            // do not wait for anything
	wait   *second.Wait    // whom to tell where the node stands; may be nil

	reported bool // that there are foreign children

	// parents are the containers that may be there without a child because of the
	// attempt; true: it made them, false: the answer was lost. Nil unless some were missing.
	parents  map[string]bool
	obstacle error // to the parents that are missing, nil if none is known

	trouble atomic.Pointer[error] // what the attempt is waiting to get over, nil if nothing
	verdict atomic.Int32          // pending, then once and for all delivered or abandoned
	done    chan struct{}
	node    *Node // the result, valid when done is closed
	err     error
}

const (
	pending   int32 = iota
	delivered       // the result goes to the caller
	abandoned       // the caller has left
)

// errGone says that a node was lost while it queued: start again at the tail.
var errGone = errors.New("lock node lost while queueing")

// start makes an attempt and waits for its result or the end of ctx.
func (l *Lock) start(ctx context.Context, w *second.Wait, run func(*attempt) (*Node, error)) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer l.client.link.Attend()()
	ctx, cancel := l.client.link.Scope(ctx)
	if err := l.client.stragglers.await(ctx, l.path); err != nil {
		cancel()
		return nil, l.client.link.Explain(err)
	}
	a := &attempt{lock: l, client: l.client, ctx: ctx, wait: w, done: make(chan struct{})}
	if !l.client.link.Spawn(func() { a.deliver(run(a)); cancel() }) {
		cancel()
		return nil, ErrClosed
	}
	<-ctx.Done() // also when the attempt is done
	if a.verdict.CompareAndSwap(pending, abandoned) {
		l.client.stragglers.add(a)
		return nil, a.explain(context.Cause(ctx))
	}
	<-a.done // delivered a moment ago; a grant stands
	return a.node, a.err
}

// explain adds to the end of a wait what it was for, if that was trouble.
func (a *attempt) explain(cause error) error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return fmt.Errorf("%w: %w", cause, *trouble)
	}
	return a.client.link.Explain(cause)
}

// deliver hands the result over, or undoes it when the caller has left. Both sides
// decide on the verdict, so a node is either delivered or released.
func (a *attempt) deliver(n *Node, err error) {
	a.node, a.err = n, err
	if !a.verdict.CompareAndSwap(pending, delivered) && n != nil {
		n.Release()
	}
	close(a.done)
	a.client.stragglers.remove(a) // after done: add looks at it
}

// pause waits before another try, after err, and for the connection to be back. A try
// that is made once only ends with err.
func (a *attempt) pause(pace *backoff.ExponentialBackOff, err error) error {
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

// stragglers are the attempts whose callers have left. The next attempt on the same
// path waits for them, so that callers who come and go while a call is stuck do not
// pile up stuck calls.
type stragglers struct {
	mu   sync.Mutex // guards the field below
	last map[string]*attempt
}

func (s *stragglers) add(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.done:
	default:
		s.last[a.lock.path] = a
	}
}

func (s *stragglers) remove(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[a.lock.path] == a {
		delete(s.last, a.lock.path)
	}
}

func (s *stragglers) await(ctx context.Context, path string) error {
	s.mu.Lock()
	a := s.last[path]
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try acquires the lock if it is free.
func (a *attempt) try() (*Node, error) {
	a.once = true
	if err := a.client.Err(); err != nil {
		return nil, err
	}
	queue := a.client.link.Ask(link.Listing{Path: a.lock.path})[0]
	switch classify(queue.Err) {
	case done:
		taken, err := occupied(queue.Children, a.lock.mode)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, ErrLocked
		}
	case missing: // the parents are, too, or most of them
		if err := a.beginBuilding(); err != nil {
			return nil, err
		}
	default:
		return nil, lacking("READ", a.lock.path, queue.Err)
	}
	n, err := a.enqueue()
	if err != nil {
		return nil, err
	}
	s, err := a.enter(n)
	switch {
	case errors.Is(err, errGone):
		err = a.client.link.Explain(zk.ErrSessionExpired)
	case err != nil:
	case s.ahead > 0:
		err = ErrLocked
	case n.grant(s):
		return n.Node, nil
	default:
		err = a.client.link.Explain(n.ungranted())
	}
	n.discard()
	return nil, err
}

// ungranted says why a node at the head of the queue is not held.
func (n *Node) ungranted() error {
	if n.leased() && !n.session.Over() {
		return errors.New("the lease has run out and is yet to be renewed")
	}
	return zk.ErrSessionExpired
}

// enqueue creates a node at the tail of the queue. It tries until it knows of one node,
// the context ends, or it cannot be done. What an unanswered create may have left is
// then in the reaper's hands.
func (a *attempt) enqueue() (arrival, error) {
	if !a.once {
		if err := a.client.renewals.await(a.ctx, a.lock.path); err != nil {
			return arrival{}, err
		}
	}
	n, err := a.create()
	a.endBuilding(n.Node != nil)
	return n, err
}

// rebuilds is how often the parents are made anew without a pause: others may take them
// away while they are empty.
const rebuilds = 5

func (a *attempt) create() (arrival, error) {
	built := 0
	for pace := retry.New(); ; {
		s, err := a.awaitSession()
		if err != nil {
			return arrival{}, err
		}
		if err := a.client.reaper.Room(a.ctx); err != nil {
			return arrival{}, a.explain(err)
		}
		prefixes := newPrefixes(a.lock.mode, a.client.options.kazoo)
		n, err := a.send(s, a.lock.creates(prefixes))
		switch classify(err) {
		case done:
			return n, nil
		case missing:
			if a.parents == nil {
				if err := a.beginBuilding(); err != nil {
					return arrival{}, err
				}
				continue
			}
			if classify(a.obstacle) == permanent {
				return arrival{}, a.obstacle
			}
			if built++; a.obstacle == nil && built <= rebuilds {
				continue
			}
			err = cmp.Or(a.obstacle, fmt.Errorf("%s was deleted again: %w", a.lock.path, err))
		case permanent:
			return arrival{}, createError(lacking("CREATE", a.lock.path, err))
		case uncertain:
			if n, err := a.lookUp(prefixes, err); n != nil || err != nil {
				return arrival{Node: n}, err
			}
			continue
		}
		if err := a.pause(pace, err); err != nil {
			return arrival{}, err
		}
	}
}

// An arrival is a fresh node, and the list of the queue that was asked for right behind its
// creation, if one was.
type arrival struct {
	*Node
	listed *listed
}

// A listed is a look at the queue.
type listed struct {
	link.Answer
	asked time.Duration // when, on the client's clock
}

// send asks for the creation of a node and, where requests stay in order, for all that has to
// come before and behind it: one round trip. s is the session that it is expected to be
// executed under.
func (a *attempt) send(s *link.Session, ops link.Transaction) (arrival, error) {
	buildings := a.buildings()
	requests := append(buildings, ops)
	asked := a.client.link.Now()
	var answers []link.Answer
	if a.client.link.Ordered() {
		answers = a.client.link.Ask(append(requests, link.Listing{Path: a.lock.path})...)
	} else {
		for _, q := range requests {
			answers = append(answers, a.client.link.Ask(q)...)
		}
	}
	a.noteBuilt(buildings, answers)
	created := answers[len(buildings)]
	if created.Err != nil {
		return arrival{}, created.Err
	}
	if !a.client.link.Ordered() {
		return arrival{Node: newNode(a.lock, s, created.Created)}, nil
	}
	n := newNode(a.lock, created.Session, created.Created)
	n.token = created.Zxid
	return arrival{n, &listed{answers[len(requests)], asked}}, nil
}

// contentOf is that of the znode with this index. kazoo shows the content of the second one to
// people and fails unless it is UTF-8, so that is always the description of the process.
func (l *Lock) contentOf(i int) []byte {
	if i > 0 {
		return l.describe()
	}
	return l.content()
}

// creates are the operations that make the znodes with these prefixes.
func (l *Lock) creates(prefixes []string) []any {
	var ops []any
	for i, prefix := range prefixes {
		ops = append(ops, &zk.CreateRequest{
			Path: l.path + "/" + prefix, Data: l.contentOf(i), Acl: l.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// replace deletes old and creates a new node in one transaction. In any case old is
// given up.
func (a *attempt) replace(old *Node) (arrival, error) {
	if a.ctx.Err() != nil {
		old.startDelete(nil)
		old.awaitRelease() // the next attempt waits for this one
		return arrival{}, context.Cause(a.ctx)
	}
	s := a.client.link.Session()
	if s == nil || a.client.Err() != nil {
		old.finish(old.doubt(nil))
		return a.enqueue()
	}
	zs, unpin := old.pin()
	if zs == nil { // nobody knows their names: both go to the reaper
		unpin()
		old.finish(old.doubt(nil))
		return a.enqueue()
	}
	prefixes := newPrefixes(a.lock.mode, a.client.options.kazoo)
	n, err := a.send(s, append(zs.deletes(), a.lock.creates(prefixes)...))
	answer := classify(err)
	zs.deleted(answer)
	unpin()
	switch answer {
	case done:
		old.finish(nil)
		return n, nil
	case missing: // somebody deleted old
		old.finish(errDeleted(old.path()))
	case permanent: // nothing was done
		old.delete(nil)
		return arrival{}, createError(lacking("CREATE or DELETE", a.lock.path, err))
	case refused:
		old.delete(nil)
	case uncertain: // all of it was done, or nothing
		old.finish(old.doubt(err))
		if n, err := a.lookUp(prefixes, err); n != nil || err != nil {
			return arrival{Node: n}, err
		}
	}
	return a.enqueue()
}

// lookUp finds out what became of a create whose answer was lost, for the reason cause.
// It returns nil and no error when there is no such node and never will be.
func (a *attempt) lookUp(prefixes []string, cause error) (*Node, error) {
	for pace := retry.New(); ; {
		if err := a.pause(pace, cause); err != nil {
			a.reap(prefixes)
			return nil, err
		}
		s := a.client.link.Session()
		paths, err := find(a.client.link, a.lock.path, prefixes...)
		switch classify(err) {
		case done:
			if len(paths) == 0 {
				return nil, nil
			}
			// Expired a moment ago, but still there; or somebody deleted one of two.
			if s == nil || len(paths) < len(prefixes) {
				a.reap(prefixes)
				return nil, nil
			}
			return newNode(a.lock, s, paths), nil
		case permanent:
			a.reap(prefixes)
			return nil, err
		}
		cause = err
	}
}

// reap gives up what a create with these prefixes may have left.
func (a *attempt) reap(prefixes []string) {
	a.client.reaper.Add(remains{parent: a.lock.path, prefixes: prefixes})
}

// createError names the one failure that a sequential create can only have when its
// parent's counter is stuck.
func createError(err error) error {
	if errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("%w: %w", ErrSequenceExhausted, err)
	}
	return err
}

// find returns the paths of those children of parent whose names start with a prefix, in
// the order of the prefixes, each of which is unique. It writes first, though nothing:
// another server may lag behind the one that took the create, and a leader that was deposed
// and does not know answers a sync from its past. After that nothing can come late any
// more, since a server that takes a session over shuts out the connection before.
func find(l *link.Link, parent string, prefixes ...string) (paths []string, err error) {
	if _, err = l.Transact(&zk.CheckVersionRequest{Path: parent, Version: -1}); err != nil && classify(err) != missing {
		return nil, lacking("READ", parent, err)
	}
	queue := l.Ask(link.Listing{Path: parent})[0]
	if classify(queue.Err) == missing {
		return nil, nil
	}
	if queue.Err != nil {
		return nil, lacking("READ", parent, queue.Err)
	}
	for _, prefix := range prefixes {
		for _, name := range queue.Children {
			if strings.HasPrefix(name, prefix) {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}

// acquire runs the life of a node up to the grant.
//
//	enqueue: create and list, look up what an unanswered create left
//	climb:   watch the two right ahead and the node itself, wait, list …
//
// It begins anew, with a new node, when the node is lost on the way.
func (a *attempt) acquire() (*Node, error) {
	return a.queue((*attempt).enqueue)
}

// requeue is acquire with the first create and the delete of old in one transaction.
func (a *attempt) requeue(old *Node) (*Node, error) {
	replaced := false
	return a.queue(func(a *attempt) (arrival, error) {
		if replaced {
			return a.enqueue()
		}
		replaced = true
		return a.replace(old)
	})
}

func (a *attempt) queue(enqueue func(*attempt) (arrival, error)) (*Node, error) {
	for pace := retry.New(); ; {
		n, err := enqueue(a)
		if err != nil {
			return nil, err
		}
		err = a.climb(n)
		if err == nil {
			return n.Node, nil
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

// climb waits until the node is at the head of the queue, and holds it.
func (a *attempt) climb(n arrival) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	ahead := &ahead{attempt: a, node: n.Node}
	defer ahead.leave()
	s, err := a.enter(n)
	for pace := retry.New(); ; {
		switch {
		case err == nil && s.ahead == 0:
			if n.grant(s) {
				return nil
			}
			n.prove() // the lease ran out
			err = a.pause(pace, nil)
		case err == nil:
			var head bool
			if head, err = ahead.wait(s); head && n.grant(s) {
				return nil
			}
		case classify(err) == permanent || errors.Is(err, errGone) ||
			errors.Is(err, ErrSequenceExhausted) || a.ctx.Err() != nil:
			return err
		default:
			err = a.pause(pace, err)
		}
		if err == nil {
			if s, err = a.list(n.Node); err == nil {
				pace.Reset()
				a.trouble.Store(nil)
			}
		}
	}
}

// grant makes a node at the head of the queue a held one, with s as its last known
// standing. It reports false if session, lease or node are gone.
func (n *Node) grant(s standing) bool {
	if !n.session.Hold(member{n}) {
		return false
	}
	n.loss.Held()
	n.beside = s.ahead + s.behind
	n.unattend = n.lock.client.link.Attend()
	n.watchLater()
	switch {
	case n.worn(): // there may be others outside the queue: one turn, and out of their way
		n.contested.Raise(time.Time{})
	case s.behind > 0:
		n.contested.Raise(time.Now())
	}
	return true
}

// enter finds the place of a fresh node. If its queue was listed in the flight of its create,
// the answer to that says whose it is.
func (a *attempt) enter(n arrival) (standing, error) {
	if n.listed == nil {
		return a.list(n.Node)
	}
	if err := n.bind(n.session, n.token); err != nil {
		return standing{}, err
	}
	return a.stand(n.Node, *n.listed)
}

// list looks at the queue, and at the node itself as long as it is not known whose that is.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // before the look: what comes later ends the wait
	if n.life.Err() != nil {
		return standing{}, errGone
	}
	asked := a.client.link.Now()
	requests := []link.Request{link.Listing{Path: a.lock.path}}
	if !n.bound.Load() {
		requests = append(requests, n.readings(n.znodes)...)
	}
	answers := a.client.link.Read(requests...)
	for i, seen := range answers[1:] {
		if err := a.verify(n, n.znodes[i], seen); err != nil {
			return standing{}, err
		}
	}
	return a.stand(n, listed{answers[0], asked})
}

// verify takes what a look at one of the znodes says of its owner and token. A create that
// was looked up, or queued while the connection was down, may have been executed under a
// newer session than the one it was asked for, so the owner decides, not the time of the call.
func (a *attempt) verify(n *Node, z *znode, seen link.Answer) error {
	if err := z.unseen(seen.Err); err != nil {
		return err
	}
	z.watched = true
	s := n.session
	if seen.Stat.EphemeralOwner != s.ID {
		if s = a.client.link.Session(); s == nil || seen.Stat.EphemeralOwner != s.ID {
			return errGone
		}
	}
	return n.bind(s, seen.Stat.Czxid)
}

// bind makes sure whose the node is.
func (n *Node) bind(s *link.Session, token int64) error {
	n.session, n.token = s, token
	n.bound.Store(true)
	if s.Enrol(member{n}) != nil {
		return errGone
	}
	return nil
}

// stand finds the place of the node in a list of the queue.
func (a *attempt) stand(n *Node, l listed) (standing, error) {
	switch classify(l.Err) {
	case done:
	case missing:
		return standing{}, errGone
	default:
		return standing{}, fmt.Errorf("list %s: %w", a.lock.path, lacking("READ", a.lock.path, l.Err))
	}
	s, err := stand(l.Children, n.znodes.names()...)
	if errors.Is(err, errNotQueued) {
		return standing{}, errGone
	}
	n.heard.Store(int64(l.asked))
	if s.foreign > 0 {
		a.reportForeign(s.foreign)
	}
	return s, err
}

// reportForeign says, once per attempt and not more often than the logger wants, that
// there are children that are no lock nodes.
func (a *attempt) reportForeign(count int) {
	if !a.reported {
		a.reported = true
		a.client.options.logger.Info("zklock: children that are no lock nodes are ignored",
			"path", a.lock.path, "count", count)
	}
}

// ahead watches the contenders right ahead of a node that queues. It watches two of them, so
// that whoever becomes second in line can learn before its turn comes that nobody else is
// ahead; the departure of the last one then makes it the head without another look.
type ahead struct {
	attempt  *attempt
	node     *Node
	departed mutexbool.Bool           // somebody has gone
	watchers map[string]*link.Watcher // by name
}

// tell passes on what w has heard: that somebody has gone, or that the watch is used up or lost.
// The latter ends the wait, whoever has gone in the same moment.
func (h *ahead) tell(w *link.Watcher) {
	if w.Gone.Load() {
		h.departed.Set()
	} else {
		h.node.wake.Set()
	}
}

func (h *ahead) leave() {
	h.attempt.wait.Forget()
	h.follow([2]string{})
}

// follow has those that are given watched, and nobody else. Whoever was known to have gone is
// still known for that, even if a list that was made before shows it.
func (h *ahead) follow(names [2]string) {
	for name, w := range h.watchers {
		if !slices.Contains(names[:], name) {
			h.attempt.client.link.Events.Ignore(h.path(name), w)
			delete(h.watchers, name)
		}
	}
	for _, name := range names {
		if name != "" && h.watchers[name] == nil {
			if h.watchers == nil {
				h.watchers = make(map[string]*link.Watcher)
			}
			w := new(link.Watcher)
			w.Notify = func() { h.tell(w) }
			h.watchers[name] = w
		}
	}
}

func (h *ahead) path(name string) string { return h.attempt.lock.path + "/" + name }

func (h *ahead) gone(name string) bool { return h.watchers[name].Gone.Load() }

// wait returns when those ahead have gone and the node is the head, or when there is another
// reason to look again.
func (h *ahead) wait(s standing) (head bool, err error) {
	a, n := h.attempt, h.node
	h.follow(s.nearest)
	h.tellStanding(s)
	h.tellOfRemains()
	queue := &link.Watcher{Notify: n.wake.Set}
	defer a.client.link.Events.Ignore(a.lock.path, queue)
	if err := h.watch(queue); err != nil {
		return false, err
	}
	// Watches can be lost: setting them again after a reconnect may fail unseen.
	ctx, cancel := context.WithTimeout(a.ctx, n.session.Recheck())
	defer cancel()
	for {
		h.departed.Clear() // before the look: what comes later ends the wait
		switch s.after(h.gone) {
		case first:
			return true, nil
		case unclear:
			return false, nil
		}
		select {
		case <-h.departed.C():
			continue
		case <-n.wake.C():
		case <-ctx.Done():
		}
		break
	}
	if a.ctx.Err() != nil {
		return false, a.explain(context.Cause(a.ctx))
	}
	return false, nil
}

// tellStanding says how to learn where the node stands. What is known of the one right ahead came
// with its watch.
func (h *ahead) tellStanding(s standing) {
	watchers := [2]*link.Watcher{h.watchers[s.nearest[0]], h.watchers[s.nearest[1]]}
	h.attempt.wait.Stands(func() second.Standing {
		now := second.Standing{Ahead: s.ahead}
		for i, name := range s.nearest {
			switch {
			case name == "":
			case watchers[i].Gone.Load():
				now.Ahead--
			case now.Nearest.ID == "":
				now.Nearest = h.attempt.lock.seen(name).forGate()
			}
		}
		return now
	})
}

// watch sees to it that the end of those ahead and of the node itself are heard of, in one
// round trip. On the former the grant rests, and so it does on the latter.
func (h *ahead) watch(queue *link.Watcher) error {
	c, n := h.attempt.client, h.node
	var requests []link.Request
	var names []string
	for name, w := range h.watchers {
		if q := c.link.Reading(h.path(name), w); q.Watch {
			requests, names = append(requests, q), append(names, name)
		}
	}
	others := len(requests)
	own := n.znodes.unwatched()
	for _, z := range own {
		requests = append(requests, c.link.Reading(z.path, &z.watch))
	}
	if len(requests) == 0 {
		return nil
	}
	answers := c.link.Read(requests...)
	var failed error
	for i, name := range names {
		w := h.watchers[name]
		err := answers[i].Err
		if errors.Is(err, zk.ErrNoAuth) {
			err = n.watchUnreadable(queue, name)
		}
		switch classify(err) {
		case done:
		case missing:
			w.Gone.Store(true) // since the list
		default:
			failed = fmt.Errorf("watch %s: %w", h.path(name), err)
		}
	}
	for i, z := range own {
		if err := z.unseen(answers[others+i].Err); err != nil {
			return err
		}
		z.watched = true
	}
	return failed
}

// tellOfRemains says what the attempt waits for if that is a node of ours that should be gone.
func (h *ahead) tellOfRemains() {
	for name := range h.watchers {
		if stuck := h.attempt.client.stuck(h.path(name)); stuck != nil {
			h.attempt.trouble.Store(&stuck)
		}
	}
}

// watchUnreadable lets queue hear of the end of a foreign node that we may not read. A server
// sends no event about it (CVE-2024-23944), nor does it say that it exists, from 3.8.4
// and 3.9.2 on (ZOOKEEPER-2590); but the queue can be watched, since it could be listed.
func (n *Node) watchUnreadable(queue *link.Watcher, name string) error {
	children, err := n.lock.client.link.WatchQueue(n.lock.path, queue)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}

// remains is what is left of an attempt: the znodes at paths or, if these are not known,
// whatever children of parent have these prefixes, which are unique to the attempt. The reaper
// deletes them.
type remains struct {
	parent   string
	prefixes []string // nil when it is known what they have come to
	paths    []string
	unused   *parent       // instead: a container to delete if it is empty
	refused  error         // why a delete was not permitted, nil if none was tried
	session  *link.Session // that was there then, nil if there was none
}

func newReaper(c *Client) *reaper.Reaper[remains] {
	return reaper.New(reaper.Config[remains]{
		Remove: c.remove,
		Await: func(ctx context.Context) error {
			_, err := c.link.AwaitSession(ctx)
			return err
		},
		Spawn:   c.link.Spawn,
		Context: c.link.Context(),
	})
}

// stuck says that the znode at path is one of ours that should be gone, and why it is
// not; it returns nil for any other.
func (c *Client) stuck(path string) error {
	item, found := c.reaper.Find(func(item remains) bool { return slices.Contains(item.paths, path) })
	switch {
	case !found:
		return nil
	case item.refused != nil:
		return fmt.Errorf("waiting behind %s, a node of this process that cannot be deleted: %w", path, item.refused)
	}
	return fmt.Errorf("waiting behind %s, a node of this process that is still to be deleted", path)
}

// first is the path of one of them, as far as it is known.
func (r remains) first() string {
	if len(r.paths) > 0 {
		return r.paths[0]
	}
	return r.parent + "/" + r.prefixes[0]
}

// remove tries once, and reports whether the item is certain to be gone.
func (c *Client) remove(item *remains) bool {
	if c.Err() != nil || c.link.Over() {
		return false
	}
	if item.unused != nil {
		return c.prune(*item.unused)
	}
	var err error
	if item.prefixes != nil {
		var paths []string
		paths, err = find(c.link, item.parent, item.prefixes...)
		switch {
		case err == nil && len(paths) == 0:
			return true
		case err == nil:
			item.paths, item.prefixes = paths, nil
		}
	}
	if err == nil {
		_, err = c.link.Transact(deletesOf(item.paths)...)
		err = lacking("DELETE", item.parent, err)
	}
	switch classify(err) {
	case done:
		return true
	case missing: // one of them, and nothing was done
		item.prefixes = namesOf(item.paths)
		return len(item.paths) == 1
	case permanent:
		if item.refused == nil {
			item.refused, item.session = err, c.link.Session()
			c.options.logger.Warn("zklock: cannot delete a lock node; it stays in the queue until its session ends, also in the way of this process",
				"path", item.first(), "err", err)
		}
		return item.session == nil || item.session.Over()
	}
	return false
}
