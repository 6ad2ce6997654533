package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	weighted "golang.org/x/sync/semaphore"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Node is an acquired lock: a znode at the head of its queue. It must be given up
// exactly once, with [Node.Release]. Methods may be called concurrently.
type Node struct {
	lock  *Lock
	*form // as which the node was made; see now

	// Set by the attempt that made the node, before anybody else sees it; a node is
	// bound to another session only while it queues.
	session *link.Session
	token   int64
	bound   atomic.Bool  // both are final
	beside  int          // other contenders in the last list of the queue before the grant
	heard   atomic.Int64 // when the server was last asked that said that the node is there, on the client's clock

	life    context.Context // ends when the lock is lost, with the reason as its cause
	endHold context.CancelCauseFunc
	scoped  sync.Once       // sets the next two
	open    context.Context // see scope
	shut    context.CancelFunc
	loss    notice.Loss
	reaped  atomic.Bool // left to the reaper

	// A writer becomes a reader: other znodes take the place of its own. All that is sent about znodes goes by their names, so it
	// waits while it is unknown which there are.
	names  *weighted.Weighted   // one to send what names the znodes, all to replace them; never waited for by events or a heartbeat
	next   atomic.Pointer[form] // what was asked for and is unknown so far, or for ever
	reader atomic.Pointer[form] // what the node is since it is shared, nil before

	revoked   mutexbool.Bool // somebody has asked for the lock
	listening atomic.Bool    // because somebody wants to know that

	checking    *time.Timer   // to have the end watched, nil if it is; set at the grant
	stopPolling func()        // see link.PollClose
	writing     atomic.Int32  // Multis without an answer
	spent       atomic.Bool   // given up
	fate        error         // what Release says about the node's end; valid when released is closed
	released    chan struct{} // closed when the node is gone or left to the reaper
}

// newNode returns what a create has made, which was expected to be executed under s.
func newNode(l *Lock, s *link.Session, created link.Answer) *Node {
	n := &Node{
		lock: l, session: cmp.Or(created.Session, s), token: created.Zxid,
		names: weighted.NewWeighted(allNames), stopPolling: func() {}, released: make(chan struct{}),
	}
	n.form = n.newForm(created.Created)
	// Not derived from the context of Acquire, which bounds only the wait.
	n.life, n.endHold = context.WithCancelCause(context.Background())
	return n
}

