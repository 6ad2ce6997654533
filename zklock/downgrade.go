package zklock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	weighted "golang.org/x/sync/semaphore"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A sharing is of a writer's node, which can become a reader's: then other znodes take the place of
// its own. All that is sent about znodes goes by their names, so it waits while it is not known which
// there are.
type sharing struct {
	names *weighted.Weighted // one to send what names the znodes, all to replace them; never waited for by events or a heartbeat

	next   atomic.Pointer[reader] // what was asked for without an answer so far, or ever
	reader atomic.Pointer[reader] // what the node is since
	missed atomic.Bool            // something happened to a znode that may be replaced
}

const allNames = 1 << 30

func newSharing() *sharing { return &sharing{names: weighted.NewWeighted(allNames)} }

func (s *sharing) unpin() { s.names.Release(1) }

// A reader is what a node is once it is shared.
type reader struct {
	znodes    znodes
	contested *contention.Signal
	wake      mutexbool.Bool // look at the queue again
}

// shared reports whether others that read may have the lock at the same time.
func (n *Node) shared() bool { return n.lock.mode == second.Reading || n.reader() != nil }

// reader returns what the node is since it is shared, nil before.
func (n *Node) reader() *reader {
	if n.sharing == nil {
		return nil
	}
	return n.sharing.reader.Load()
}

// unsure returns what the node may be, for all that is known, nil if nothing but what it was.
func (n *Node) unsure() *reader {
	if n.sharing == nil {
		return nil
	}
	return n.sharing.next.Load()
}

// maybe returns what the node may be on the server, beside what it is known to be.
func (n *Node) maybe() znodes {
	if r := n.unsure(); r != nil {
		return r.znodes
	}
	return nil
}

// mine returns what the node is on the server. Whoever has to know for certain asks [Node.unsure]
// before.
func (n *Node) mine() znodes {
	if r := n.reader(); r != nil {
		return r.znodes
	}
	return n.znodes
}

// pin returns what the node is on the server, and keeps it so until unpin is called. It waits for a
// change that is under way, and returns none if its outcome was never learned.
func (n *Node) pin() (zs znodes, unpin func()) {
	if n.sharing == nil {
		return n.znodes, func() {}
	}
	n.sharing.names.Acquire(context.Background(), 1)
	return n.pinned(), n.sharing.unpin
}

// tryPin is pin without waiting: it returns none while a change is under way, too.
func (n *Node) tryPin() (zs znodes, unpin func()) {
	switch {
	case n.sharing == nil:
		return n.znodes, func() {}
	case !n.sharing.names.TryAcquire(1):
		return nil, func() {}
	}
	return n.pinned(), n.sharing.unpin
}

func (n *Node) pinned() znodes {
	if n.unsure() != nil {
		return nil
	}
	return n.mine()
}

// replaced reports whether what happened to z is no news, or none for now: z is no znode of the node any
// more, or maybe not.
func (n *Node) replaced(z *znode) bool {
	if n.sharing == nil {
		return false
	}
	n.sharing.missed.Store(true) // before the look: see resume
	return n.unsure() != nil || !slices.Contains(n.mine(), z)
}

// share makes the node of a writer that of a reader with the same number, in one transaction, as soon
// as the contender right behind it reads. While nobody else is right behind, nobody else can be waiting
// for its departure alone: so whoever is behind a writer of ours, and no reader in between, need not look
// for a reader when it goes.
func (n *Node) share(ctx context.Context) error {
	err := n.becomeShared(ctx)
	if err != nil && !errors.Is(err, ErrClosed) && ctx.Err() == nil && n.Err() == nil {
		n.lock.client.options.logger.Warn("zklock: a writer that reads now cannot let readers of other processes in; they wait for its release",
			"path", n.lock.Path(), "err", err)
	}
	return err
}

func (n *Node) becomeShared(ctx context.Context) error {
	if err := n.shareable(); err != nil || n.shared() {
		return err
	}
	l := n.lock.client.link
	wanted, leave := l.Scope(ctx)
	defer leave()
	open, stop := l.Scope(n.life)
	defer stop()
	d := &downgrade{node: n, wanted: wanted, open: open}
	result := make(chan error, 1)
	if !l.Spawn(func() { result <- d.run() }) {
		return ErrClosed
	}
	left := wanted.Done()
	for {
		select {
		case err := <-result:
			return err
		case <-n.released:
			return ErrReleased
		case <-n.life.Done():
			return n.Err()
		case <-left:
			if d.sent.CompareAndSwap(false, true) { // nothing is under way, nor will be
				return l.Explain(context.Cause(wanted))
			}
			left = nil // what it comes to has to be known
		}
	}
}

func (n *Node) shareable() error {
	switch {
	case n.Err() != nil:
		return n.Err()
	case n.shared():
		return nil
	case n.sharing == nil:
		return errors.New("a mutex is not shared")
	case n.worn():
		return errors.New("half of the sequence numbers of the path are used up")
	}
	return nil
}

// A downgrade is one call of share. It runs in a goroutine of its own, as an [attempt] does.
type downgrade struct {
	node   *Node
	wanted context.Context // ends when the caller has left, or the client
	open   context.Context // ends when it does not matter any more what the node is: it is lost or given up
	sent   atomic.Bool     // not to be taken back
	wake   mutexbool.Bool  // look at the queue again
}

// errAgain says that nothing was changed, and that another time it may be.
var errAgain = errors.New("the queue has changed")

