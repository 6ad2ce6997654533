package zklock

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkqueue"
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
				a.client.reaper.Add(remains{unused: &p})
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

// prune deletes a container unless it has children. It reports whether there is nothing
// more to do: it is gone, in use, or not for us to delete.
func (c *Client) prune(p parent) (finished bool) {
	err := c.deleteContainer(p)
	if errors.Is(err, zk.ErrNoAuth) {
		c.options.logger.Warn("zklock: cannot delete an empty parent; it stays", "path", p.path, "err", err)
	}
	return classify(err) != refused && classify(err) != unknown
}

// deleteContainer deletes a container of this package unless it has children, which only
// the server can tell. Whoever was about to use it makes it anew.
//
// The delete is for a node whose data was never set. It cannot tell a plain node that
// took the container's place within the round trip; with the sync, no server that lags
// makes that any longer.
func (c *Client) deleteContainer(p parent) error {
	if _, err := c.container(p); err != nil {
		return err
	}
	return c.link.Conn.Delete(p.path, 0)
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
