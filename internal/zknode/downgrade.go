package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

var (
	// errAgain says that nothing was changed, and that another time it may be.
	errAgain = errors.New("the queue has changed")
	// errNobody says that whoever is right behind does not read, if anybody is.
	errNobody = errors.New("no reader right behind")
)

// Share makes the node of a writer that of a reader with the same number, in one transaction, as soon
// as the contender right behind it reads. While nobody else is right behind, nobody else can be waiting
// for its departure alone: so whoever is behind a writer of ours, and no reader in between, need not look
// for a reader when it goes.
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
		return errors.New("a mutex is not shared")
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
	_, unpin := g.pin() // what was sent is known from here on, and nothing else is sent
	unpin()
	if g.Shared() {
		return nil
	}
	return cmp.Or(g.Err(), err)
}

// downgrade tries whenever the queue has changed.
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

// tryDowngrade looks at the queue once.
func (n *Node) tryDowngrade(wanted context.Context, w *link.Watcher) error {
	children, err := n.lock.client.link.WatchQueue(n.scope(), n.lock.path, w)
	if err != nil {
		return err
	}
	s, err := stand(children, n.znodes.names()...)
	switch {
	case errors.Is(err, errGone):
		member{n}.Check() // which knows whether it is lost
		return errAgain
	case err != nil:
		return err
	case s.reader == "":
		return errNobody
	}
	return n.replace(wanted, s.reader)
}

// replace makes the znodes of the node those of a reader while the one right behind is there. It
// returns nil once that is done, and an error if nothing was changed, or nobody knows.
func (n *Node) replace(wanted context.Context, behind string) error {
	c := n.lock.client
	if err := n.names.Acquire(wanted, allNames); err != nil {
		return context.Cause(wanted)
	}
	defer n.names.Release(allNames)
	if wanted.Err() != nil { // asked with the names in hand: who does not want it any more waits for them
		return context.Cause(wanted)
	}
	r := n.newReader()
	n.next.Store(r)
	if err := n.Err(); err != nil || n.reaped.Load() { // asked last: whoever gives the node up finds what is asked for
		n.next.Store(nil)
		return cmp.Or(err, errAgain)
	}
	err := c.link.Transact(append(n.exchange(r), &zk.CheckVersionRequest{Path: n.lock.path + "/" + behind, Version: -1})...)
	changed := err == nil
	if classify(err) == unknown {
		found, err := insist(n.scope(), c, func() ([]string, error) { return find(c.link, n.lock.path, r.znodes.names()...) })
		if err != nil {
			return err // and next stays: the reaper takes both
		}
		changed = len(found) > 0
	}
	n.become(r, changed)
	if changed {
		return nil
	}
	if errors.Is(err, zk.ErrBadVersion) { // somebody has written to it: maybe a request, which is not to be lost
		n.look(n.znodes)
		err = errAgain
	}
	return zkqueue.Lacking("CREATE or DELETE", n.lock.path, err)
}

// exchange are the operations that put the znodes of r in the place of those of the node.
func (n *Node) exchange(r *form) (ops []any) {
	for _, z := range n.znodes { // not if somebody has written to it since it was last seen
		ops = append(ops, &zk.DeleteRequest{Path: z.path, Version: z.version.Load()})
	}
	for i, z := range r.znodes {
		data := n.lock.contentOf(i)
		if i == 0 && n.revoked.IsSet() { // the reader is asked for the lock as the writer was
			data = []byte(zkqueue.Request)
		}
		ops = append(ops, &zk.CreateRequest{Path: z.path, Data: data, Acl: n.lock.acl, Flags: zk.FlagEphemeral})
	}
	return ops
}

// become is called when it is known whether that has happened.
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
		case r.missed.Load(): // what happened to it in the meantime was not believed
			n.changed(z)
		}
	}
	if changed {
		n.wake.Set() // whoever looks for those behind the writer need not any more
		if !n.spent.Load() {
			l.Spawn(member{n}.Check)
		}
	}
}

// newReader is what the node would be as a reader: with the same ids and numbers.
func (n *Node) newReader() *form {
	paths := n.znodes.paths()
	for i, path := range paths {
		paths[i] = zkqueue.AsReader(path, i)
	}
	return n.newForm(paths)
}
