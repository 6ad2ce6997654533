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

// A Node is an acquired lock: a znode at the head of its queue. Release it exactly once, with [Node.Release]. Methods may be called
// concurrently.
type Node struct {
	lock  *Lock
	*form // the form with which the node was created; the method now returns the present one

	// These fields are set by the attempt that created the node, before other code sees the node. Only while the node queues, the attempt
	// may bind it to another session.
	session *link.Session
	token   int64
	bound   atomic.Bool  // session and token are certain, and will not change
	beside  int          // the number of other contenders in the last list of the queue before the grant
	heard   atomic.Int64 // when the newest request that found the node was sent, on the client's clock

	life    context.Context // ends when the lock is lost, with the reason as its cause
	endHold context.CancelCauseFunc
	scoped  sync.Once       // sets open and shut
	open    context.Context // see scope
	shut    context.CancelFunc
	loss    notice.Loss
	reaped  atomic.Bool // the znodes have been queued for the reaper

	// A downgrade replaces the znodes of a writer by those of a reader. A request names znodes, so it waits while it is unknown whether the
	// old or the new ones exist.
	names  *weighted.Weighted   // a request that names znodes takes one unit, a downgrade takes all; events and heartbeats never wait
	next   atomic.Pointer[form] // the znodes of a downgrade whose outcome is unknown; the outcome may stay unknown
	reader atomic.Pointer[form] // the znodes since the downgrade; nil before the downgrade

	revoked   mutexbool.Bool // a process has asked for the lock
	listening atomic.Bool    // the holder wants to know about such requests

	checking    *time.Timer   // starts the watch on the end of the node; nil if the node was already watched at the grant
	stopPolling func()        // see link.PollClose
	writing     atomic.Int32  // Multis without an answer
	saving      atomic.Value  // a channel that is closed at the end of the newest Save
	spent       atomic.Bool   // given up
	fate        error         // what Release returns about the node's end; valid when released is closed
	released    chan struct{} // closed when the node is gone or queued for the reaper
}

// newNode returns the node that a create has made. The session s is the one under which the create was expected to be executed.
func newNode(l *Lock, s *link.Session, created link.Answer) *Node {
	n := &Node{
		lock: l, session: cmp.Or(created.Session, s), token: created.Zxid,
		names: weighted.NewWeighted(allNames), stopPolling: func() {}, released: make(chan struct{}),
	}
	n.form = n.newForm(created.Created)
	// The context is not derived from the context of Acquire, because that context limits only the wait.
	n.life, n.endHold = context.WithCancelCause(context.Background())
	return n
}

// scope returns a context that ends when the state of the node does not matter any more. This is the case when the lock is lost, when the
// client is closed, or when the node was given up and its fate is known.
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

// bind records the session and the token of the node once they are certain.
func (n *Node) bind(s *link.Session, token int64) error {
	n.session, n.token = s, token
	n.bound.Store(true)
	if s.Enrol(member{n}) != nil {
		return errGone
	}
	return nil
}

// grant makes a node at the head of the queue the holder. The standing s is the last known place of the node. grant returns false if the
// session has ended, the lease has run out, or the node is deleted.
func (n *Node) grant(s standing) bool {
	if !n.session.Hold(member{n}) {
		return false
	}
	n.loss.Held()
	n.beside = s.ahead + s.behind
	n.stopPolling = n.lock.client.link.PollClose()
	if len(n.unwatched()) > 0 { // the watch starts later, because a short hold ends before the znodes need a watch
		n.checking = n.checkLater()
	}
	switch {
	// The path is to be created again, and other processes may wait for that outside the queue: this process releases after one hold.
	case n.overflows():
		n.contended.Raise(time.Time{})
	case s.behind > 0:
		n.contended.Raise(time.Now())
	}
	return true
}

// Path returns the path of the lock node. If the node has a pair of znodes, Path returns the path of the znode that is first in the queue.
func (n *Node) Path() string { return strings.TrimPrefix(n.path(), n.lock.client.chroot) }

// The method path returns the path on the server, with the chroot.
func (n *Node) path() string { return n.mine()[0].path }

