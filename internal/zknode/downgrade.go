package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

var (
	// errAgain means that nothing was changed, and that another try may succeed.
	errAgain = errors.New("the queue has changed")
	// errNobody means that the contender directly behind is no reader, or that there is none.
	errNobody = errors.New("no reader right behind")
)

// Share waits until the contender directly behind is a reader. Then it replaces the node of the writer by the node of a reader with the
// same number, in one transaction. The transaction fails if the contender directly behind is no reader. If such a writer disappears, the
// contenders behind it therefore know that it was not downgraded, and need not look for a new reader.
func (g grant) Share(ctx context.Context) error {
	err := g.share(ctx)
	if err == nil {
		return nil
	}
	if !errors.Is(err, second.ErrClosed) && ctx.Err() == nil && g.Err() == nil {
		g.lock.client.log().Alone(g.lock.Path(), err)
	}
	return fmt.Errorf("zklock: share %s: %w", g.lock.Path(), err)
}

func (g grant) share(ctx context.Context) error {
	err := g.Err()
	switch {
	case err != nil, g.Shared():
		return err
	case g.lock.mode != second.Writing:
		return errors.New("a mutex cannot be shared")
	case g.overflows():
		return errors.New("half of the sequence numbers of the path are used up")
	}
	l := g.lock.client.link
	wanted, abandon := l.Scope(ctx)
	defer abandon()
	defer context.AfterFunc(g.scope(), abandon)()
	_, err = second.Do(wanted, l.Spawn, func() (struct{}, error) { return struct{}{}, g.downgrade(wanted) }, l.Explain)
	if wanted.Err() == nil {
		return err
	}
	_, unpin := g.pin() // waits for the outcome of a downgrade in progress; sends no further request
	unpin()
	if g.Shared() {
		return nil
	}
	return cmp.Or(g.Err(), err)
}

// downgrade tries again each time the queue has changed.
func (n *Node) downgrade(wanted context.Context) (err error) {
	n.follow(wanted, new(mutexbool.Bool), func(w *link.Watcher) (again time.Duration, enough bool) {
		err = n.tryDowngrade(wanted, w)
		if errors.Is(err, errNobody) {
			return n.session.Recheck(), false
		}
		return 0, err == nil || classify(err) == permanent || errors.Is(err, ErrSequenceExhausted)
	})
	if err != nil {
		return cmp.Or(n.Err(), context.Cause(wanted), err)
	}
	return nil
}

// tryDowngrade reads the queue once. If a reader is directly behind, it downgrades the node.
func (n *Node) tryDowngrade(wanted context.Context, w *link.Watcher) error {
	children, err := n.lock.client.link.WatchQueue(n.scope(), n.lock.path, w)
	if err != nil {
		return err
	}
	s, err := stand(children, n.znodes.names()...)
	switch {
	case errors.Is(err, errGone):
		member{n}.Check() // ends the hold if the node is lost
		return errAgain
	case err != nil:
		return err
	case s.reader == "":
		return errNobody
	}
	return n.replace(wanted, s.reader)
}

// replace replaces the znodes of the node by those of a reader, provided that the node behind still exists. If that was done, replace
// returns nil. It returns an error if nothing was changed, or if the outcome is unknown.
func (n *Node) replace(wanted context.Context, behind string) error {
	c := n.lock.client
	if err := n.names.Acquire(wanted, allNames); err != nil {
		return context.Cause(wanted)
	}
	defer n.names.Release(allNames)
	// Checked with the names locked: a caller that has left waits for them, and relies on it that no downgrade begins later.
	if wanted.Err() != nil {
		return context.Cause(wanted)
	}
	r := n.newReader()
	n.next.Store(r)
	if err := n.Err(); err != nil || n.reaped.Load() { // checked after next is set, so that code that gives the node up finds next
		n.next.Store(nil)
		return cmp.Or(err, errAgain)
	}
	err := c.link.Transact(append(n.exchange(r), &zk.CheckVersionRequest{Path: n.lock.path + "/" + behind, Version: -1})...)
	changed := err == nil
	if classify(err) == unknown {
		found, err := insist(n.scope(), c, func() ([]string, error) { return find(c.link, n.lock.path, r.znodes.names()...) })
		if err != nil {
			return err // next stays set, so the reaper deletes the znodes of both forms
		}
		changed = len(found) > 0
	}
	n.become(r, changed)
	if changed {
		return nil
	}
	// A client has written to the znode; this may be a request to revoke the lock, which must not get lost.
	if errors.Is(err, zk.ErrBadVersion) {
		n.look(n.znodes)
		err = errAgain
	}
	return zkqueue.Lacking("CREATE or DELETE", n.lock.path, err)
}

// exchange returns the operations that replace the znodes of the node by those of r.
func (n *Node) exchange(r *form) (ops []any) {
	for _, z := range n.znodes { // the operations have the version, so that they fail if a client has written to the znode
		ops = append(ops, &zk.DeleteRequest{Path: z.path, Version: z.version.Load()})
	}
	for i, z := range r.znodes {
		data := n.lock.contentOf(i)
		if i == 0 && n.revoked.IsSet() { // the request to the writer is passed on to the reader
			data = zkqueue.Asking(path.Base(z.path), data)
		}
		ops = append(ops, &zk.CreateRequest{Path: z.path, Data: data, Acl: n.lock.acl, Flags: zk.FlagEphemeral})
	}
	return ops
}

// become is called when it is known whether the downgrade to r has changed the znodes.
func (n *Node) become(r *form, changed bool) {
	l := n.lock.client.link
	if changed {
		n.reader.Store(r)
	}
	n.next.Store(nil)
	for _, z := range n.znodes {
		switch {
		case changed:
			l.Events.Ignore(z.path, &z.watcher)
		case r.missed.Load(): // an event about the znode was postponed
			n.changed(z)
		}
	}
	if changed {
		n.wake.Set() // ends the search for contenders behind the writer
		if !n.spent.Load() {
			l.Spawn(member{n}.Check)
		}
	}
}

// newReader returns the form of the node as a reader. It has the same ids and numbers.
func (n *Node) newReader() *form {
	paths := n.znodes.paths()
	for i, p := range paths {
		paths[i] = zkqueue.AsReader(p, i)
	}
	return n.newForm(paths)
}
