package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// enqueue creates a node at the tail of the queue. It tries until it knows of one node,
// the context ends, or it cannot be done. What an unanswered create may have left is
// then in the reaper's hands.
func (a *attempt) enqueue() (arrival, error) {
	if !a.once {
		if err := a.client.renewals.await(a.ctx, a.lock.path); err != nil {
			return arrival{}, err
		}
	}
	n, err := a.create()
	a.endBuilding(n.Node != nil)
	return n, err
}

// rebuilds is how often the parents are made anew without a pause: others may take them
// away while they are empty.
const rebuilds = 5

func (a *attempt) create() (arrival, error) {
	built := 0
	for pace := retry.New(); ; {
		s, err := a.awaitSession()
		if err != nil {
			return arrival{}, err
		}
		if err := a.client.reaper.Room(a.ctx); err != nil {
			return arrival{}, a.explain(err)
		}
		prefixes := newPrefixes(a.lock.mode, a.client.options.kazoo)
		n, err := a.send(s, a.lock.creates(prefixes))
		switch classify(err) {
		case done:
			return n, nil
		case missing:
			if a.parents == nil {
				if err := a.beginBuilding(); err != nil {
					return arrival{}, err
				}
				continue
			}
			if classify(a.obstacle) == permanent {
				return arrival{}, a.obstacle
			}
			if built++; a.obstacle == nil && built <= rebuilds {
				continue
			}
			err = cmp.Or(a.obstacle, fmt.Errorf("%s was deleted again: %w", a.lock.path, err))
		case permanent:
			return arrival{}, createError(lacking("CREATE", a.lock.path, err))
		case uncertain:
			if n, err := a.lookUp(prefixes, err); n != nil || err != nil {
				return arrival{Node: n}, err
			}
			continue
		}
		if err := a.pause(pace, err); err != nil {
			return arrival{}, err
		}
	}
}

// An arrival is a fresh node, and the list of the queue that was asked for right behind its
// creation, if one was.
type arrival struct {
	*Node
	listed *listed
}

// A listed is a look at the queue.
type listed struct {
	link.Answer
	asked time.Duration // when, on the client's clock
}

// send asks for the creation of a node and, where requests stay in order, for all that has to
// come before and behind it: one round trip. s is the session that it is expected to be
// executed under.
func (a *attempt) send(s *link.Session, ops link.Transaction) (arrival, error) {
	buildings := a.buildings()
	requests := append(buildings, ops)
	asked := a.client.link.Now()
	var answers []link.Answer
	if a.client.link.Ordered() {
		answers = a.client.link.Ask(append(requests, link.Listing{Path: a.lock.path})...)
	} else {
		for _, q := range requests {
			answers = append(answers, a.client.link.Ask(q)...)
		}
	}
	a.noteBuilt(buildings, answers)
	created := answers[len(buildings)]
	if created.Err != nil {
		return arrival{}, created.Err
	}
	if !a.client.link.Ordered() {
		return arrival{Node: newNode(a.lock, s, created.Created)}, nil
	}
	n := newNode(a.lock, created.Session, created.Created)
	n.token = created.Zxid
	return arrival{n, &listed{answers[len(requests)], asked}}, nil
}

// contentOf is that of the znode with this index. kazoo shows the content of the second one to
// people and fails unless it is UTF-8, so that is always the description of the process.
func (l *Lock) contentOf(i int) []byte {
	if i > 0 {
		return l.describe()
	}
	return l.content()
}

// creates are the operations that make the znodes with these prefixes.
func (l *Lock) creates(prefixes []string) []any {
	var ops []any
	for i, prefix := range prefixes {
		ops = append(ops, &zk.CreateRequest{
			Path: l.path + "/" + prefix, Data: l.contentOf(i), Acl: l.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// replace deletes old and creates a new node in one transaction. In any case old is
// given up.
func (a *attempt) replace(old *Node) (arrival, error) {
	if a.ctx.Err() != nil {
		old.startDelete(nil)
		old.awaitRelease() // the next attempt waits for this one
		return arrival{}, context.Cause(a.ctx)
	}
	s := a.client.link.Session()
	if s == nil || a.client.Err() != nil {
		old.finish(old.doubt(nil))
		return a.enqueue()
	}
	zs, unpin := old.pin()
	if zs == nil { // nobody knows their names: both go to the reaper
		unpin()
		old.finish(old.doubt(nil))
		return a.enqueue()
	}
	prefixes := newPrefixes(a.lock.mode, a.client.options.kazoo)
	n, err := a.send(s, append(zs.deletes(), a.lock.creates(prefixes)...))
	answer := classify(err)
	zs.deleted(answer)
	unpin()
	switch answer {
	case done:
		old.finish(nil)
		return n, nil
	case missing: // somebody deleted old
		old.finish(errDeleted(old.path()))
	case permanent: // nothing was done
		old.delete(nil)
		return arrival{}, createError(lacking("CREATE or DELETE", a.lock.path, err))
	case refused:
		old.delete(nil)
	case uncertain: // all of it was done, or nothing
		old.finish(old.doubt(err))
		if n, err := a.lookUp(prefixes, err); n != nil || err != nil {
			return arrival{Node: n}, err
		}
	}
	return a.enqueue()
}

// lookUp finds out what became of a create whose answer was lost, for the reason cause.
// It returns nil and no error when there is no such node and never will be.
func (a *attempt) lookUp(prefixes []string, cause error) (*Node, error) {
	for pace := retry.New(); ; {
		if err := a.pause(pace, cause); err != nil {
			a.reap(prefixes)
			return nil, err
		}
		s := a.client.link.Session()
		paths, err := find(a.client.link, a.lock.path, prefixes...)
		switch classify(err) {
		case done:
			if len(paths) == 0 {
				return nil, nil
			}
			// Expired a moment ago, but still there; or somebody deleted one of two.
			if s == nil || len(paths) < len(prefixes) {
				a.reap(prefixes)
				return nil, nil
			}
			return newNode(a.lock, s, paths), nil
		case permanent:
			a.reap(prefixes)
			return nil, err
		}
		cause = err
	}
}

// reap gives up what a create with these prefixes may have left.
func (a *attempt) reap(prefixes []string) {
	a.client.reaper.Add(remains{parent: a.lock.path, prefixes: prefixes})
}

// createError names the one failure that a sequential create can only have when its
// parent's counter is stuck.
func createError(err error) error {
	if errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("%w: %w", ErrSequenceExhausted, err)
	}
	return err
}
