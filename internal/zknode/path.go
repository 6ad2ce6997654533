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

// The method ways returns the variants of a transaction about nodes below the path. The first variant is the transaction itself. The second
// one first creates the path, the third one also creates the node above the path, and so on. At most one variant succeeds. A container that
// this package creates therefore always gets a child at once. The server would never remove a container that had no child.
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

// The method taken returns the answer to the variant that succeeded or may have succeeded. If no variant succeeded, it returns the reason.
// Normally the variants before the right one fail because a parent is missing, and those after it because a parent exists already. Two
// variants succeed only if an operator removes the path between them. The nodes of the first variant are then removed, too.
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
	case i > 0 && errors.Is(answer.Err, zk.ErrBadArguments): // a server before 3.5 refuses to create a container in this way
		a.client.plain.Store(true)
		answer.Err = zk.ErrNoNode
	case q == nil || q.Flags&zk.FlagSequence != 0:
		answer.Err = zkqueue.Lacking(permission, a.lock.path, answer.Err)
		if errors.Is(answer.Err, zk.ErrNodeExists) { // only possible if the sequence counter of the parent stands still at its last number
			answer.Err = fmt.Errorf("%w: %w", ErrSequenceExhausted, answer.Err)
		}
	case errors.Is(answer.Err, zk.ErrNodeExists): // another client has created the node first
		answer.Err = zk.ErrNoNode
	default:
		answer.Err = fmt.Errorf("create parent %s: %w", q.Path, zkqueue.Lacking("CREATE", cmp.Or(parentOf(q.Path), "/"), answer.Err))
	}
	return answer
}

// Sequence numbers start again only with a new parent, and only an empty parent can be deleted. Therefore, from [zkqueue.RenewFrom] on
// (half of the range), a process that has had the lock stays out of the queue until the path is new. The contenders in the queue get the
// lock once more, the queue drains, and the first process that sees it empty deletes the path. If that fails, all processes queue as
// before. When the numbers reach the next multiple of renewStep, all processes try again.
const renewStep = 1 << 20

// overflows reports whether the path of the node should be deleted and created again.
func (n *Node) overflows() bool {
	r := &n.lock.client.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.number() >= max(zkqueue.RenewFrom, r.failed[n.lock.path])
}

// The method number returns the sequence number of the node.
func (n *Node) number() int32 {
	_, number, _ := zkqueue.ParseName(n.path()) // ParseName looks only at the end of the path
	return number
}

// stepAside is called when a node that had the lock is given up. If its process has to stay out of the queue for a while, stepAside returns
// true.
func (n *Node) stepAside() bool { return n.overflows() && n.renew() }

// The type renewals has the lock paths for whose renewal a client waits. While a renewal of a path is in progress, this client does not
// queue there. The renewal ends when the path is new, when it cannot be deleted, or after a session timeout.
type renewals struct {
	mu       sync.Mutex                 // guards the fields below
	underWay map[string]context.Context // each context ends with the renewal
	failed   map[string]int32           // for each path that could not be deleted, the sequence number at which to try again
}

// renew starts the renewal of the path of the node, unless one is in progress. On a closed client, renew returns false.
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
		cancel() // called after renewed has removed the entry: goroutines that waited must not find it again
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
	case <-underWay.Done(): // does not wait for the goroutine of the renewal, which a call without an answer may delay
		return context.Cause(c.link.Context()) // the renewal also ends when the client ends
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The method renewed is called after a renewal. If the renewal failed, err says why.
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

// drain waits until the queue is empty, and deletes the path. It returns nil once the path is new.
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

// deletePath deletes the path if that is possible. If the path is deleted or a new one, deletePath returns zk.ErrNoNode or nil. If there
// are contenders that will probably leave, it returns zk.ErrNotEmpty.
func (n *Node) deletePath(w *link.Watcher) error {
	c, path := n.lock.client, n.lock.path
	// The context of the wait is not used here: when it ends, the answer still has to show why the path could not be deleted.
	children, err := c.link.WatchQueue(context.Background(), path, w)
	if err != nil {
		return err
	}
	if _, err := c.link.Conn.Sync(path); err != nil { // the server may lag behind
		return err
	}
	data, stat, err := c.link.Conn.Get(path)
	if err != nil {
		return err
	}
	_, others := zkqueue.Parse(children)
	switch {
	case stat.Czxid > n.token: // the path was created after our node: another process has renewed it
		return nil
	case string(data) != zkqueue.ContainerData || stat.Aversion != 0:
		return fmt.Errorf("%w: the path is not a container that this package created, or it was changed", errNotOurs)
	case stat.NumChildren == 0:
		return c.link.Conn.Delete(path, 0) // version 0: a plain node that has just replaced it stays if its data was set
	case len(others) > 0:
		return fmt.Errorf("%w: the child %q is not a lock node", errNotOurs, others[0])
	}
	return zk.ErrNotEmpty
}
