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
)

// parents is what a client knows of the nodes above its lock nodes.
type parents struct {
	plain    atomic.Bool    // the server knows no containers (before 3.5)
	building sync.WaitGroup // attempts between their first parent and their node
}

// buildParents creates the lock path and what is missing above it: as containers, which
// the server removes when they are empty, or as persistent nodes where it knows none.
func (a *attempt) buildParents() error {
	if a.parents == nil {
		if !a.client.beginBuilding() {
			return ErrClosed
		}
		a.parents = make(map[string]bool)
	}
	return a.createParents(a.lock.path)
}

// beginBuilding is counted, because Close must not overtake it: the parents would stay,
// and the library reads the reply to a container while it may still be written
// (conn.go:1098).
func (c *Client) beginBuilding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.parents.building.Add(1)
	return true
}

// endBuilding follows the end of an enqueue. A container that has had a child goes by
// itself; one that never had any stays for ever, unless we delete it.
func (a *attempt) endBuilding(used bool) {
	if a.parents == nil {
		return
	}
	if !used {
		for _, path := range slices.Backward(slices.Sorted(maps.Keys(a.parents))) { // the lowest first
			p := parent{path, a.parents[path]}
			if !a.client.prune(p) {
				a.client.reaper.add(remains{unused: &p})
			}
		}
	}
	a.parents = nil
	a.client.parents.building.Done()
}

// createParents starts at the bottom, since most often only the last one is missing.
func (a *attempt) createParents(path string) error {
	err := a.createParent(path)
	if up := parentOf(path); up != "" && errors.Is(err, zk.ErrNoNode) {
		if err := a.createParents(up); err != nil {
			return err
		}
		err = a.createParent(path)
	}
	return err
}

func (a *attempt) createParent(path string) error {
	c := a.client
	var err error
	if !c.parents.plain.Load() {
		err = a.createContainer(path)
		if err != nil && unknownCode(err) == wire.CodeUnimplemented {
			c.parents.plain.Store(true)
		}
	}
	if c.parents.plain.Load() {
		_, err = c.conn.Create(path, nil, 0, a.lock.acl)
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create parent %s: %w", path, lacking("CREATE", cmp.Or(parentOf(path), "/"), err))
	}
	return nil
}

func (a *attempt) createContainer(path string) error {
	_, err := a.client.conn.CreateContainer(path, []byte(containerData), zk.FlagContainer, a.lock.acl)
	switch classify(err) {
	case done:
		a.parents[path] = true
	case uncertain:
		a.parents[path] = a.parents[path]
	}
	return err
}
