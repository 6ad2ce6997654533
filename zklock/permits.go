package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

const leaseMarker = "lease-"

// maxWrite leaves room in the megabyte that a server takes in one request by default.
const maxWrite = 900 << 10

// Most is how many permits fit into one transaction.
func (s *semaphore) Most() int {
	one := len(s.leases.path) + len(s.leases.content()) + 128 // name, flags, header
	for _, acl := range s.leases.acl {
		one += len(acl.Scheme) + len(acl.ID) + 16
	}
	return max(maxWrite/one, 1)
}

// creates are the operations that make the nodes with these prefixes.
func (s *semaphore) creates(prefixes []string) (ops []any) {
	data := s.leases.content()
	for _, prefix := range prefixes {
		ops = append(ops, &zk.CreateRequest{
			Path: s.leases.path + "/" + prefix, Data: data, Acl: s.leases.acl,
			Flags: zk.FlagEphemeral | zk.FlagSequence,
		})
	}
	return ops
}

// exchange gives the turn up for k permits, in one transaction: it takes effect only while the turn
// is ours, and all of it or nothing does. The turn is given up in any case. With errGone nothing
// was taken, and another turn is needed.
func (s *semaphore) exchange(ctx context.Context, turn *Node, k int, seen sight) ([]*Node, error) {
	a := &attempt{lock: s.leases, client: s.Client, ctx: ctx}
	var err error
	switch {
	case turn.lossNow() != nil:
		err = errGone
	case seen.missing:
		err = a.beginBuilding()
	}
	if err != nil {
		turn.Release()
		return nil, err
	}
	turn.spent.Store(true) // so that its end is no loss
	turn.session.Leave(member{turn})
	defer turn.stepAside()
	prefixes := make([]string, k)
	for i := range prefixes {
		prefixes[i] = newID() + leaseMarker
	}
	answer := a.submit(append(link.Transaction(turn.znodes.deletes()), s.creates(prefixes)...))
	taken, err := s.exchanged(a, turn, prefixes, answer)
	a.endBuilding(err == nil)
	return taken, err
}

// submit sends a transaction, behind what makes the parents, if these are missing.
func (a *attempt) submit(ops link.Transaction) link.Answer {
	buildings := a.buildings()
	requests := append(buildings, ops)
	var answers []link.Answer
	if a.client.link.Ordered() {
		answers = a.client.link.Ask(requests...)
	} else {
		for _, q := range requests {
			answers = append(answers, a.client.link.Ask(q)...)
		}
	}
	a.noteBuilt(buildings, answers)
	return answers[len(buildings)]
}

// exchanged sees to what has become of an exchange.
func (s *semaphore) exchanged(a *attempt, turn *Node, prefixes []string, answer link.Answer) ([]*Node, error) {
	switch classify(answer.Err) {
	case done:
		turn.znodes.deleted(done)
		turn.finish(nil)
		return s.adopt(a, turn, answer.Created, answer.Session)
	case permanent:
		turn.delete(nil)
		return nil, lacking("CREATE or DELETE", s.leases.path, answer.Err)
	case uncertain:
		turn.finish(turn.doubt(answer.Err))
		n, err := a.lookUp(prefixes, answer.Err)
		if n == nil {
			return nil, cmp.Or(err, errGone)
		}
		return s.adopt(a, turn, n.znodes.paths(), nil)
	}
	turn.delete(nil)
	if classify(a.obstacle) == permanent {
		return nil, a.obstacle
	}
	return nil, errGone
}

// adopt has the lease of the session cover what was taken, all or nothing. Under which session that
// was is read unless it is known.
func (s *semaphore) adopt(a *attempt, turn *Node, paths []string, session *link.Session) ([]*Node, error) {
	taken := make([]*Node, len(paths))
	var err error
	for i, path := range paths {
		n := newNode(s.leases, cmp.Or(session, turn.session), []string{path})
		taken[i] = n
		switch {
		case err != nil:
		case session != nil:
			err = n.bind(session, turn.token)
		default:
			err = a.verify(n, n.znodes[0], s.link.Read(n.readings(n.znodes)...)[0])
			n.token = turn.token
		}
		if err == nil && !n.grant(standing{}) {
			err = errGone
		}
	}
	if err == nil {
		return taken, nil
	}
	for _, n := range taken {
		n.spent.Store(true)
		n.leave()
	}
	s.leaveToReaper(taken, nil)
	if classify(err) == permanent {
		return nil, err
	}
	return nil, errGone
}

// Release deletes the nodes of permits in one transaction.
func (s *semaphore) Release(permits []second.Permit) error {
	nodes := make([]*Node, len(permits))
	var loss error
	for i, p := range permits {
		n := p.(grant).Node
		nodes[i] = n
		n.spent.Store(true)
		if n.znodes.gone() { // by another hand, and nobody has said so yet
			n.endHold(errDeleted(n.path()))
		}
		loss = cmp.Or(loss, n.leave())
	}
	switch err := s.Err(); {
	case err != nil && !errors.Is(err, ErrClosed) && s.link.Leased():
		s.leaveToReaper(nodes, err)
	case err == nil && loss == nil && s.link.Spawn(func() { s.delete(nodes) }):
	default:
		for _, n := range nodes {
			n.startDelete(n.lossNow())
		}
	}
	if err := cmp.Or(s.awaitRelease(nodes), loss); err != nil {
		return fmt.Errorf("zklock: release permits of %s: %w", s.path, err)
	}
	return nil
}

func (s *semaphore) delete(nodes []*Node) {
	var ops []any
	for _, n := range nodes {
		ops = append(ops, n.znodes.deletes()...)
	}
	var err error
	answer := permanent
	if !s.link.Over() { // else each node sends nothing and says so
		_, err = s.link.Transact(ops...)
		answer = classify(err)
	}
	switch answer {
	case done:
		for _, n := range nodes {
			n.znodes.deleted(done)
			n.finish(nil)
		}
	case missing, permanent: // for one of them: nothing was done
		for _, n := range nodes {
			n.delete(nil)
		}
	default:
		s.leaveToReaper(nodes, err)
	}
}

// leaveToReaper has all that is not gone deleted together. Err is why the server has not answered.
func (s *semaphore) leaveToReaper(nodes []*Node, err error) {
	var paths []string
	for _, n := range nodes {
		if !n.reaped.Swap(true) && !n.znodes.gone() {
			paths = append(paths, n.path())
		}
	}
	if len(paths) > 0 && s.link.Context().Err() == nil { // else they go with the session
		s.reaper.Add(remains{parent: s.leases.path, paths: paths})
	}
	for _, n := range nodes {
		n.finish(cmp.Or(context.Cause(n.life), n.doubt(err)))
	}
}

// awaitRelease is that of a node for all of them together.
func (s *semaphore) awaitRelease(nodes []*Node) (fate error) {
	bound, cancel := context.WithTimeout(s.link.Context(), nodes[0].session.Negotiated()/3)
	defer cancel()
	for _, n := range nodes {
		select {
		case <-n.released:
			if errors.Is(n.fate, ErrLost) {
				n.endHold(n.fate)
			}
			fate = cmp.Or(fate, n.fate)
		case <-bound.Done():
			fate = cmp.Or(fate, n.doubt(nil))
		}
	}
	return fate
}