// scope returns a context that ends when what the node is does not matter any more: it is lost, closed, or given up and its fate is known.
func (n *Node) scope() context.Context {
	n.scoped.Do(func() { n.open, n.shut = n.lock.client.link.Scope(n.life) })
	return n.open
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// bind makes sure whose the node is.
func (n *Node) bind(s *link.Session, token int64) error {
	n.session, n.token = s, token
	n.bound.Store(true)
	if s.Enrol(member{n}) != nil {
		return errGone
	}
	return nil
}

// grant makes a node at the head of the queue a held one, with s as its last known
// standing. It reports false if session, lease or node are gone.
func (n *Node) grant(s standing) bool {
	if !n.session.Hold(member{n}) {
		return false
	}
	n.loss.Held()
	n.beside = s.ahead + s.behind
	n.stopPolling = n.lock.client.link.PollClose()
	if len(n.unwatched()) > 0 { // a short hold ends before its end need be watched
		n.checking = n.checkLater()
	}
	switch {
	case n.overflows(): // there may be others outside the queue: one turn, and out of their way
		n.contended.Raise(time.Time{})
	case s.behind > 0:
		n.contended.Raise(time.Now())
	}
	return true
}

// Path returns the path of the lock node; of two, the one that is first in the queue.
func (n *Node) Path() string { return strings.TrimPrefix(n.path(), n.lock.client.chroot) }

// path is that on the server.
func (n *Node) path() string { return n.mine()[0].path }

// Token returns the fencing token: the transaction id that created the node (czxid). It
// is positive and grows with every later owner of the lock, even if the parent was deleted
// in between; locks of other paths may have the same one. A resource that remembers the
// highest token it has seen and refuses lower ones is safe from owners that do not know yet
// that they lost the lock.
//
// Those of a reader/writer lock grow from a writer to whoever comes behind, and from readers to the
// writer behind them. Readers that have the lock together have tokens in any order, and a writer that
// is shared keeps its own. So the resource refuses a write with a token below the highest that it has
// seen at all, and a read with one below that of the latest write.
//
// Tokens grow for as long as the ensemble keeps its data. If the data is lost, or
// restored from a backup, they start lower again (5 after 406), and the resource refuses
// every new owner. An operator then ends every process that may have held the lock
// before, and only then resets the highest token that the resource remembers: a former
// owner, should one be left, has a higher token than the new ones.
func (n *Node) Token() int64 { return n.token }

// Lost returns a channel that is closed when the lock is no longer certain to be ours:
// no later than the lease ends, and so before the server can give the lock to anybody
// else. If somebody else deletes the node, it is closed when the server of this client has
// said so; if the lock was granted without waiting, maybe only a sixth of the session timeout
// after the grant.
func (n *Node) Lost() <-chan struct{} { return n.life.Done() }

// Context returns a context that ends when Lost is closed, with an error wrapping
// [ErrLost] as its cause. Giving the lock up does not end it.
func (n *Node) Context() context.Context { return n.life }

// Err returns nil while the lock is held, an error wrapping [ErrLost] once it is lost,
// and [ErrReleased] once it was given up. It reads the clock itself, so it is right
// also in a process that has just been continued after a stop. What it cannot tell is
// what happens after it returned: use the token where that matters.
func (n *Node) Err() error { return grant{n}.ErrAt(n.lock.client.link.Now()) }

// ValidUntil returns up to when the lease runs as far as it is renewed now, by this process's
// clock; the zero time once the lock is lost or given up, or without a lease.
func (n *Node) ValidUntil() time.Time {
	now := time.Now() // read first: a process that is stopped in between returns a time that is too early, never too late
	left := n.session.Remaining()
	if !n.leased() || n.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

// lossNow returns why the lock is lost, nil if it is not.
func (n *Node) lossNow() error { return n.lossAt(n.lock.client.link.Now()) }

func (n *Node) lossAt(now time.Duration) error {
	if n.life.Err() == nil {
		if n.session.ValidAt(now) {
			return nil
		}
		n.session.Lapse()
	}
	return context.Cause(n.life) // nil if the session has just been renewed
}

// leased reports whether a lease says until when the lock is ours. Without one, as over a
// connection made elsewhere, only the server can tell that it still is.
func (n *Node) leased() bool { return n.lock.client.link.Leased() }

// heardLasts is for how long an answer vouches for a session: less than the timeout of any.
const heardLasts = 250 * time.Millisecond

// certain reports whether a held lock is certain to be ours. It asks the server if it has to, by a write that changes nothing, and the
// library about a close that is under way.
func (n *Node) certain() bool {
	if n.leased() {
		return n.lossNow() == nil
	}
	l := n.lock.client.link
	if asked := l.Now(); asked-time.Duration(n.heard.Load()) > min(heardLasts, n.session.Negotiated()/3) {
		zs, unpin := n.pin()
		defer unpin()
		if zs == nil {
			return false
		}
		if err := l.Transact(zs.checks()...); err != nil {
			return false
		}
		n.heard.Store(int64(asked))
	}
	return !l.Closed()
}

// A grant is a node as the gate sees it.
type grant struct{ *Node }

func (g grant) ErrAt(now time.Duration) error {
	loss := g.lossAt(now)
	if g.spent.Load() { // asked last: the end of a node that was given up is no loss
		return second.ErrReleased
	}
	return loss
}

func (g grant) Contended() *second.Contention { return g.now().contended }

func (g grant) Idle() bool { return g.writing.Load() == 0 }

func (g grant) Leased() bool { return g.leased() }

// confirmWithin bounds the wait for the server's word.
const confirmWithin = time.Second

// Confirm takes no answer within a second for a no.
func (g grant) Confirm() bool {
	l := g.lock.client.link
	ctx, cancel := context.WithTimeout(l.Context(), confirmWithin)
	defer cancel()
	certain, _ := second.Do(ctx, l.Spawn, func() (bool, error) { return g.certain(), nil }, l.Explain)
	return certain
}

func (g grant) AwaitRelease() error {
	if err := await(g.Node); err != nil {
		return fmt.Errorf("zklock: release %s: %w", g.lock.path, err)
	}
	return nil
}

func (g grant) Shared() bool { return g.lock.mode == second.Reading || g.reader.Load() != nil }

func (g grant) RevokeRequested() <-chan struct{} {
	if !g.listening.Swap(true) {
		g.lock.client.link.Spawn(member(g).Check)
	}
	return g.revoked.C()
}

// A member is a node as its session sees it.
type member struct{ *Node }

func (m member) IsLost() bool { return m.life.Err() != nil }

// Lose ends the hold. If the node is still there, others wait behind it: it goes when the
// owner has released it, who may need the margin to come to an end.
func (m member) Lose(reason error) {
	m.end(reason)
	m.wake.Set()
	time.AfterFunc(m.lock.client.link.Margin(m.session.Negotiated()), func() { reap(m.Node) })
}

// Prove has the server agree, by a write, that a node is there. While that is being replaced the write
// is about the path: the lease does not wait.
func (m member) Prove() {
	l := m.lock.client.link
	zs, unpin := m.tryPin()
	defer unpin()
	if zs == nil {
		l.Transact(&zk.CheckVersionRequest{Path: m.lock.path, Version: -1})
		return
	}
	if err := l.Transact(zs.checks()...); errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		m.look(zs)
	}
}

// Check looks whether a node is still there and still ours, and has its end watched.
func (m member) Check() {
	zs, unpin := m.pin()
	defer unpin()
	if zs != nil {
		m.look(zs)
	}
}

// checkLater leaves time for a short hold to end.
func (n *Node) checkLater() *time.Timer {
	return time.AfterFunc(n.session.Negotiated()/6, func() { n.lock.client.link.Spawn(member{n}.Check) })
}

// look reads znodes of the node, and ends the hold if they are gone or not ours.
func (n *Node) look(zs znodes) {
	c := n.lock.client
	again := false
	for i, seen := range c.link.Ask(n.readings(zs)...) {
		z := zs[i]
		switch {
		case errors.Is(seen.Err, zk.ErrNoNode):
			n.loseTo(z)
		case errors.Is(seen.Err, zk.ErrNoAuth): // nor could the lease be renewed
			n.session.Lose(member{n}, fmt.Errorf("%w: read %s: %w", second.ErrLost, z.path, zkqueue.Lacking("READ", z.path, seen.Err)))
		case seen.Err != nil: // nothing learned; the lease decides
			again = true
		case n.bound.Load() && seen.Stat.EphemeralOwner != n.session.ID: // before that, the attempt looks itself
			n.session.Lose(member{n}, fmt.Errorf("%w: node %s belongs to session 0x%x", second.ErrLost, z.path, uint64(seen.Stat.EphemeralOwner)))
		default:
			z.version.Store(seen.Stat.Version)
			if zkqueue.Asked(seen.Data) {
				n.revoked.Set()
			}
		}
	}
	if again && c.Err() == nil && !n.spent.Load() { // else there is another check at the reconnect
		n.checkLater()
	}
}

// readings are the requests that read the znodes, and have their end watched.
func (n *Node) readings(zs znodes) []link.Request {
	return each(zs, func(z *znode) link.Request { return n.lock.client.link.Reading(z.path, &z.watcher) })
}

// changed is called when something happened to one of the znodes.
func (n *Node) changed(z *znode) {
	if n.replaced(z) {
		return
	}
	if z.gone() {
		n.loseTo(z)
	} else if n.life.Err() == nil && !n.spent.Load() {
		n.lock.client.link.Spawn(member{n}.Check) // somebody wrote to it: the watch is used up
	}
	n.wake.Set()
}

// loseTo ends the hold because one of the znodes is gone. The other one is worth nothing any
// more. Those of a node that was given up go by our own hand; if not, the answer to that tells.
func (n *Node) loseTo(z *znode) {
	z.watcher.Gone.Store(true) // before the look: whoever gives the node up meanwhile finds it
	if n.spent.Load() {
		return
	}
	n.end(errDeleted(z.path))
	if len(n.znodes) > 1 {
		time.AfterFunc(10*time.Millisecond, func() { reap(n) }) // most often both go together, as when the session ends
	}
}

// end ends the hold. The end of a node that was given up is no loss, unless its release says so.
func (n *Node) end(reason error) {
	n.endHold(reason)
	if !n.spent.Load() {
		n.reportLoss(reason)
	}
}

func (n *Node) reportLoss(cause error) {
	c, path := n.lock.client, cmp.Or(n.lock.of, n.lock.path)
	n.loss.Tell(cause, func() {
		c.link.Spawn(func() { c.log().Lost(strings.TrimPrefix(path, c.chroot), n.token, cause) })
	})
}

// observe looks for contenders behind a form of the node until there is one, or the node is another or given up: with one read and a watch
// on the children of the path. A contender that leaves again does not take the answer back.
func (n *Node) observe(f *form) {
	n.follow(n.scope(), &f.wake, func(w *link.Watcher) (again time.Duration, enough bool) {
		if n.spent.Load() || n.now() != f {
			return 0, true
		}
		if _, err := n.lock.client.link.AwaitSession(n.scope()); err != nil {
			return 0, true
		}
		asked := time.Now()
		children, err := n.lock.client.link.WatchQueue(n.scope(), n.lock.path, w)
		if s, _ := stand(children, n.mine().names()...); s.behind > 0 {
			f.contended.Raise(asked)
			return 0, true
		}
		if err != nil {
			return 0, false
		}
		return n.session.Recheck(), false
	})
}

// follow looks at the queue of the node until that is enough or ctx ends: at once, and again when wake is set, which w does when the queue
// changes, or after the time that the look says, since watches can be lost. No time is for a look that failed: soon, and then ever later.
func (n *Node) follow(ctx context.Context, wake *mutexbool.Bool, look func(w *link.Watcher) (again time.Duration, enough bool)) {
	w := &link.Watcher{Notify: wake.Set}
	defer n.lock.client.link.Events.Ignore(n.lock.path, w)
	for pace := retry.New(); ; {
		wake.Clear() // before the look: what comes later ends the wait
		again, enough := look(w)
		switch {
		case enough:
			return
		case again == 0:
			again = pace.NextBackOff()
		default:
			pace.Reset()
		}
		select {
		case <-wake.C():
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// Release gives the lock up and deletes its node. It needs no context and does not wait
// for an unreachable server: after a third of the session timeout at the latest it
// returns, and the node is deleted in the background or goes with its session.
//
// It returns nil when the lock was ours to the end, an error wrapping [ErrLost] when it
// was lost before, [ErrReleased] when it was given up before (nothing is sent), and
// [zk.ErrNoAuth] when this client may not delete nodes below the lock path: the node
// then stays until the session ends, and even this process queues behind it. In any case
// the lock is not held any more.
//
// The lease tells whether the lock was ours. Where there is none, over a connection made
// elsewhere ([Attach]), only the server can: if it has not answered in time, or its answer
// is lost, the error says that it is not known, and wraps that of the connection, such as
// [zk.ErrNoServer] or [zk.ErrConnectionClosed], or [ErrClosed] if that was closed.
func (n *Node) Release() error {
	if n.spent.Swap(true) {
		return second.ErrReleased
	}
	n.leave()
	n.stepAside()
	giveUp(n)
	return grant{n}.AwaitRelease()
}

// leave gives the node up, before it is deleted. From then on there is no loss unless the answer to the delete says so.
func (n *Node) leave() {
	n.spent.Store(true)
	n.lossNow() // reads the clock
	n.session.Leave(member{n})
}

// await waits for the end of nodes that are being given up together, for as long as Release would, and returns what it would return.
func await(nodes ...*Node) (fate error) {
	end := time.Now().Add(nodes[0].lock.client.options.ReleaseWithin(nodes[0].session.Negotiated()))
	for _, n := range nodes {
		select {
		case <-n.released:
		case <-time.After(time.Until(end)):
		case <-n.lock.client.link.Context().Done():
		}
		var own error
		select {
		case <-n.released:
			own = n.fate
		default:
			own = cmp.Or(context.Cause(n.life), n.unknownFate(nil))
		}
		if errors.Is(own, second.ErrLost) {
			n.endHold(own)
		}
		fate = cmp.Or(fate, own)
	}
	return fate
}

// giveUp has nodes of one path deleted in one transaction, without waiting for the answer.
func giveUp(nodes ...*Node) {
	c := nodes[0].lock.client
	var there, away []*Node
	for _, n := range nodes {
		switch err := c.Err(); {
		case n.unknown() == nil && n.mine().gone(): // by another hand, and nobody has said so yet
			n.finish(errDeleted(n.path()))
		case errors.Is(err, second.ErrClosed):
			n.finish(fmt.Errorf("%w: %w", second.ErrLost, err))
		case err != nil && (n.leased() || n.life.Err() != nil): // else its answer is worth waiting for
			away = append(away, n)
		default:
			there = append(there, n)
		}
	}
	leaveToReaper(away, nil)
	if len(there) > 0 && !c.link.Spawn(func() { deleteTogether(there...) }) {
		leaveToReaper(there, second.ErrClosed)
	}
}

// deleteTogether asks the server to delete nodes. Their names were given by the server and never
// return, so the delete can only hit these nodes.
func deleteTogether(nodes ...*Node) {
	n, l := nodes[0], nodes[0].lock.client.link
	if l.Closed() { // what is sent now could stop the library for ever (conn.go:527)
		leaveToReaper(nodes, second.ErrClosed)
		return
	}
	var all znodes
	for _, n := range nodes {
		zs, unpin := n.pin()
		defer unpin()
		if zs == nil { // nobody knows their names: both go to the reaper
			leaveToReaper(nodes, nil)
			return
		}
		all = append(all, zs...)
	}
	err := l.Gather(context.Background(), n.lock.path, link.Transaction(all.deletes()))[0].Err
	switch answer := classify(err); {
	case answer == done:
		all.deleted(done)
		for _, n := range nodes {
			n.finish(nil)
		}
	case answer != missing && answer != permanent:
		leaveToReaper(nodes, err)
	case len(nodes) > 1: // because of one of them: nothing was done
		for _, n := range nodes {
			deleteTogether(n)
		}
	case answer == missing:
		all.deleted(missing)
		n.finish(errDeleted(n.path()))
	default:
		n.finish(fmt.Errorf("delete %s, which blocks the lock until the session ends, also for this process: %w",
			n.path(), zkqueue.Lacking("DELETE", n.lock.path, err)))
	}
}

// discard deletes a node that is not wanted.
func (n *Node) discard() {
	n.leave()
	giveUp(n)
	await(n) // or the next one would queue behind it
}

// leaveToReaper has all that is not gone deleted together. Err is why the server has not answered.
func leaveToReaper(nodes []*Node, err error) {
	reap(nodes...)
	for _, n := range nodes {
		n.finish(n.unknownFate(err))
	}
}

// reap leaves the znodes of nodes of one path to the reaper, except those that are gone, and those that they may have been replaced by.
func reap(nodes ...*Node) {
	var paths []string
	for _, n := range nodes {
		if n.reaped.Swap(true) {
			continue
		}
		var znodes znodes
		if r := n.unknown(); r != nil { // asked first: what it is by then is asked for next
			znodes = r.znodes
		}
		for _, z := range slices.Concat(znodes, n.mine()) {
			if !z.gone() {
				paths = append(paths, z.path)
			}
		}
	}
	if len(paths) > 0 {
		l := nodes[0].lock
		l.client.reaper.add(remains{parent: l.path, paths: paths})
	}
}

// finish says that nobody has to wait for the node any more. What is not known to be gone is
// left to the reaper. Fate is what Release says, unless the lock was lost before.
func (n *Node) finish(fate error) {
	fate = cmp.Or(context.Cause(n.life), fate)
	n.reportLoss(fate)
	reap(n)
	if n.checking != nil {
		n.checking.Stop()
	}
	n.stopPolling()
	for _, z := range n.mine() {
		n.lock.client.link.Events.Ignore(z.path, &z.watcher)
	}
	n.fate = fate
	close(n.released)
	n.scoped.Do(func() { n.open, n.shut = over, func() {} }) // most often nobody has asked for it
	n.shut()
}

// unknownFate is what Release says when the server has not answered, because of err: nothing if
// the lease vouches for the lock, and else that nobody knows.
func (n *Node) unknownFate(err error) error {
	if n.leased() {
		return nil
	}
	err = cmp.Or(err, n.lock.client.Err(), zk.ErrConnectionClosed)
	return fmt.Errorf("not known whether the lock was held to the end: %w", err)
}

// A znode is what a node is on the server.
type znode struct {
	path    string
	watcher link.Watcher // of the znode itself
	version atomic.Int32 // of its content, as last seen
}

// znodes are those of one node: one, or a pair of which neither is worth anything alone.
type znodes []*znode

func (n *Node) newZnodes(paths []string) znodes {
	return each(paths, func(path string) *znode {
		z := &znode{path: path}
		z.watcher.Notify, z.watcher.Checked = func() { n.changed(z) }, true
		return z
	})
}

// each returns what f makes of the elements of a list.
func each[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, v := range list {
		made[i] = f(v)
	}
	return made
}

// names returns the names below the lock path.
func (zs znodes) names() []string {
	return each(zs, func(z *znode) string { return path.Base(z.path) })
}

func (zs znodes) paths() []string { return each(zs, func(z *znode) string { return z.path }) }

func namesOf(paths []string) []string { return each(paths, path.Base) }

// deletes are the operations that delete the znodes.
func (zs znodes) deletes() []any { return deletesOf(zs.paths()) }

func deletesOf(paths []string) []any {
	return each(paths, func(path string) any { return &zk.DeleteRequest{Path: path, Version: -1} })
}

// checks are the operations that do nothing, and fail unless the znodes are there.
func (zs znodes) checks() []any {
	return each(zs, func(z *znode) any { return &zk.CheckVersionRequest{Path: z.path, Version: -1} }) // any version
}

// unwatched returns the znodes whose end would not be heard of.
func (n *Node) unwatched() znodes {
	events := &n.lock.client.link.Events
	return slices.DeleteFunc(slices.Clone(n.znodes), func(z *znode) bool { return events.Hears(z.path, &z.watcher) })
}

// unseen is why a read of the znode failed.
func (z *znode) unseen(err error) error {
	switch classify(err) {
	case done:
		return nil
	case missing:
		return errGone
	}
	return fmt.Errorf("read %s: %w", z.path, zkqueue.Lacking("READ", z.path, err))
}

// gone reports whether the znode is known to be deleted.
func (z *znode) gone() bool { return z.watcher.Gone.Load() }

// gone reports whether all are known to be deleted.
func (zs znodes) gone() bool {
	return !slices.ContainsFunc(zs, func(z *znode) bool { return !z.gone() })
}

// deleted notes what a server has answered to their delete: they are gone, or one of them was
// gone already. Of two that does not say which, and the other one is still there.
func (zs znodes) deleted(answer outcome) {
	if answer == done || answer == missing && len(zs) == 1 {
		for _, z := range zs {
			z.watcher.Gone.Store(true)
		}
	}
}

// errDeleted says that a znode was deleted by somebody else.
func errDeleted(path string) error {
	return second.Lost(second.ByDeletion, "node %s was deleted", path)
}

const allNames = 1 << 30

// A form is what a node is: the one as which it was made, or a reader's once it is shared.
type form struct {
	znodes    znodes
	contended *second.Contention // whether another contender waits behind it
	wake      mutexbool.Bool     // look again: the queue or the session changed
	missed    atomic.Bool        // something happened to a znode that this may replace
}

func (n *Node) newForm(paths []string) *form {
	f, l := &form{znodes: n.newZnodes(paths)}, n.lock.client.link
	f.contended = second.NewContention(func() { l.Spawn(func() { n.observe(f) }) })
	return f
}

// unknown returns what the node may be beside what it is known to be, nil if nothing.
func (n *Node) unknown() *form { return n.next.Load() }

// now returns what the node is. Whoever has to know for certain asks [Node.unknown] before.
func (n *Node) now() *form { return cmp.Or(n.reader.Load(), n.form) }

// mine returns what the node is on the server.
func (n *Node) mine() znodes { return n.now().znodes }

// pin returns what the node is on the server, and keeps it so until unpin is called. It waits for a
// change that is under way, and returns none if its outcome was never learned.
func (n *Node) pin() (zs znodes, unpin func()) {
	n.names.Acquire(context.Background(), 1)
	return n.pinned()
}

// tryPin is pin without waiting: it returns none while a change is under way, too.
func (n *Node) tryPin() (zs znodes, unpin func()) {
	if !n.names.TryAcquire(1) {
		return nil, func() {}
	}
	return n.pinned()
}

func (n *Node) pinned() (zs znodes, unpin func()) {
	if n.unknown() == nil {
		zs = n.mine()
	}
	return zs, func() { n.names.Release(1) }
}

// replaced reports whether what happened to z is no news, or none for now: z is no znode of the node any
// more, or it is unknown whether it is.
func (n *Node) replaced(z *znode) bool {
	if r := n.unknown(); r != nil {
		r.missed.Store(true) // before the look: see become
	}
	return n.unknown() != nil || !slices.Contains(n.mine(), z)
}
