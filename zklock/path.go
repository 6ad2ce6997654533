package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// parents is what a client knows of the nodes above its lock nodes.
type parents struct {
	plain    atomic.Bool    // the server knows no containers (before 3.5)
	building sync.WaitGroup // attempts between their first parent and their node
}

// beginBuilding is counted, because Close must not overtake it: the parents would stay.
func (a *attempt) beginBuilding() error {
	if !a.client.link.Count(&a.client.parents.building) {
		return ErrClosed
	}
	a.parents = make(map[string]bool)
	return nil
}

// endBuilding follows the end of an enqueue. A container that has had a child goes by
// itself; one that never had any stays for ever, unless we delete it.
func (a *attempt) endBuilding(used bool) {
	if a.parents == nil {
		return
	}
	defer a.client.parents.building.Done()
	if !used {
		for _, path := range slices.Backward(slices.Sorted(maps.Keys(a.parents))) { // the lowest first
			p := parent{path, a.parents[path]}
			if !a.client.prune(p) {
				a.client.reaper.add(remains{unused: &p})
			}
		}
	}
	a.parents = nil
}

// buildings are the requests that create the lock path and what may be missing above it, from
// the top: none as long as nothing is known to be missing.
func (a *attempt) buildings() []link.Request {
	if a.parents == nil {
		return nil
	}
	var requests []link.Request
	for path := a.lock.path; path != ""; path = parentOf(path) {
		q := &zk.CreateRequest{Path: path, Data: []byte(zkqueue.ContainerData), Acl: a.lock.acl, Flags: zk.FlagContainer}
		if a.client.parents.plain.Load() {
			q.Data, q.Flags = nil, 0
		}
		requests = append(requests, link.Transaction{q})
	}
	slices.Reverse(requests)
	return requests
}

// noteBuilt remembers which parents may be there because of the attempt, and what stood in the
// way of those that are missing.
func (a *attempt) noteBuilt(requests []link.Request, answers []link.Answer) {
	a.obstacle = nil
	deepest := true // of those that are there, or could not be created
	for i, q := range slices.Backward(requests) {
		b, err := q.(link.Transaction)[0].(*zk.CreateRequest), answers[i].Err
		switch {
		case b.Flags != zk.FlagContainer: // it stays
		case err == nil, classify(err) == unknown:
			a.parents[b.Path] = a.parents[b.Path] || err == nil
		case unknownCode(err) == wire.CodeUnimplemented:
			a.client.parents.plain.Store(true)
			continue
		}
		if deepest && classify(err) != missing {
			// The server asks for the permission first: above one that is there it means nothing.
			deepest = false
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				a.obstacle = fmt.Errorf("create parent %s: %w", b.Path, zkqueue.Lacking("CREATE", cmp.Or(parentOf(b.Path), "/"), err))
			}
		}
	}
}

// A parent is a container that this client has asked for.
type parent struct {
	path string
	made bool // by this client; else the answer was lost
}

// prune deletes a container unless it has children, which only the server can tell. It reports whether there is nothing
// more to do: it is gone, in use, or not for us to delete.
//
// The delete is for a node whose data was never set. It cannot tell a plain node that
// took the container's place within the round trip; with the sync, no server that lags
// makes that any longer. Whoever was about to use the container makes it anew.
func (c *Client) prune(p parent) (finished bool) {
	_, err := c.container(p)
	if err == nil {
		err = c.link.Conn.Delete(p.path, 0)
	}
	if errors.Is(err, zk.ErrNoAuth) {
		c.options.Logger.Warn("zklock: cannot delete an empty parent; it stays", "path", p.path, "err", err)
	}
	return classify(err) != refused && classify(err) != unknown
}

// container reads what the server knows of a container of this package, nothing if it
// is for others to use.
func (c *Client) container(p parent) (*zk.Stat, error) {
	if _, err := c.link.Conn.Sync(p.path); err != nil && classify(err) != missing {
		return nil, err
	}
	data, stat, err := c.link.Conn.Get(p.path)
	switch {
	case errors.Is(err, zk.ErrNoAuth) && p.made:
		return nil, nil
	case err != nil:
		return nil, err
	case string(data) != zkqueue.ContainerData || stat.Aversion != 0:
		return stat, fmt.Errorf("%w: no container of this package, or changed since", errNotOurs)
	}
	return stat, nil
}

// Nothing but a new parent sets the numbers of a queue back, and only an empty one can be
// deleted. So from [zkqueue.RenewFrom] on, which is half of the range, whoever has had a turn stays
// out of the queue until the path is new: each contender takes one more turn, the queue
// drains, and the first who sees it empty deletes the path. Where that fails, all queue as
// before until the next multiple of renewStep, at which they try again together.
const renewStep = 1 << 20

// overflows reports whether the path of the node should be made anew.
func (n *Node) overflows() bool {
	r := &n.lock.client.renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	return n.number() >= max(zkqueue.RenewFrom, r.failed[n.lock.path])
}

// number is that of the node in the queue.
func (n *Node) number() int32 {
	_, number, _ := zkqueue.ParseName(baseOf(n.path()))
	return number
}

// stepAside is called when a node that had its turn is given up. It reports whether its
// process stays out of the queue for a while.
func (n *Node) stepAside() bool { return n.overflows() && n.renew() }

// renewals are the lock paths that a client waits to see new. For as long as one is under way this client does not queue
// there. It ends with success, when there is no hope, and after a session timeout.
type renewals struct {
	mu       sync.Mutex                 // guards the fields below
	underWay map[string]context.Context // ends when it does
	failed   map[string]int32           // number from which to try again, of paths that could not be made anew
}

// renew sees to it that the path of a node with such a number is being made anew. It reports false on a closed client.
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
		cancel() // after the entry is gone: whoever waited finds the path settled
	}) {
		cancel()
		return false
	}
	r.underWay[path] = ctx
	return true
}

// awaitRenewal waits until path is not being made anew.
func (c *Client) awaitRenewal(ctx context.Context, path string) error {
	c.renewals.mu.Lock()
	underWay := c.renewals.underWay[path]
	c.renewals.mu.Unlock()
	if underWay == nil {
		return nil
	}
	select {
	case <-underWay.Done(): // the goroutine may take longer, in a call without an answer
		return context.Cause(c.link.Context()) // the end of the client is that of the renewal, too
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renewed follows a renewal that failed for a reason, or not.
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
		c.options.Logger.Warn("zklock: half of the sequence numbers of a lock path are used up, and it cannot be"+
			" deleted to begin anew", "path", path, "number", number, "next try", r.failed[path], "err", err)
	}
}

// drain waits for the queue to be empty and deletes the path. It returns nil once the path
// is new.
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

// deletePath deletes the path if it can be. It returns zk.ErrNoNode or nothing if the path is gone
// or a new one, and zk.ErrNotEmpty if somebody queues who is likely to go.
func (n *Node) deletePath(w *link.Watcher) error {
	c, path := n.lock.client, n.lock.path
	// Not that of the wait, at whose end the answer says why the path could not go.
	children, err := c.link.WatchQueue(context.Background(), path, w)
	if err != nil {
		return err
	}
	stat, err := c.container(parent{path: path})
	switch {
	case stat != nil && stat.Czxid > n.token: // it could not go before the node, so it came later
		return nil
	case err != nil:
		return err
	case stat.NumChildren == 0:
		return c.link.Conn.Delete(path, 0)
	}
	if _, others := zkqueue.Parse(children); len(others) > 0 {
		return fmt.Errorf("%w: %q is no lock node", errNotOurs, others[0])
	}
	return zk.ErrNotEmpty
}