// Token returns the fencing token: the transaction id that created the node (czxid). It is positive and grows with every later owner of the
// lock, even if the parent was deleted in between. Locks of other paths may have the same token. A resource that refuses tokens lower than
// the highest it has seen is safe from owners that do not know yet that they lost the lock.
//
// The tokens of a reader/writer lock grow from a writer to all later holders, and from readers to the next writer. Concurrent readers have
// tokens in any order, and a downgraded writer keeps its token. The resource therefore refuses a write with a token below the highest token
// that it has seen. It refuses a read with a token below the token of the latest write.
//
// Tokens grow for as long as the ensemble keeps its data. If the data is lost, or restored from a backup, they start lower again (5 after
// 406), and the resource refuses every new owner. First end every process that may have held the lock, because a former owner has a higher
// token than the new ones. Then reset the highest token in the resource.
func (n *Node) Token() int64 { return n.token }

// Lost returns a channel that is closed when the lock is lost. It is closed no later than the end of the lease, and therefore before the
// server can grant the lock to another client. If another client deletes the node, the channel is closed when the server of this client has
// reported the deletion. If the lock was granted without waiting, the deletion may not be reported until a sixth of the session timeout
// after the grant.
func (n *Node) Lost() <-chan struct{} { return n.life.Done() }

// Context returns a context that ends when Lost is closed, with a cause that wraps [ErrLost]. A release does not end this context.
func (n *Node) Context() context.Context { return n.life }

// Err returns nil while the lock is held, an error that wraps [ErrLost] once it is lost, and [ErrReleased] once it was released. Err
// checks the clock on every call, so it is accurate immediately after a process resumes. The lock may be lost right after Err returned:
// use the token where that matters.
func (n *Node) Err() error { return grant{n}.ErrAt(n.lock.client.link.Now()) }

