package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
)

// ways are the variants of a transaction about nodes below the path: as it is, with the path created first, with the node above it, too,
// and so on. At most one of them succeeds. A container of ours therefore always starts with a child; the server would never remove a
// container that had none.
func (a *attempt) ways(ops link.Transaction) []link.Request {
	ways := []link.Request{ops}
	for path := a.lock.path; a.orphan && path != ""; path = parentOf(path) {
		q := &zk.CreateRequest{Path: path, Data: []byte(zkqueue.ContainerData), Acl: a.lock.acl, Flags: zk.FlagContainer}
		if a.client.plain.Load() {
			q.Data, q.Flags = nil, 0
		}
		ops = slices.Concat(link.Transaction{q}, ops)
		ways = append(ways, ops)
	}
	return ways
}

// taken returns the answer to the way that succeeded, or may have, and otherwise why none did: the ways before it find a parent missing,
// and the ways behind it find one that exists. If two ways succeeded, an operator has removed the path between them, and the nodes of the
// first.
func (a *attempt) taken(permission string, answers []link.Answer) link.Answer {
	for _, sought := range []outcome{done, unknown} {
		for _, answer := range slices.Backward(answers) {
			if classify(answer.Err) == sought {
				return answer
			}
		}
	}
	i := max(0, slices.IndexFunc(answers, func(a link.Answer) bool { return classify(a.Err) != missing }))
	answer := answers[i]
	q, _ := answer.Refused.(*zk.CreateRequest)
	switch {
	case i > 0 && errors.Is(answer.Err, zk.ErrBadArguments): // as servers before 3.5 answer to a container
		a.client.plain.Store(true)
		answer.Err = zk.ErrNoNode
	case q == nil || q.Flags&zk.FlagSequence != 0:
		answer.Err = zkqueue.Lacking(permission, a.lock.path, answer.Err)
		if errors.Is(answer.Err, zk.ErrNodeExists) { // only if the counter of the parent is stuck
			answer.Err = fmt.Errorf("%w: %w", ErrSequenceExhausted, answer.Err)
		}
	case errors.Is(answer.Err, zk.ErrNodeExists): // another client was faster
		answer.Err = zk.ErrNoNode
	default:
		answer.Err = fmt.Errorf("create parent %s: %w", q.Path, zkqueue.Lacking("CREATE", cmp.Or(parentOf(q.Path), "/"), answer.Err))
	}
	return answer
}

// Only a new parent resets the numbers of a queue, and only an empty one can be deleted. From [zkqueue.RenewFrom] on, which is half of the
// range, a process that has had the lock therefore stays out of the queue until the path is new. Each contender gets the lock once more,
// the queue drains, and the first process that sees it empty deletes the path. If that fails, all queue as before until the next multiple
// of renewStep, at which they try again together.
const renewStep = 1 << 20

// overflows reports whether the path of the node should be created anew.
func (n *Node) overflows() bool {
	r := &n.lock.client.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.number() >= max(zkqueue.RenewFrom, r.failed[n.lock.path])
}

// number is the sequence number of the node.
func (n *Node) number() int32 {
	_, number, _ := zkqueue.ParseName(n.path()) // it parses the end of the path
	return number
}

// stepAside is called when a node that had the lock is given up. stepAside reports whether its process stays out of the queue for a
// while.
func (n *Node) stepAside() bool { return n.overflows() && n.renew() }

// renewals are the lock paths that a client waits to see new. While a renewal is in progress this client does not queue there. It ends when
// the path is new, when it cannot be deleted, and after a session timeout.
type renewals struct {
	mu       sync.Mutex                 // guards the fields below
	underWay map[string]context.Context // ends when it does
	failed   map[string]int32           // number from which to try again, of paths that could not be deleted
}

// renew starts the renewal of the path of a node with such a number, unless one is in progress. renew reports false on a closed client.
func (n *Node) renew() bool {
	r, l, path := &n.lock.client.renewals, n.lock.client.link, n.lock.path
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay[path] != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(l.Context(), n.session.Negotiated())
	if !l.Spawn(func() {
		n.renewed(n.drain(ctx))
		cancel() // after the entry is removed, so that goroutines that waited do not find it
	}) {
		cancel()
		return false
	}
	r.underWay[path] = ctx
	return true
}

// awaitRenewal waits until no renewal of path is in progress.
func (c *Client) awaitRenewal(ctx context.Context, path string) error {
	c.renewals.mu.Lock()
	underWay := c.renewals.underWay[path]
	c.renewals.mu.Unlock()
	if underWay == nil {
		return nil
	}
	select {
	case <-underWay.Done(): // the goroutine may take longer, in a call without an answer
		return context.Cause(c.link.Context()) // the end of the client also ends the renewal
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renewed is called after a renewal, with the error if it failed.
func (n *Node) renewed(err error) {
	c, path := n.lock.client, n.lock.path
	r := &c.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underWay, path)
	if err == nil {
		delete(r.failed, path)
		return
	}
	if classify(err) == permanent && c.link.Context().Err() == nil {
		number := n.number()
		r.failed[path] = (number/renewStep + 1) * renewStep
		c.options.Logger.Warn("zklock: a lock path has used half of its sequence numbers; permit this process to delete the path, "+
			"which resets them", "path", path, "number", number, "next try", r.failed[path], "err", err)
	}
}

// drain waits for the queue to be empty and deletes the path. drain returns nil once the path is new.
func (n *Node) drain(ctx context.Context) (err error) {
	n.follow(ctx, new(mutexbool.Bool), func(w *link.Watcher) (again time.Duration, enough bool) {
		if _, err = n.lock.client.link.AwaitSession(ctx); err != nil {
			return 0, true
		}
		err = n.deletePath(w)
		switch outcome := classify(err); {
		case outcome == done, outcome == missing:
			err = nil
			return 0, true
		case errors.Is(err, zk.ErrNotEmpty):
			return n.session.Negotiated() / 4, false
		}
		return 0, classify(err) == permanent
	})
	return err
}

// deletePath deletes the path if possible. deletePath returns zk.ErrNoNode or nil if the path is gone or a new one, and zk.ErrNotEmpty if
// there are contenders that will probably go.
func (n *Node) deletePath(w *link.Watcher) error {
	c, path := n.lock.client, n.lock.path
	// Not the context of the wait: at its end the answer shows why the path could not be deleted.
	children, err := c.link.WatchQueue(context.Background(), path, w)
	if err != nil {
		return err
	}
	if _, err := c.link.Conn.Sync(path); err != nil { // of a server that lags
		return err
	}
	data, stat, err := c.link.Conn.Get(path)
	if err != nil {
		return err
	}
	_, others := zkqueue.Parse(children)
	switch {
	case stat.Czxid > n.token: // it could not go before the node, so it came later
		return nil
	case string(data) != zkqueue.ContainerData || stat.Aversion != 0:
		return fmt.Errorf("%w: no container of this package, or changed since", errNotOurs)
	case stat.NumChildren == 0:
		return c.link.Conn.Delete(path, 0) // if its data was never set: a plain node may have just taken its place
	case len(others) > 0:
		return fmt.Errorf("%w: %q is no lock node", errNotOurs, others[0])
	}
	return zk.ErrNotEmpty
}
