package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// enqueue creates a node at the tail of the queue. It tries until it knows of one node,
// the context ends, or it cannot be done. What an unanswered create may have left is
// then in the reaper's hands.
func (a *attempt) enqueue() (*Node, error) {
	fresh := true // the parents have not been created by this call
	for retry := newBackoff(); ; {
		s, err := a.await()
		if err != nil {
			return nil, err
		}
		if err := a.client.reaper.room(a.ctx); err != nil {
			return nil, err
		}
		prefix := newPrefix()
		path, err := a.client.conn.Create(a.lock.path+"/"+prefix, a.lock.content(),
			zk.FlagEphemeral|zk.FlagSequence, a.lock.acl)
		switch classify(err) {
		case done:
			return newNode(a.lock, s, prefix, path), nil
		case missing:
			err = a.client.createParents(a.lock.path, a.lock.acl)
			if classify(err) == permanent {
				return nil, err
			}
			if err == nil && fresh {
				fresh = false
				continue
			}
		case permanent:
			return nil, createError(err)
		case uncertain:
			if n, err := a.lookUp(prefix, err); n != nil || err != nil {
				return n, err
			}
			continue
		}
		if err := a.pause(retry, err); err != nil {
			return nil, err
		}
	}
}

// replace deletes old and creates a new node in one transaction. In any case old is
// given up.
func (a *attempt) replace(old *Node) (*Node, error) {
	if a.ctx.Err() != nil {
		old.delete()
		return nil, context.Cause(a.ctx)
	}
	s := a.client.link.session()
	if s == nil || a.client.Err() != nil {
		old.leaveToReaper(nil)
		return a.enqueue()
	}
	prefix := newPrefix()
	results, err := a.client.conn.Multi(
		&zk.DeleteRequest{Path: old.path, Version: -1},
		&zk.CreateRequest{
			Path:  a.lock.path + "/" + prefix,
			Data:  a.lock.content(),
			Acl:   a.lock.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	switch classify(err) {
	case done:
		old.settle(nil)
		return newNode(a.lock, s, prefix, results[1].String), nil
	case missing: // somebody deleted old
		old.settle(old.deleted())
	case permanent: // nothing was done
		old.deleteNow()
		return nil, createError(err)
	case refused:
		old.deleteNow()
	case uncertain: // all of it was done, or nothing
		old.leaveToReaper(nil)
		if n, err := a.lookUp(prefix, err); n != nil || err != nil {
			return n, err
		}
	}
	return a.enqueue()
}

// lookUp finds out what became of a create whose answer was lost, for the reason cause.
// It returns nil and no error when there is no such node and never will be.
func (a *attempt) lookUp(prefix string, cause error) (*Node, error) {
	for retry := newBackoff(); ; {
		if err := a.pause(retry, cause); err != nil {
			a.client.reaper.add(a.remains(prefix))
			return nil, err
		}
		s := a.client.link.session()
		name, err := a.client.find(a.lock.path, prefix)
		switch classify(err) {
		case done:
			if name == "" {
				return nil, nil
			}
			if s == nil { // expired a moment ago, but the node is still there
				a.client.reaper.add(a.remains(prefix))
				return nil, nil
			}
			return newNode(a.lock, s, prefix, a.lock.path+"/"+name), nil
		case permanent:
			a.client.reaper.add(a.remains(prefix))
			return nil, err
		}
		cause = err
	}
}

// remains is what a create with this prefix may have left.
func (a *attempt) remains(prefix string) remains {
	return remains{parent: a.lock.path, prefix: prefix, session: a.client.link.session()}
}

// find looks for the child of parent whose name starts with prefix; "" means that there
// is none. It syncs first: another server may lag behind the one that took the create.
// After that nothing can come late any more, since a server that takes a session over
// shuts out the connection before.
func (c *Client) find(parent, prefix string) (string, error) {
	if _, err := c.conn.Sync(parent); err != nil && classify(err) != missing {
		return "", err
	}
	children, _, err := c.conn.Children(parent)
	if classify(err) == missing {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, name := range children {
		if strings.HasPrefix(name, prefix) {
			return name, nil
		}
	}
	return "", nil
}

// createError names the one failure that a sequential create can only have when its
// parent's counter is stuck.
func createError(err error) error {
	if errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("%w: %w", ErrSequenceExhausted, err)
	}
	return err
}