// ValidUntil returns the time at which the lease ends if it is not renewed again, by this process's clock. ValidUntil returns the zero time
// if the lock is lost or released, or if there is no lease.
func (n *Node) ValidUntil() time.Time {
	now := time.Now() // read first: if the process is stopped before Remaining, the result is too early, but never too late
	left := n.session.Remaining()
	if !n.leased() || n.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

// lossNow returns why the lock is lost, or nil if it is not lost.
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

// leased reports whether a lease covers the lock. There is no lease over a connection that the program made ([Attach]). In that case only
// the server knows whether the lock is still held.
func (n *Node) leased() bool { return n.lock.client.link.Leased() }

// heardLasts is the time for which an answer proves that the session is alive. It is shorter than any session timeout.
const heardLasts = 250 * time.Millisecond

// The method certain reports whether the lock is certainly held. If there is no lease, certain may ask the server, by a write that changes
// nothing. In that case it also asks the library whether the connection is being closed.
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

// A grant is a node with the methods of [second.Grant].
type grant struct{ *Node }

func (g grant) ErrAt(now time.Duration) error {
	loss := g.lossAt(now)
	if g.spent.Load() { // checked last: after the node was given up, its end is no loss
		return second.ErrReleased
	}
	return loss
}

func (g grant) Contended() *second.Contention { return g.now().contended }

func (g grant) Idle() bool { return g.writing.Load() == 0 }

func (g grant) Unsettle() { g.writing.Add(1) }

func (g grant) Leased() bool { return g.leased() }

// confirmWithin limits the wait for the server's answer.
const confirmWithin = time.Second

// Confirm returns false if there is no answer within a second.
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

// A member is a node with the methods that its session calls.
type member struct{ *Node }

func (m member) IsLost() bool { return m.life.Err() != nil }

// Lose ends the hold. If the znodes still exist, other contenders wait behind them. The znodes are deleted when the owner has released the
// lock, or after the margin, because the owner may need the margin to stop.
func (m member) Lose(reason error) {
	m.end(reason)
	m.wake.Set()
	time.AfterFunc(m.lock.client.link.Margin(m.session.Negotiated()), func() { reap(m.Node) })
}

// Prove renews the lease with a write that checks that a znode of the node exists. While a downgrade replaces the znodes, the write checks
// the path instead, so that the renewal does not wait for the downgrade.
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

// Check reads the znodes, to find out whether they still exist and belong to this session. It also sets the watches on their end.
func (m member) Check() {
	zs, unpin := m.pin()
	defer unpin()
	if zs != nil {
		m.look(zs)
	}
}

// checkLater starts a timer for the check of the node. A short hold ends before the timer fires.
func (n *Node) checkLater() *time.Timer {
	return time.AfterFunc(n.session.Negotiated()/6, func() { n.lock.client.link.Spawn(member{n}.Check) })
}

// look reads the given znodes of the node. If they are deleted or belong to another session, look ends the hold.
func (n *Node) look(zs znodes) {
	c := n.lock.client
	again := false
	for i, seen := range c.link.Ask(n.readings(zs)...) {
		z := zs[i]
		switch {
		case errors.Is(seen.Err, zk.ErrNoNode):
			n.loseTo(z)
		case errors.Is(seen.Err, zk.ErrNoAuth): // a renewal of the lease needs this permission, too
			n.session.Lose(member{n}, fmt.Errorf("%w: read %s: %w", second.ErrLost, z.path, zkqueue.Lacking("READ", z.path, seen.Err)))
		case seen.Err != nil: // the read shows nothing: the hold ends with the lease, or a later read decides
			again = true
		case n.bound.Load() && seen.Stat.EphemeralOwner != n.session.ID: // before the node is bound, the attempt checks the owner
			n.session.Lose(member{n}, fmt.Errorf("%w: node %s belongs to session 0x%x", second.ErrLost, z.path, uint64(seen.Stat.EphemeralOwner)))
		default:
			z.version.Store(seen.Stat.Version)
			if zkqueue.Asked(seen.Data) {
				n.revoked.Set()
			}
		}
	}
	if again && c.Err() == nil && !n.spent.Load() { // if there is no connection, reopen checks the node after the reconnect
		n.checkLater()
	}
}

// readings returns the requests that read the znodes and set the watches on their end.
func (n *Node) readings(zs znodes) []link.Request {
	return each(zs, func(z *znode) link.Request { return n.lock.client.link.Reading(z.path, &z.watcher) })
}

// The method changed is called when an event about one of the znodes has arrived.
func (n *Node) changed(z *znode) {
	if n.replaced(z) {
		return
	}
	if z.gone() {
		n.loseTo(z)
	} else if n.life.Err() == nil && !n.spent.Load() {
		n.lock.client.link.Spawn(member{n}.Check) // a client wrote to the znode, so the watch is used up, and another one is set
	}
	n.wake.Set()
}

// loseTo ends the hold because z was deleted. If the node has a pair of znodes, the other znode is useless without z. If the node was given
// up before, our own delete has probably deleted z, and the answer to that delete shows whether it has.
func (n *Node) loseTo(z *znode) {
	z.watcher.Gone.Store(true) // set before spent is read: code that gives the node up at the same time then finds that the znode is gone
	if n.spent.Load() {
		return
	}
	n.end(errDeleted(z.path))
	if len(n.znodes) > 1 {
		time.AfterFunc(10*time.Millisecond, func() { reap(n) }) // delayed, since in most cases the session has ended, and the server deletes both
	}
}

// The method end ends the hold. If the node was given up before, the end is no loss, unless the answer to its release shows a loss.
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

// observe checks whether there are contenders behind a form of the node. Each check is one read, and sets a watch on the children of the
// path. observe ends when there is such a contender, when the node has another form, or when the node was given up. If the contender leaves
// again, the node still counts as contended.
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

// follow calls look at once, and again each time wake is set. The watcher w sets wake when the queue changes. Since watches can be lost,
// follow also calls look after the time that look returned in again. If that time is zero, look has failed; follow then repeats it after
// pauses that become longer. follow returns when look returns enough, or when ctx ends.
func (n *Node) follow(ctx context.Context, wake *mutexbool.Bool, look func(w *link.Watcher) (again time.Duration, enough bool)) {
	w := &link.Watcher{Notify: wake.Set}
	defer n.lock.client.link.Events.Ignore(n.lock.path, w)
	for pace := retry.New(); ; {
		wake.Clear() // cleared before look, so that a later change ends the wait
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

// Release releases the lock and deletes its node. Release takes no context. If the server does not answer, it returns after a third of
// the session timeout at the latest, and the node is deleted in the background or ends with its session.
//
// Release returns nil if the lock was held until now. It returns an error that wraps [ErrLost] if the lock was lost before. If the lock was
// already released, Release returns [ErrReleased] and sends nothing. Release returns [zk.ErrNoAuth] if this client may not delete nodes
// below the lock path: the node then stays until the session ends, and even this process queues behind it. In every case the lock is not
// held any more.
// The lease shows whether the lock was held until the release. Over a connection that the program made ([Attach]) there is no lease, and
// only the server knows. If its answer is late or lost, the error says that the outcome is unknown. The error also wraps the error of the
// connection, such as [zk.ErrNoServer] or [zk.ErrConnectionClosed], or [ErrClosed] if the connection was closed.
func (n *Node) Release() error {
	if n.spent.Swap(true) {
		return second.ErrReleased
	}
	n.leave()
	n.stepAside()
	giveUp(n)
	return grant{n}.AwaitRelease()
}

// leave marks the node as given up, before it is deleted. From then on only the answer to the delete can report a loss.
func (n *Node) leave() {
	n.spent.Store(true)
	n.lossNow() // checks the clock: a loss until now is still recorded
	n.session.Leave(member{n})
}

// await waits for the end of nodes that are given up together. It waits for at most as long as Release, and returns what Release returns.
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

// giveUp starts to delete nodes of one path, in one transaction. It does not wait for the answer.
func giveUp(nodes ...*Node) {
	c := nodes[0].lock.client
	var there, away []*Node
	for _, n := range nodes {
		switch err := c.Err(); {
		case n.unknown() == nil && n.mine().gone(): // another client has deleted the node, and its loss is not recorded yet
			n.finish(errDeleted(n.path()))
		case errors.Is(err, second.ErrClosed):
			n.finish(fmt.Errorf("%w: %w", second.ErrLost, err))
		case err != nil && (n.leased() || n.life.Err() != nil): // without a lease, only the answer of the server shows whether the lock was held
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

// deleteTogether asks the server to delete nodes. Their names came from the server and are never used again, so the delete cannot hit other
// nodes.
func deleteTogether(nodes ...*Node) {
	n, l := nodes[0], nodes[0].lock.client.link
	if l.Closed() { // on a closed connection a request could block the library without end (conn.go:527)
		leaveToReaper(nodes, second.ErrClosed)
		return
	}
	var all znodes
	for _, n := range nodes {
		zs, unpin := n.pin()
		defer unpin()
		if zs == nil { // it is unknown which znodes exist, so the reaper deletes those of both forms
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
	case len(nodes) > 1: // one node has made the transaction fail, so none was deleted; each is tried alone
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

// discard deletes a node that is not needed.
func (n *Node) discard() {
	n.leave()
	giveUp(n)
	await(n) // without this wait, the next node would queue behind n
}

// leaveToReaper queues all znodes for the reaper, except those that are known to be deleted. The parameter err says why the server has not
// answered.
func leaveToReaper(nodes []*Node, err error) {
	reap(nodes...)
	for _, n := range nodes {
		n.finish(n.unknownFate(err))
	}
}

// reap queues the znodes of nodes of one path for the reaper, together with the znodes that may have replaced them in a downgrade. It
// leaves out znodes that are known to be deleted.
func reap(nodes ...*Node) {
	var paths []string
	for _, n := range nodes {
		if n.reaped.Swap(true) {
			continue
		}
		var znodes znodes
		if r := n.unknown(); r != nil { // read before mine: if the downgrade ends between the two calls, mine returns the new znodes
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

// finish ends all waits for the node. It queues the znodes for the reaper, except those that are known to be deleted. Release returns fate.
// If the lock was lost before, it returns the loss instead.
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
	n.scoped.Do(func() { n.open, n.shut = over, func() {} }) // in most cases scope was never called
	n.shut()
}

// unknownFate returns the result of Release for the case that the server has not answered. The parameter err says why. If a lease covers
// the lock, the result is nil. Otherwise it is an error that says that the outcome is unknown.
func (n *Node) unknownFate(err error) error {
	if n.leased() {
		return nil
	}
	err = cmp.Or(err, n.lock.client.Err(), zk.ErrConnectionClosed)
	return fmt.Errorf("the server did not confirm that the lock was held until its release: %w", err)
}

// A znode is one node on the server.
type znode struct {
	path    string
	watcher link.Watcher // watches the znode itself
	version atomic.Int32 // the version of its content when it was last seen
}

// The type znodes has the one znode of a Node, or its pair of znodes. Both znodes of a pair have to exist.
type znodes []*znode

func (n *Node) newZnodes(paths []string) znodes {
	return each(paths, func(path string) *znode {
		z := &znode{path: path}
		z.watcher.Notify, z.watcher.Checked = func() { n.changed(z) }, true
		return z
	})
}

// each calls f for each element of a list, and returns the results.
func each[T, U any](list []T, f func(T) U) []U {
	made := make([]U, len(list))
	for i, v := range list {
		made[i] = f(v)
	}
	return made
}

// The method names returns the names of the znodes below the lock path.
func (zs znodes) names() []string {
	return each(zs, func(z *znode) string { return path.Base(z.path) })
}

func (zs znodes) paths() []string { return each(zs, func(z *znode) string { return z.path }) }

func namesOf(paths []string) []string { return each(paths, path.Base) }

// The method deletes returns the operations that delete the znodes.
func (zs znodes) deletes() []any { return deletesOf(zs.paths()) }

func deletesOf(paths []string) []any {
	return each(paths, func(path string) any { return &zk.DeleteRequest{Path: path, Version: -1} })
}

// The method checks returns operations that change nothing, and that fail if a znode does not exist.
func (zs znodes) checks() []any {
	return each(zs, func(z *znode) any { return &zk.CheckVersionRequest{Path: z.path, Version: -1} }) // any version
}

// unwatched returns the znodes on whose end there is no watch.
func (n *Node) unwatched() znodes {
	events := &n.lock.client.link.Events
	return slices.DeleteFunc(slices.Clone(n.znodes), func(z *znode) bool { return events.Hears(z.path, &z.watcher) })
}

// unseen returns the error to report after a read of the znode failed with err, or nil if it did not fail.
func (z *znode) unseen(err error) error {
	switch classify(err) {
	case done:
		return nil
	case missing:
		return errGone
	}
	return fmt.Errorf("read %s: %w", z.path, zkqueue.Lacking("READ", z.path, err))
}

// The method gone reports whether the znode is known to be deleted.
func (z *znode) gone() bool { return z.watcher.Gone.Load() }

// The method gone reports whether all znodes are known to be deleted.
func (zs znodes) gone() bool {
	return !slices.ContainsFunc(zs, func(z *znode) bool { return !z.gone() })
}

// The method deleted records the answer of the server to the delete of the znodes. Either all znodes are deleted now, or one of them was
// deleted before. In the second case the transaction has no effect. For a pair it is then unknown which znode was deleted before, and the
// other znode still exists.
func (zs znodes) deleted(answer outcome) {
	if answer == done || answer == missing && len(zs) == 1 {
		for _, z := range zs {
			z.watcher.Gone.Store(true)
		}
	}
}

// errDeleted returns the loss of a lock whose znode another client has deleted.
func errDeleted(path string) error {
	return second.Lost(second.ByDeletion, "node %s was deleted", path)
}

const allNames = 1 << 30

// A form is a set of znodes that a node has on the server. The first form was created. After a downgrade, the node has the form of a
// reader.
type form struct {
	znodes    znodes
	contended *second.Contention // records whether another contender waits behind this form
	wake      mutexbool.Bool     // set when the queue or the session has changed, so that it has to be read again
	missed    atomic.Bool        // while it was unknown whether this form has replaced a znode, an event about that znode was ignored
}

func (n *Node) newForm(paths []string) *form {
	f, l := &form{znodes: n.newZnodes(paths)}, n.lock.client.link
	f.contended = second.NewContention(func() { l.Spawn(func() { n.observe(f) }) })
	return f
}

// The method unknown returns the form that a downgrade with unknown outcome may have created. It returns nil if there is no such downgrade.
func (n *Node) unknown() *form { return n.next.Load() }

// Node.now returns the last known form of the node. To find out whether the form is certain, call [Node.unknown] first.
func (n *Node) now() *form { return cmp.Or(n.reader.Load(), n.form) }

// The method mine returns the last known znodes of the node.
func (n *Node) mine() znodes { return n.now().znodes }

// pin returns the znodes of the node. No downgrade replaces them until unpin is called. pin waits for the end of a downgrade in progress.
// If the outcome of a downgrade stayed unknown, pin returns nil znodes.
func (n *Node) pin() (zs znodes, unpin func()) {
	n.names.Acquire(context.Background(), 1)
	return n.pinned()
}

// tryPin is like pin, but does not wait. While a downgrade is in progress, it returns nil znodes.
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

// The method replaced reports whether to ignore an event about z: z is no longer a znode of the node, or a downgrade in progress makes that
// unknown.
func (n *Node) replaced(z *znode) bool {
	if r := n.unknown(); r != nil {
		r.missed.Store(true) // set before unknown is read again, so that become sees it if the downgrade ends in between
	}
	return n.unknown() != nil || !slices.Contains(n.mine(), z)
}
