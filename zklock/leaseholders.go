package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
)

// Contenders returns a process that has permits and waits for more in both places.
func (s *semaphore) Contenders(ctx context.Context) ([]second.Contender, error) {
	all, err := ask(ctx, s.Client, s.survey)
	if err != nil {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", s.path, err)
	}
	return all, nil
}

// survey looks at the queue first: whoever trades its turn for permits meanwhile is seen twice, and
// not never.
func (s *semaphore) survey(ctx context.Context) ([]second.Contender, error) {
	queue, err := s.locks.survey(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.leaseholders(ctx)
	for _, q := range queue {
		all = append(all, q.forGate())
	}
	if err != nil || len(all) == 0 {
		return all, err
	}
	of, err := s.marked()
	for i := range all {
		all[i].Of = of
	}
	return all, err
}

// marked is how many permits there are as the path says it, 0 if it does not, or may not be read.
func (s *semaphore) marked() (int, error) {
	content, _, err := s.link.Conn.Get(s.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth) {
		return 0, err
	}
	number, marked := strings.CutPrefix(string(content), permitsMark)
	of, err := strconv.Atoi(number)
	if !marked || err != nil {
		return 0, nil
	}
	return of, nil
}

// leaseholders returns those that have permits, in the order in which they took the first one. What
// belongs to one session belongs to one process.
func (s *semaphore) leaseholders(ctx context.Context) ([]second.Contender, error) {
	children, _, err := s.link.Conn.Children(s.leases.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, lacking("READ", s.leases.path, err)
	}
	var leases []Contender
	for _, name := range children {
		lease := Contender{Node: name}
		switch err := s.fill(s.leases.path, &lease); {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			leases = append(leases, lease)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	slices.SortFunc(leases, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
	})
	var holders []second.Contender
	places := make(map[int64]int) // of sessions, among holders
	for _, lease := range leases {
		if at, known := places[lease.Session]; known && lease.Session != 0 {
			holders[at].Permits++
			continue
		}
		places[lease.Session] = len(holders)
		holder := lease.forGate()
		holder.Token, holder.Permits = 0, 1 // the token is that of a turn that is over
		holders = append(holders, holder)
	}
	return holders, nil
}