func (d *downgrade) run() error {
	n, c := d.node, d.node.lock.client
	w := &link.Watcher{Notify: d.wake.Set}
	defer c.link.Events.Ignore(n.lock.path, w)
	for pace := retry.New(); ; {
		d.wake.Clear() // before the look: what comes later ends the wait
		again := n.session.Recheck()
		switch err := d.try(w); {
		case err == nil, n.shared():
			return nil
		case errors.Is(err, errNobody):
			pace.Reset()
		case classify(err) == permanent, errors.Is(err, ErrSequenceExhausted):
			return err
		default:
			again = pace.NextBackOff()
		}
		d.sent.Store(false) // and it stays set once the node is shared
		if err := d.pause(again); err != nil {
			return err
		}
	}
}

// errNobody says that whoever is right behind does not read, if anybody is.
var errNobody = errors.New("no reader right behind")

// try looks at the queue once.
func (d *downgrade) try(w *link.Watcher) error {
	n := d.node
	children, err := n.lock.client.link.WatchQueue(n.lock.path, w)
	if err != nil {
		return err
	}
	reader, err := follower(children, n.znodes.names()...)
	switch {
	case errors.Is(err, errNotQueued):
		n.check() // which knows whether it is lost
		return errAgain
	case err != nil:
		return err
	case reader == "":
		return errNobody
	}
	return d.replace(reader)
}

// pause waits for a reason to look again.
func (d *downgrade) pause(again time.Duration) error {
	timer := time.NewTimer(again)
	defer timer.Stop()
	select {
	case <-d.wake.C():
	case <-timer.C:
	case <-d.wanted.Done():
	case <-d.open.Done():
	}
	if err := d.node.Err(); err != nil {
		return err
	}
	return context.Cause(d.wanted)
}

// replace makes the znodes of the node those of a reader while the one right behind is there. It
// returns nil once that is done, and an error if nothing was changed, or nobody knows.
func (d *downgrade) replace(behind string) error {
	n := d.node
	s, l := n.sharing, n.lock.client.link
	if err := s.names.Acquire(d.wanted, allNames); err != nil {
		return context.Cause(d.wanted)
	}
	defer s.names.Release(allNames)
	if n.shared() {
		return nil
	}
	if !d.sent.CompareAndSwap(false, true) {
		return context.Cause(d.wanted)
	}
	r := n.newReader()
	s.missed.Store(false)
	s.next.Store(r)
	if err := n.Err(); err != nil || n.reaped.Load() { // asked last: whoever gives the node up finds what is asked for
		s.next.Store(nil)
		return cmp.Or(err, errAgain)
	}
	ops := append(n.znodes.deletesAsSeen(), n.downgrades(r.znodes)...)
	_, err := l.Transact(append(ops, &zk.CheckVersionRequest{Path: n.lock.path + "/" + behind, Version: -1})...)
	changed := err == nil
	if classify(err) == uncertain {
		if changed, err = d.lookUp(r); err != nil {
			return err // and next stays: the reaper takes both
		}
		err = errAgain
	}
	if !changed {
		s.next.Store(nil)
		n.resume()
		if errors.Is(err, zk.ErrBadVersion) { // somebody has written to it: maybe a request, which is not to be lost
			n.look(n.znodes)
			err = errAgain
		}
		return lacking("CREATE or DELETE", n.lock.path, err)
	}
	s.reader.Store(r)
	s.next.Store(nil)
	n.becomeReader()
	return nil
}

// lookUp finds out whether a transaction without an answer has made the znodes of r. The error is that
// it does not matter any more.
func (d *downgrade) lookUp(r *reader) (changed bool, err error) {
	l := d.node.lock.client.link
	for pace := retry.New(); ; {
		if err := retry.Pause(d.open, pace.NextBackOff()); err != nil {
			return false, err
		}
		if _, err := l.AwaitSession(d.open); err != nil {
			return false, err
		}
		paths, err := find(l, d.node.lock.path, r.znodes.names()...)
		if err == nil {
			return len(paths) > 0, nil
		}
	}
}

// newReader is what the node would be as a reader.
func (n *Node) newReader() *reader {
	r := new(reader)
	var paths []string
	for i, z := range n.znodes {
		paths = append(paths, asReader(z.path, i))
	}
	r.znodes = newZnodes(paths, n.changed)
	r.contested = n.newContested(&r.wake)
	return r
}

// asReader is the name that the writer's znode at path has as a reader's: the same id and number.
func asReader(path string, i int) string {
	end := len(path) - sequenceDigits
	id := strings.TrimSuffix(path[:end], ownMarkers[second.Writing][i])
	return id + ownMarkers[second.Reading][i] + path[end:]
}

// downgrades are the operations that make the znodes of a reader in the place of a writer's. Who was
// asked for the lock still is.
func (n *Node) downgrades(zs znodes) []any {
	var ops []any
	for i, z := range zs {
		data := n.lock.contentOf(i)
		if i == 0 && n.revoked.told.IsSet() {
			data = []byte(request)
		}
		ops = append(ops, &zk.CreateRequest{Path: z.path, Data: data, Acl: n.lock.acl, Flags: zk.FlagEphemeral})
	}
	return ops
}

// becomeReader is called when the node has become that of a reader.
func (n *Node) becomeReader() {
	events := &n.lock.client.link.Events
	for _, z := range n.znodes {
		z.watch.Gone.Store(true)
		events.Ignore(z.path, &z.watch)
	}
	n.wake.Set() // whoever looks for those behind the writer need not any more
	if !n.spent.Load() {
		n.lock.client.link.Spawn(n.check)
	}
}

// resume is called when the node has not become that of a reader. What happened to its znodes in the
// meantime was not believed.
func (n *Node) resume() {
	if n.sharing.missed.Load() {
		for _, z := range n.znodes {
			n.changed(z)
		}
	}
}
